"""NYUD2: photographs of rooms with a class for each pixel, as prepared for multi-task learning.

Silberman, Hoiem, Kohli and Fergus, "Indoor Segmentation and Support Inference from RGBD Images",
ECCV 2012; 1449 scenes, here in the form that Liu, Johns and Davison publish with "End-to-End
Multi-Task Learning with Attention", CVPR 2019 (MTAN): `train/` (795) and `val/` (654), each with
`image/0.npy` … ([288, 384, 3] numbers from 0 to 1) and `label/0.npy` … ([288, 384], one of 13
classes from 0, or -1 for none). Depth and normals, if there, are not read; nor is the authors'
`nyu_depth_v2_labeled.mat`, which has 894 classes and needs their table to come down to 13.

FedMTL has four heads of three classes and does not say which: here they are the first twelve in
order, and the last, window, is left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

from tacit.data.deal import Dealing
from tacit.data.federation import Federation
from tacit.data.folders import find
from tacit.data.sets.scenes import check_size, dealt
from tacit.data.split import SplitRule
from tacit.errors import TacitError

CLASSES = (
    "bed", "books", "ceiling", "chair", "floor", "furniture", "objects", "picture", "sofa", "table",
    "tv", "wall", "window",
)  # fmt: skip
HEADS = {f"T{k + 1}": CLASSES[3 * k : 3 * k + 3] for k in range(4)}
PARTS = ("train", "val")


def nyud2(
    path: str | Path | None = None,
    *,
    images: int | None = None,
    size: int = 128,
    clients: int = 20,
    heads_per_client: int | None = 2,
    concentration: float = 1.0,
    seed: int = 0,
    validation: float = 0.15,
    test: float = 0.15,
    split_seed: int = 0,
    min_rows: int = 10,
) -> Federation:
    """Rooms: x [N, 3, size, size], four heads of three classes for each pixel.

    Parameters
    ----------
    images : how many to draw at random, from both folders; all by default.
    size : a multiple of 32. Images are brought to a square (bilinear, labels by nearest point), so
        they lose their proportions of 4 to 3.
    heads_per_client : 0 draws a number from 1 to all for each client.
    concentration, min_rows : how even the clients are, and the fewest rows of one; see
        `tacit.data.deal`.
    """
    rule = SplitRule(validation, test, split_seed)
    dealing = Dealing(clients, heads_per_client, concentration, seed, min_rows)
    dealing.check(len(HEADS), rule)
    check_size(size)
    pairs = _pairs(find("nyud2", path, ("nyud2", "nyuv2")))
    if images is not None:
        pairs = [pairs[k] for k in dealing.draw(images, len(pairs), "NYUD2")]
    client = dealing.rows(len(pairs))
    x = np.empty((len(pairs), 3, size, size), dtype=np.float32)
    masks = np.empty((len(pairs), size, size), dtype=np.int8)
    order = np.argsort(client, kind="stable")
    for row, k in enumerate(order):
        image, label = pairs[k]
        x[row], masks[row] = _read(image, label, size)
    return dealt(x, masks, client[order], CLASSES, HEADS, dealing, rule, "NYUD2")


def _pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Images and labels of both parts, in the order of their numbers."""
    pairs: list[tuple[Path, Path]] = []
    for part in PARTS:
        files = {
            side: {file.name: file for file in (folder / part / side).glob("*.npy")}
            for side in ("image", "label")
        }
        alone = next(iter(sorted(files["image"].keys() ^ files["label"].keys())), None)
        if alone is not None:
            raise TacitError(
                f"{folder / part} has {alone} in only one of image/ and label/; get it again"
            )
        ordered = sorted(files["image"], key=lambda name: (len(name), name))
        pairs += [(files["image"][name], files["label"][name]) for name in ordered]
    if not pairs:
        raise TacitError(
            f"{folder} holds no train/image/*.npy with train/label/*.npy, nor val/; put NYUD2 "
            "there as MTAN publishes it"
        )
    return pairs


def _read(image: Path, label: Path, size: int) -> tuple[np.ndarray, np.ndarray]:
    pixels, classes = _array(image), _array(label)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or classes.shape != pixels.shape[:2]:
        raise TacitError(
            f"{image} has shape {pixels.shape} and {label} has shape {classes.shape}, expected "
            "[height, width, 3] and [height, width]"
        )
    points = torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)
    if pixels.dtype == np.uint8:
        points = points / 255.0
    if not bool(((points >= 0) & (points <= 1)).all()):
        raise TacitError(f"{image} must hold numbers from 0 to 1; get it again")
    known = (classes >= -1) & (classes < len(CLASSES)) & (classes == np.floor(classes))
    if not known.all():
        raise TacitError(
            f"{label} has the class {classes[~known][0]}, expected 0 to {len(CLASSES) - 1}, or -1 "
            "for none; is it prepared for 13 classes?"
        )
    small = interpolate(
        points[None], (size, size), mode="bilinear", align_corners=False, antialias=True
    )
    numbers = torch.from_numpy(classes.astype(np.float32))[None, None]
    nearest = interpolate(numbers, (size, size), mode="nearest-exact")
    return small[0].clamp(0, 1).numpy(), nearest[0, 0].numpy().astype(np.int8)


def _array(file: Path) -> np.ndarray:
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        why = " ".join(str(error).split())
        raise TacitError(f"{file} cannot be read as an array: {why}; get it again") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf":
        raise TacitError(f"{file} must hold one array of numbers; get it again")
    return array
