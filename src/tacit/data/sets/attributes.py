"""Photographs with 40 attributes that people wrote down: CelebA, LFWA, and both (FedMTL's FaceA).

Liu, Luo, Wang and Tang, "Deep Learning Face Attributes in the Wild", ICCV 2015. Both sets have the
same 40 attributes in the same order. Read are, as their authors and Kaggle hand them out:

| set    | attributes                                                  | photographs               |
|--------|-------------------------------------------------------------|---------------------------|
| CelebA | `list_attr_celeba.txt` or `.csv`, perhaps in `Anno/`        | `img_align_celeba/`       |
| LFWA   | `lfw_att_40.mat` (`label`, `name`, `AttrName`)              | `lfw/` or another release |

Only the photographs that are drawn are opened. Of each the middle square is taken (CelebA: the full
width of 178 points; LFW: the middle 56 %, which is 140 of 250 points and mostly face), brought to
`size` x `size` by Pillow's bicubic filter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.checks import check_whole, needing
from tacit.data.assemble import About
from tacit.data.deal import Dealing
from tacit.data.federation import Federation
from tacit.data.folders import find
from tacit.data.sets.faces import HEADS, PER_HEAD, USUAL, faces
from tacit.data.sets.school import read_mat
from tacit.data.targets import Target
from tacit.errors import TacitError

ATTRIBUTES = HEADS * PER_HEAD
LISTS = ("list_attr_celeba.txt", "list_attr_celeba.csv")
CELEBA_IMAGES = ("img_align_celeba/img_align_celeba", "img_align_celeba")
MAT = "lfw_att_40.mat"
LFW_IMAGES = tuple(
    place
    for release in ("lfw", "lfw-deepfunneled", "lfw_funneled")
    for place in (f"{release}/{release}", release)
)
WHOLE, FACE = 1.0, 0.56
"""The part of a photograph's shorter side that is looked at: CelebA's, LFW's."""
SIGNATURE = b"\x89HDF\r\n\x1a\n"


class _Listed(NamedTuple):
    """A set before any photograph is opened: files, 0/1 labels of each, names of the labels."""

    files: list[Path]
    labels: np.ndarray
    names: tuple[str, ...]
    crop: float


def celeba_attributes(
    path: str | Path | None = None, *, images: int = 12_000, size: int = 32, **dealt: Any
) -> Federation:
    """Celebrities: x [N, 3, size, size], eight heads of five labels.

    `images` are drawn at random; all other options are those of `tacit.data.deal.Dealing`, where 60
    clients with 20 rows or more are usual.
    """
    dealing = _checked(images, size, dealt)
    listed = _celeba(find("celeba-attributes", path, ("celeba",)), images, dealing)
    return _federation([listed], ("client",), dealing, size, "CelebA")


def lfwa(
    path: str | Path | None = None, *, images: int = 9_000, size: int = 32, **dealt: Any
) -> Federation:
    """Faces in the wild: x [N, 3, size, size]; options are those of `celeba_attributes`."""
    dealing = _checked(images, size, dealt)
    listed = _lfwa(find("lfwa", path, ("lfwa",)), images, dealing)
    return _federation([listed], ("client",), dealing, size, "LFWA")


def facea(
    path: str | Path | None = None, *, images: int = 16_000, size: int = 32, **dealt: Any
) -> Federation:
    """FedMTL's FaceA: half of the clients see CelebA, half LFWA, half of the `images` each.

    `path` is a folder with `celeba/` and `lfwa/`; other options are those of `celeba_attributes`,
    and 80 clients are usual.
    The paper does not say how many images come from which set.
    """
    dealing = _checked(images, size, {"clients": 80, **dealt})
    given = [None if path is None else Path(path) / name for name in ("celeba", "lfwa")]
    folders = [
        find("facea", place, (name,)) for place, name in zip(given, ("celeba", "lfwa"), strict=True)
    ]
    first = _celeba(folders[0], -(-images // 2), dealing)
    second = _lfwa(folders[1], images // 2, dealing)
    prefixes = ("celeba", "lfwa")
    return _federation([first, second], prefixes, dealing, size, "CelebA and LFWA (FaceA)")


def _checked(images: int, size: int, dealt: dict[str, Any]) -> Dealing:
    """Every number is checked, and Pillow found, before anything is read."""
    dealing = Dealing(**USUAL | dealt)
    dealing.check(HEADS)
    check_whole("images", images, 2)
    check_whole("size", size, 8, 256)
    with needing("Pillow", "reading photographs", "data"):
        import PIL  # noqa: F401
    return dealing


def _federation(
    sets: list[_Listed], prefixes: tuple[str, ...], dealing: Dealing, size: int, source: str
) -> Federation:
    """Each set goes to its own share of the clients; rows are dealt before they are read."""
    if any(one.names != sets[0].names for one in sets):
        raise TacitError("the two sets do not have the same attributes in the same order")
    names = dealing.names(prefixes)
    first = np.array([next(k for k, n in enumerate(names) if n.startswith(p)) for p in prefixes])
    shares = np.diff([*first, len(names)])
    client = np.concatenate(
        [
            start + dealing.rows(len(one.files), int(share), stream=k)
            for k, (one, start, share) in enumerate(zip(sets, first, shares, strict=True))
        ]
    )
    pixels = np.stack([_photograph(file, one.crop, size) for one in sets for file in one.files])
    labels = np.concatenate([one.labels for one in sets])
    target = Target("multilabel", labels, len(sets[0].names), sets[0].names)
    return faces(pixels, target, client, names, About(source=source), dealing)


def _photograph(file: Path, crop: float, size: int) -> np.ndarray:
    """The middle square, as bytes [size, size, 3]."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            width, height = image.size
            side = crop * min(width, height)
            left, top = (width - side) / 2, (height - side) / 2
            small = image.convert("RGB").resize(
                (size, size), Image.Resampling.BICUBIC, (left, top, left + side, top + side)
            )
    except FileNotFoundError:
        raise TacitError(f"{file} is listed but does not exist; add the photograph") from None
    except (OSError, UnidentifiedImageError) as error:
        raise TacitError(f"{file} cannot be read: {error}; get the photograph again") from None
    return np.asarray(small)


def _place(folder: Path, names: tuple[str, ...], inside: tuple[str, ...], what: str) -> Path:
    """The first of these files or folders, in the folder itself or in one of those inside it."""
    for start in (folder, *(folder / name for name in inside)):
        for name in names:
            if (start / name).exists():
                return start / name
    raise TacitError(f"{folder} holds no {' or '.join(names)}; put {what} there")


def _celeba(folder: Path, images: int, dealing: Dealing) -> _Listed:
    file = _place(folder, LISTS, ("Anno", "raw"), "the attributes of CelebA")
    photographs = _place(folder, CELEBA_IMAGES, ("Img", "raw"), "CelebA's aligned photographs")
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TacitError(f"{file} cannot be read: {error}; get it again") from None
    lines = [line for line in lines if line.strip()]
    mark = "," if file.suffix == ".csv" else None
    names, rows = ([], []) if not lines else (lines[0].split(mark)[1:], lines[1:])
    if mark is None and len(lines) > 1:
        names, rows = lines[1].split(), lines[2:]
        if lines[0].strip() != str(len(rows)):
            raise TacitError(
                f"{file} begins with {lines[0].strip()[:20]!r}, but has {len(rows)} photographs; "
                "get it again"
            )
    if len(names) != ATTRIBUTES or not rows:
        raise TacitError(
            f"{file} is not a list of CelebA's attributes: expected {ATTRIBUTES} names, and a line "
            "for each photograph; get it again"
        )
    drawn = dealing.draw(images, len(rows), "CelebA")
    cells = [rows[k].split(mark) for k in drawn]
    wrong = next((k for k, row in enumerate(cells) if not _is_row(row)), None)
    if wrong is not None:
        raise TacitError(
            f"photograph {int(drawn[wrong]) + 1} of {file} does not have a name and {ATTRIBUTES} "
            "numbers -1 or 1; get it again"
        )
    labels = np.array([[int(cell) > 0 for cell in row[1:]] for row in cells])
    files = [photographs / row[0].strip() for row in cells]
    return _Listed(files, labels, tuple(name.strip() for name in names), WHOLE)


def _is_row(cells: list[str]) -> bool:
    return len(cells) == ATTRIBUTES + 1 and {cell.strip() for cell in cells[1:]} <= {"-1", "0", "1"}


def _lfwa(folder: Path, images: int, dealing: Dealing) -> _Listed:
    file = _place(folder, (MAT,), ("Anno", "anno"), "the attributes of LFWA")
    photographs = _place(folder, LFW_IMAGES, (), "the photographs of LFW")
    try:
        with file.open("rb") as content:
            start = content.read(520)
    except OSError as error:
        raise TacitError(f"{file} cannot be read: {error}; get it again") from None
    # MATLAB 7.3 writes HDF5 behind a block of its own, and scipy reads older versions only.
    modern = SIGNATURE in (start[:8], start[512:520])
    labels, files, names = (_mat_hdf5 if modern else _mat)(file)
    if labels.shape != (len(files), ATTRIBUTES) or len(names) != ATTRIBUTES or not files:
        raise TacitError(
            f"{file} has label {labels.shape}, {len(files)} names of photographs and {len(names)} "
            f"of attributes; expected {ATTRIBUTES} attributes for each photograph"
        )
    if not np.isin(labels, (-1, 0, 1)).all():
        raise TacitError(f"label of {file} must hold 0 and 1; get it again")
    drawn = dealing.draw(images, len(files), "LFWA")
    # The names are as Windows writes them: Aaron_Eckhart\Aaron_Eckhart_0001.jpg
    chosen = [photographs.joinpath(*files[k].replace("\\", "/").split("/")) for k in drawn]
    spelled = tuple(name.strip().replace(" ", "_") for name in names)
    return _Listed(chosen, labels[drawn] > 0, spelled, FACE)


def _mat(file: Path) -> tuple[np.ndarray, list[str], list[str]]:
    content = read_mat(file, (("label", "name", "AttrName"),), MAT)
    files, names = (
        [str(np.asarray(cell).ravel()[0]) if np.size(cell) else "" for cell in content[key].ravel()]
        for key in ("name", "AttrName")
    )
    return np.asarray(content["label"]), files, names


def _mat_hdf5(file: Path) -> tuple[np.ndarray, list[str], list[str]]:
    with needing("h5py", f"reading {file}", "data"):
        import h5py
    try:
        with h5py.File(file, "r") as archive:
            content: Any = archive
            label = np.asarray(content["label"]).T  # MATLAB counts columns first
            files, names = (
                ["".join(map(chr, np.asarray(content[ref]).ravel())) for ref in cells.ravel()]
                for cells in (np.asarray(content["name"]), np.asarray(content["AttrName"]))
            )
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise TacitError(
            f"{file} does not hold label, name and AttrName as LFWA's file does ({why}); get it "
            "again"
        ) from None
    return label, files, names
