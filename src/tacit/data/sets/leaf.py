"""LEAF's JSON files: FEMNIST with its pixels inside, CelebA with the names of image files.

One object per file: `users`, `num_samples`, and `user_data` with `x` and `y` of every user. Read
are a .json file, a zipped one (.json.zip), a folder of such files, or a folder with `train/` and
`test/`. There, test rows stay the test part and validation rows are drawn from the training rows;
users who are not in both are left out.

Classes are those of the data set, known to everybody, whether or not anyone here has them.
"""

from __future__ import annotations

import json
import string
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.checks import check_whole
from tacit.data.assemble import About, assemble
from tacit.data.federation import Federation
from tacit.data.folders import find
from tacit.data.split import SplitRule
from tacit.data.targets import Target
from tacit.errors import TacitError

CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
"""The classes of FEMNIST, in LEAF's order."""

FACE = 84
"""Height and width to which LEAF brings CelebA's images."""

SUFFIXES = (".json", ".json.zip")
BOTH = "which users are in both train/ and test/ is taken to be public (the others are left out)"

ReadX = Callable[[list[Any], str], np.ndarray]
"""The `x` of one user and where it stands -> float32 [rows, channels, height, width]."""


class _Users(NamedTuple):
    """Rows user after user, in the order of the files."""

    names: list[str]
    x: list[np.ndarray]
    y: list[np.ndarray]


def femnist(
    path: str | Path | None = None,
    *,
    users: int | None = None,
    **split: Any,
) -> Federation:
    """Handwritten characters: x [N, 1, 28, 28] in [0, 1], 62 classes, a task for each writer.

    `users` takes the first so many. `test` is not used where the files have a test part.
    """
    rule = SplitRule(**{"min_rows": 3} | split)
    place = find("femnist", path, ("femnist", "femnist_pmtl"))
    return _federation(place, _pixels, CHARACTERS, users, rule, "LEAF FEMNIST")


def celeba(
    path: str | Path | None = None,
    *,
    images: str | Path | None = None,
    users: int | None = None,
    **split: Any,
) -> Federation:
    """Faces of celebrities: x [N, 3, 84, 84] in [0, 1], smiling or not, a task for each person.

    `images` is the folder of img_align_celeba; by default it is looked for beside the JSON files,
    as LEAF lays them out. All images are held in memory, 83 KB each: `users` takes the first so
    many persons. LEAF hands its network values from 0 to 255; here they are divided by 255.
    """
    rule = SplitRule(**{"min_rows": 3} | split)
    place = find("celeba", path, ("celeba",))
    folder = _image_folder(place, images)

    def read(names: list[Any], where: str) -> np.ndarray:
        return np.stack([_image(folder / str(name), where) for name in names])

    return _federation(place, read, ("not smiling", "smiling"), users, rule, "LEAF CelebA")


def _federation(
    place: Path,
    read_x: ReadX,
    classes: tuple[str, ...],
    limit: int | None,
    rule: SplitRule,
    source: str,
) -> Federation:
    if limit is not None:
        check_whole("users", limit, 2)
    said: tuple[str, ...] = ()
    held = None
    train, test = _files(place)
    if test:
        both = _names(train) & _names(test)
        if not both:
            raise TacitError(
                f"no user of {place}/train is in {place}/test too: LEAF split it by user; pass the "
                "path of the train folder alone, which is then split inside each user"
            )
        said = (BOTH,)
        kept = _read(train, both, limit, read_x, len(classes))
        later = _read(test, set(kept.names), None, read_x, len(classes))
        held = np.repeat([False, True], [sum(map(len, kept.y)), sum(map(len, later.y))])
        found = _Users(kept.names + later.names, kept.x + later.x, kept.y + later.y)
    else:
        found = _read(train, None, limit, read_x, len(classes))
    if limit is not None:
        said = (*said, f"the first {limit} users of the files were taken")
    y, binary = np.concatenate(found.y), len(classes) == 2
    return assemble(
        np.concatenate(found.x),
        Target("binary" if binary else "multiclass", y, 1 if binary else len(classes), classes),
        np.repeat(found.names, [len(rows) for rows in found.y]),
        About(source=source, assumptions=said),
        rule=rule,
        held=held,
    )


def _files(place: Path) -> tuple[list[Path], list[Path]]:
    """Files to train on, and those of the test part (none where tasks are to be split here)."""
    if place.is_file():
        if not place.name.endswith(SUFFIXES):
            raise TacitError(f"{place} is not a LEAF file; expected {' or '.join(SUFFIXES)}")
        return [place], []
    for folder in (place, place / "data"):
        train, test = _inside(folder / "train"), _inside(folder / "test")
        if train and test:
            return train, test
        files = train or _inside(folder)
        if files:
            return files, []
    raise TacitError(
        f"{place} holds no {' or '.join(SUFFIXES)} file, nor train/ and test/ with such files; "
        "pass the folder that LEAF's preprocessing wrote"
    )


def _inside(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*") if p.name.endswith(SUFFIXES) and p.is_file())


def _names(files: list[Path]) -> set[str]:
    return {user for file in files for user in _users_of(_json(file), file)}


def _read(
    files: list[Path], only: set[str] | None, limit: int | None, read_x: ReadX, classes: int
) -> _Users:
    """One file at a time, so that its JSON is gone before the next one is read."""
    found, seen = _Users([], [], []), set[str]()
    for file in files:
        content = _json(file)
        for user in _users_of(content, file):
            if user in seen:
                raise TacitError(f"user {user!r} is in two files, at last in {file}; keep one")
            seen.add(user)
            if limit is not None and len(found.names) == limit:
                return found
            if only is not None and user not in only:
                continue
            x, y = _rows(content["user_data"], user, file)
            if y:
                found.names.append(user)
                found.x.append(read_x(x, f"user {user!r} of {file}"))
                found.y.append(_classes(y, classes, f"user {user!r} of {file}"))
    if not found.names:
        raise TacitError(f"{files[0]} has no users with rows; is it the right file?")
    return found


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(_bytes(file))
    except (OSError, ValueError, zipfile.BadZipFile, RecursionError) as error:
        raise TacitError(f"{file} cannot be read as JSON: {error}; get it again") from None
    if not isinstance(content, dict) or not isinstance(content.get("user_data"), dict):
        raise TacitError(f"{file} is not a LEAF file: it has no 'users' and 'user_data'")
    return content


def _bytes(file: Path) -> bytes:
    if not file.name.endswith(".zip"):
        return file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        # macOS adds a second "file" with its own notes.
        inside = [n for n in archive.namelist() if n.endswith(".json") and "__MACOSX" not in n]
        if len(inside) != 1:
            raise TacitError(f"{file} holds {len(inside)} JSON files, expected one; unzip it")
        return archive.read(inside[0])


def _users_of(content: dict[str, Any], file: Path) -> list[str]:
    users = content.get("users")
    if not isinstance(users, list):
        raise TacitError(f"{file} is not a LEAF file: it has no 'users' and 'user_data'")
    return [str(user) for user in users]


def _rows(data: dict[str, Any], user: str, file: Path) -> tuple[list[Any], list[Any]]:
    own = data.get(user)
    x, y = (own.get("x"), own.get("y")) if isinstance(own, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
        raise TacitError(
            f"user {user!r} of {file} has no lists x and y of the same length; correct the file"
        )
    return x, y


def _classes(y: list[Any], classes: int, where: str) -> np.ndarray:
    try:
        numbers = np.array(y, dtype=np.float64).reshape(len(y))
    except (TypeError, ValueError):
        numbers = np.array([-1.0])
    wrong = (numbers < 0) | (numbers >= classes) | (numbers != np.floor(numbers))
    if wrong.any():
        value = y[int(np.argmax(wrong))]
        raise TacitError(
            f"{where} has the class {value!r}, expected 0 to {classes - 1}; is it another data set?"
        )
    return numbers.astype(np.int64 if classes > 2 else np.float64)


def _pixels(x: list[Any], where: str) -> np.ndarray:
    try:
        values = np.array(x, dtype=np.float32).reshape(len(x), -1)
        good = values.shape[1] == 784 and bool(np.isfinite(values).all())
    except (TypeError, ValueError):
        values, good = np.zeros((0, 0), dtype=np.float32), False
    if not good:
        raise TacitError(
            f"{where} has rows that are not 784 numbers (28 x 28); is it FEMNIST, or CelebA?"
        )
    return values.reshape(-1, 1, 28, 28)


def _image_folder(place: Path, given: str | Path | None) -> Path:
    if given is not None:
        if not Path(given).is_dir():
            raise TacitError(f"images is {given}, which is not a folder; pass that of the images")
        return Path(given)
    home = place.parent if place.is_file() else place
    above = (home, home / "data", home.parent, home.parent.parent)
    for folder in (start / middle for start in above for middle in ("raw", ".")):
        if (folder / "img_align_celeba").is_dir():
            return folder / "img_align_celeba"
    raise TacitError(
        f"there is no folder raw/img_align_celeba with the images beside {place}; pass images=..."
    )


def _image(file: Path, where: str) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError  # only CelebA needs it

    try:
        with Image.open(file) as image:
            small = image.convert("RGB").resize((FACE, FACE), Image.Resampling.BICUBIC)
    except FileNotFoundError:
        raise TacitError(f"{where} names {file}, which does not exist; add the image") from None
    except (OSError, UnidentifiedImageError) as error:
        raise TacitError(f"{file} cannot be read: {error}; get the image again") from None
    return np.asarray(small, dtype=np.float32).transpose(2, 0, 1) / 255.0
