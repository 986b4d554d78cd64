"""A federation from a NumPy archive: `np.savez(path, x=x, y=y, tasks=tasks)`.

Optional keys: `names` (text; then `tasks` holds positions in it, from 0) and `features` (text, the
names of the columns of `x`). Pickled content is refused: reading a pickle runs its code.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.arrays import from_arrays
from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.files import reading

NEEDED = ("x", "y", "tasks")


def from_npz(path: str | Path, **options: Any) -> Federation:
    """`options` are those of `tacit.data.from_arrays`."""
    path = Path(path)
    arrays = read_arrays(path, NEEDED)
    tasks = arrays["tasks"]
    if "names" in arrays:
        tasks = _named(tasks, arrays["names"], path)
    if "features" in arrays:
        named = arrays["features"]
        if named.ndim != 1:
            raise TacitError(f"{path} has features of shape {named.shape}: give a name per column")
        options.setdefault("features", [str(name) for name in named])
    return from_arrays(arrays["x"], arrays["y"], tasks, **{"source": path.name, **options})


def read_arrays(path: Path, needed: Sequence[str]) -> dict[str, np.ndarray]:
    """All arrays of an archive that has at least the needed ones."""
    arrays = _read(path, needed)
    absent = [key for key in needed if key not in arrays]
    if absent:
        raise TacitError(
            f"{path} has the arrays {', '.join(arrays) or '(none)'} but not {', '.join(absent)}; "
            f"save it with {_call(needed)}"
        )
    return arrays


def _call(needed: Sequence[str]) -> str:
    return f"np.savez(path, {', '.join(f'{key}={key}' for key in needed)})"


def _read(path: Path, needed: Sequence[str]) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise TacitError(f"{path} does not exist or is a folder; pass the path of a .npz file")
    # Opened here, because np.load leaves a damaged archive open. A zip is checked for first:
    # np.load takes anything else for a pickle or a single array.
    with reading(path, f"save it again with {_call(needed)}"), path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise TacitError(f"{path} is not a .npz file; save it with {_call(needed)}")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                found = {key: archive[key] for key in archive.files}
        except ValueError as error:
            if "pickle" not in str(error).lower():
                raise
            raise TacitError(
                f"{path} holds pickled objects, which are never read; save {', '.join(needed)} as "
                "plain arrays of numbers or text (not dtype=object)"
            ) from None
        strange = next((key for key, value in found.items() if type(value) is not np.ndarray), None)
        if strange is not None:
            raise ValueError(f"{strange} is not an array")
        for key, value in found.items():
            if value.dtype.kind not in "biufUS":
                raise ValueError(f"{key} has items of type {value.dtype.name}")
            if value.size and not value.dtype.itemsize:
                # Texts of length zero need no bytes: a small file can claim billions of them.
                raise ValueError(f"{key} has items of no size")
            if value.dtype.kind == "U":
                value.tolist()  # broken text is found here, not somewhere later
        return found


def _named(tasks: np.ndarray, names: np.ndarray, path: Path) -> np.ndarray:
    if tasks.dtype.kind not in "iu" or names.ndim != 1:
        raise TacitError(
            f"{path} has names, so tasks must be whole numbers (positions in names), but it holds "
            f"{tasks.dtype.name}"
        )
    outside = (tasks < 0) | (tasks >= len(names))
    if outside.any():
        row = int(np.argmax(outside))
        raise TacitError(
            f"row {row + 1} of {path} has task {tasks[row]}, but names has positions 0 to "
            f"{len(names) - 1}"
        )
    return names[tasks]
