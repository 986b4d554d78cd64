"""Scores of segmentations: pixels that are right, and how well areas overlap.

Outputs are [N, heads · classes, height, width], targets [N, heads, height, width] with -1 for
pixels that have no class. All heads have equally many classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Cells(NamedTuple):
    """Targets of rows that have several: [N, labels] counts of what is known and what is right."""

    known: np.ndarray
    right: np.ndarray
    lost: np.ndarray
    """Sum of the losses of a row."""

    def losses(self) -> np.ndarray:
        """Mean over the known targets of each row."""
        return self.lost / np.maximum(self.known.sum(axis=1), 1)


def cells(out: np.ndarray, y: np.ndarray) -> Cells:
    """Counts by row and class (the true one), and the sum of each row's cross entropies."""
    heads = y.shape[1]
    scores = _by_head(out, heads)
    wanted = np.maximum(y, 0).astype(np.int64)
    chosen = np.take_along_axis(scores, wanted[:, :, None], axis=2)[:, :, 0]
    known, hit = y >= 0, scores.argmax(axis=2) == y
    with np.errstate(invalid="ignore"):  # infinite outputs: right with certainty, or wrong with it
        most = scores.max(axis=2)
        each = most + np.log(np.exp(scores - most[:, :, None]).sum(axis=2)) - chosen
    each = np.where(np.isnan(each), np.where(hit, 0.0, np.inf), each)
    lost = np.where(known, each, 0.0).sum(axis=(1, 2, 3))
    row = np.arange(len(y))[:, None, None, None]
    return Cells(
        _counts(row, y, known, out.shape[1], len(y)),
        _counts(row, y, known & hit, out.shape[1], len(y)),
        lost,
    )


def miou(
    out: np.ndarray, y: np.ndarray, task: np.ndarray, tasks: int, broken: np.ndarray
) -> np.ndarray:
    """Of each task: intersection over union of every class that occurs, mean over those.

    Only pixels with a class count. Rows of a broken model overlap with nothing.
    """
    heads, outputs = y.shape[1], out.shape[1]
    said = _by_head(out, heads).argmax(axis=2)
    known, whose = y >= 0, task[:, None, None, None]
    fine = known & ~broken[:, None, None, None]
    both = _counts(whose, y, fine & (said == y), outputs, tasks)
    union = _counts(whose, y, known, outputs, tasks) + _counts(whose, said, fine, outputs, tasks)
    union = union - both
    with np.errstate(divide="ignore", invalid="ignore"):
        overlap = np.where(union > 0, both / union, 0.0)
        return overlap.sum(axis=1) / np.where((union > 0).any(axis=1), (union > 0).sum(axis=1), 0)


def _by_head(out: np.ndarray, heads: int) -> np.ndarray:
    return out.reshape(len(out), heads, out.shape[1] // heads, *out.shape[2:])


def _counts(
    group: np.ndarray, classes: np.ndarray, keep: np.ndarray, outputs: int, groups: int
) -> np.ndarray:
    """How often each class of each head occurs in each group, where `keep` says so."""
    heads = classes.shape[1]
    first = np.arange(heads)[None, :, None, None] * (outputs // heads)
    where = (group * outputs + first + classes.astype(np.int64))[keep]
    return np.bincount(where.ravel(), minlength=groups * outputs).reshape(groups, outputs)
