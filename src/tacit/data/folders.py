"""Where the files of a public data set are: a path that was given, or a folder under TACIT_DATA."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tacit.errors import TacitError

VARIABLE = "TACIT_DATA"


def find(name: str, path: str | Path | None, folders: Sequence[str]) -> Path:
    """The given path, or the first of `folders` that exists under TACIT_DATA."""
    if path is not None:
        if not Path(path).exists():
            raise TacitError(f"{path} does not exist; pass the path of the files of {name!r}")
        return Path(path)
    places = " or ".join(f"{folder}/" for folder in folders)
    root = os.environ.get(VARIABLE)
    if not root:
        raise TacitError(
            f"the data set {name!r} is read from files you have: pass path=..., or set {VARIABLE} "
            f"to the folder that holds {places}"
        )
    for folder in folders:
        if (Path(root) / folder).exists():
            return Path(root) / folder
    raise TacitError(
        f"{VARIABLE} is {root}, but there is no {places} in it; put the files of {name!r} there, "
        "or pass path=..."
    )


def only(folder: Path, names: Sequence[str], what: str) -> Path:
    """A file itself, or the first of these names that a folder holds."""
    if folder.is_file():
        return folder
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise TacitError(f"{folder} holds no {' or '.join(names)}; put {what} there")
