"""A federation from images whose every pixel has a class: segmentation.

A head is a few of the classes. To a head, pixels of all other classes are missing, as they are to a
task that does not hold it: they count in no loss and no score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tacit.data.arrays import pixels, task_array
from tacit.data.assemble import About, assemble
from tacit.data.federation import Federation, Rows
from tacit.data.heads import MISSING, Heads, holding
from tacit.data.preprocess import Scale
from tacit.data.split import SplitRule
from tacit.data.targets import Target
from tacit.errors import TacitError


def from_masks(
    x: Any,
    masks: Any,
    tasks: Any,
    *,
    classes: Sequence[str],
    heads: Mapping[str, Sequence[str]] | None = None,
    holds: Mapping[str, Sequence[str]] | None = None,
    validation: float = 0.2,
    test: float = 0.2,
    split_seed: int = 0,
    min_rows: int = 0,
    scale: Scale = "none",
    source: str = "images in memory",
) -> Federation:
    """A federation from images and a class for each pixel.

    Parameters
    ----------
    x : [N, channels, height, width] numbers.
    masks : [N, height, width] whole numbers: positions in `classes`, or -1 for a pixel with none.
    tasks : [N] the task of each image.
    classes : the names of the classes.
    heads : the classes of each head, at least two; those in no head are left out. By default there
        is one head with all of them.
    holds : the heads of each task; by default every task works on all.

    The others are those of `tacit.data.from_arrays`.
    """
    rule = SplitRule(validation, test, split_seed, min_rows)
    groups = {"all": list(classes)} if heads is None else {k: list(v) for k, v in heads.items()}
    table = _positions(list(classes), groups)
    names = task_array(tasks)
    images, columns = pixels(x)
    found = _masks(masks, len(classes))
    if images.ndim != 4 or (len(images), *images.shape[2:]) != found.shape:
        raise TacitError(
            f"x has shape {images.shape} and masks has shape {found.shape}, expected [rows, "
            "channels, height, width] and [rows, height, width]"
        )
    if len(names) != len(images):
        raise TacitError(
            f"there are {len(images)} images, but tasks has {len(names)}: give one each"
        )
    # Head after head, so that the table is looked up into its place without a second copy.
    y = np.empty((len(found), len(groups), *found.shape[1:]), dtype=np.int8)
    for k, own in enumerate(table):
        y[:, k] = own[found]
    labels = tuple(name for group in groups.values() for name in group)
    target = Target("segmentation", y, len(labels), labels)
    about = About(source=source, features=columns)
    made = assemble(images, target, names, about, rule=rule, scale=scale)
    given = dict.fromkeys(made.names, tuple(groups)) if holds is None else holds
    held = Heads(
        tuple(groups), tuple(map(len, groups.values())), holding(list(groups), made.names, given)
    )
    return replace(
        made,
        train=_forget(made.train, held),
        validation=_forget(made.validation, held),
        test=_forget(made.test, held),
        heads=held,
    )


def _forget(rows: Rows, heads: Heads) -> Rows:
    """Without the pixels of heads that a task does not hold."""
    mine = heads.holds.repeat_interleave(rows.counts, dim=0)
    return replace(rows, y=rows.y.masked_fill(~mine[:, :, None, None], MISSING))


def _positions(classes: list[str], groups: Mapping[str, Sequence[str]]) -> np.ndarray:
    """The position of each class in each head, int8 [heads, classes + 1].

    The last entry stands for pixels without a class.
    """
    number = {name: k for k, name in enumerate(classes)}
    if len(number) < len(classes):
        twice = next(name for k, name in enumerate(classes) if name in classes[:k])
        raise TacitError(f"two classes are named {twice!r}; name each once")
    table = np.full((len(groups), len(classes) + 1), MISSING, dtype=np.int8)
    for k, (head, group) in enumerate(groups.items()):
        unknown = next((name for name in group if name not in number), None)
        if unknown is not None:
            raise TacitError(
                f"head {head!r} names the class {unknown!r}, but classes are named like "
                f"{', '.join(classes[:5])}"
            )
        if len(set(group)) != len(group) or not 2 <= len(group) <= 127:
            raise TacitError(
                f"head {head!r} has the classes {', '.join(group) or '(none)'}: give it two or "
                "more, each once"
            )
        table[k, [number[name] for name in group]] = np.arange(len(group))
    if not groups:
        raise TacitError("heads is empty: give at least one head, or leave it out")
    labels = [name for group in groups.values() for name in group]
    if len(set(labels)) < len(labels):
        twice = next(name for k, name in enumerate(labels) if name in labels[:k])
        raise TacitError(f"class {twice!r} is in two heads; leave it in one")
    return table


def _masks(masks: Any, classes: int) -> np.ndarray:
    found = masks.detach().cpu().numpy() if isinstance(masks, torch.Tensor) else np.asarray(masks)
    if found.ndim != 3 or found.dtype.kind not in "iu":
        raise TacitError(
            f"masks holds {found.dtype.name} of shape {found.shape}, expected whole numbers "
            "[rows, height, width]"
        )
    wrong = (found < MISSING) | (found >= classes) if found.dtype.kind == "i" else found >= classes
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=(1, 2))))
        value = int(found[row][wrong[row]][0])
        raise TacitError(
            f"row {row + 1} of masks has the class {value}, expected 0 to {classes - 1}, or -1 "
            "for none"
        )
    return found
