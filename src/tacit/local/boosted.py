"""Boosted trees of many tasks at once, each fitted to its own task's rows.

Jerome Friedman. "Greedy function approximation: a gradient boosting machine." Annals of Statistics,
2001. Small trees follow one another: each is fitted to what those before it left over (squared
errors; for classes of their indicators), and only a part of what it says counts. Columns are sorted
into bins once; then a level of all tasks' trees is a sum over rows and columns. What comes of it is
read like a forest (`local.trees`): leaves hold what makes the mean over a task's trees the number
that boosting adds up to.

Nothing is drawn but which columns a tree sees, from the task's own key; tasks see nothing of each
other.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tacit.local.threads import side_by_side
from tacit.local.trees import TREES_EACH, Forests, Grown, no_forests, spans, uniform
from tacit.randomness import scramble

DEPTH, NODES = 3, 2**4 - 1
STEP = 0.1
"""How much of what a tree says counts."""
BINS = 32
FEWEST_IN_LEAF, CALM = 5, 1.0
"""Rows of a leaf; and so many rows of which nothing is left over are added to each."""
ALIKE = 1e-9
"""A node is divided where that explains more, by more than rounding."""
SEEN, MOST_SEEN = 0.6, 24
"""Share of the columns that a tree sees, and at most so many of them."""


def boost(
    x: Tensor, y: Tensor, offsets: Tensor, keys: Tensor, *, fold: Tensor | None = None
) -> Grown:
    """Trees for each task; task i owns rows `offsets[i]:offsets[i + 1]`; `y` is [rows, outputs].

    With the `fold` of every row, `unseen` is what trees say that were fitted without it.
    """
    forests = _boost(x, y, offsets, keys)
    if fold is None:
        return Grown(forests, y[:0])
    task = torch.repeat_interleave(torch.arange(len(keys)).to(offsets), offsets.diff())
    unseen = torch.zeros_like(y)
    for number in fold.unique():
        held = fold == number
        kept = torch.bincount(task[~held], minlength=len(keys)).cumsum(0)
        without = torch.cat([kept.new_zeros(1), kept])
        unseen[held] = _boost(x[~held], y[~held], without, keys)(x[held], task[held]).to(y)
    return Grown(forests, unseen)


def _boost(x: Tensor, y: Tensor, offsets: Tensor, keys: Tensor) -> Forests:
    device, outputs = x.device, y.shape[1]
    x, y, offsets, keys = (side.cpu() for side in (x, y, offsets, keys))

    def work(span: tuple[int, int, int, int]) -> Forests:
        i, j, a, b = span
        return _Boosting(
            x[a:b].numpy(), y[a:b].numpy(), offsets[i : j + 1] - a, keys[i:j]
        ).forests()

    made = list(side_by_side(work, spans(offsets, TREES_EACH), torch.get_num_threads()))
    return (Forests.joined(made) if made else no_forests(TREES_EACH, outputs)).to(device)


class _Boosting:
    """Some tasks, whose trees are fitted one after another, a level of all at a time."""

    def __init__(self, x: np.ndarray, y: np.ndarray, offsets: Tensor, keys: Tensor) -> None:
        begins, self.keys = offsets.numpy(), keys
        self.counts, self.columns = np.diff(begins), x.shape[1]
        self.tasks, self.rows = len(self.counts), np.arange(len(x))
        self.task = np.repeat(np.arange(self.tasks), self.counts)
        self.code, self.cuts = _binned(x, begins, self.task)
        y = y.astype(np.float64)
        self.start = np.add.reduceat(y, begins[:-1], axis=0) / self.counts[:, None]
        self.left = y - self.start[self.task]
        self.seen = min(MOST_SEEN, max(1, round(SEEN * self.columns)))

    def forests(self) -> Forests:
        shape = self.tasks, TREES_EACH, NODES
        self.column, self.cut = np.full(shape, -1), np.zeros(shape, dtype=self.cuts.dtype)
        self.value = np.zeros((*shape, self.left.shape[1]))
        for tree in range(TREES_EACH):
            self._add(tree)
        self.value = self.start[:, None, None] + TREES_EACH * STEP * self.value
        first = NODES * np.arange(self.tasks * TREES_EACH)
        below = first[:, None] + 2 * np.arange(NODES) + 1
        child = np.where(self.column.reshape(-1, NODES) >= 0, below, 0)
        sides = first, self.column.ravel(), self.cut.ravel(), child.ravel()
        roots, column, cut, child = map(torch.from_numpy, sides)
        value = torch.from_numpy(self.value.reshape(-1, self.value.shape[-1])).float()
        return Forests(TREES_EACH, roots, column, cut, child, value)

    def _add(self, tree: int) -> None:
        """One more tree for each task. Rows of a node that is not divided all go to one child."""
        drawn = scramble(scramble(self.keys, tree).unsqueeze(1), torch.arange(self.columns))
        columns = uniform(drawn).numpy().argsort(axis=1)[:, : self.seen]
        place = self.code[self.rows[:, None], columns[self.task]] + BINS * np.arange(self.seen)
        node = np.zeros(len(self.rows), dtype=np.int64)  # within its level
        for level in range(DEPTH + 1):
            here, nodes = self.task * 2**level + node, self.tasks * 2**level
            at = slice(2**level - 1, 2 ** (level + 1) - 1)
            size, sums = np.bincount(here, minlength=nodes), self._sums(here, nodes)
            mean = sums / (size + CALM)
            self.value[:, tree, at] = mean.T.reshape(self.tasks, -1, len(sums))
            if level == DEPTH:
                break
            best, found = self._best(here, place, size, sums)
            column = np.take_along_axis(columns, (best // BINS).reshape(self.tasks, -1), axis=1)
            edge = best % BINS
            own = np.arange(self.tasks)[:, None]
            self.column[:, tree, at] = np.where(found.reshape(column.shape), column, -1)
            self.cut[:, tree, at] = self.cuts[own, column, edge.reshape(column.shape)]
            code = self.code[self.rows, column.ravel()[here]]
            node = 2 * node + (found[here] & (code > edge[here]))
        self.left -= STEP * mean.T[here]

    def _sums(self, index: np.ndarray, size: int) -> np.ndarray:
        """[outputs, size] sums of what is left over; `index` is [rows] or [rows, several]."""
        wide = index[0].size if len(index) else 1
        sides = (np.repeat(left, wide) for left in self.left.T)
        return np.stack([np.bincount(index.ravel(), side, size) for side in sides])

    def _best(
        self, here: np.ndarray, place: np.ndarray, size: np.ndarray, sums: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where each node is best divided (BINS · column + bin), and whether it should be."""
        nodes, wide = len(size), self.seen * BINS
        index, shape = place + wide * here[:, None], (-1, nodes, self.seen, BINS)
        below = np.bincount(index.ravel(), minlength=nodes * wide).reshape(shape[1:]).cumsum(axis=2)
        above = size[:, None, None] - below
        part = self._sums(index, nodes * wide).reshape(shape).cumsum(axis=3)
        rest = sums[:, :, None, None] - part
        gain = (part**2).sum(axis=0) / (below + CALM) + (rest**2).sum(axis=0) / (above + CALM)
        gain[(below < FEWEST_IN_LEAF) | (above < FEWEST_IN_LEAF)] = -np.inf
        gain = gain.reshape(nodes, wide)
        best = gain.argmax(axis=1)
        undivided = (sums**2).sum(axis=0) / (size + CALM)
        return best, gain[np.arange(nodes), best] > undivided * (1 + ALIKE)


def _binned(x: np.ndarray, begins: np.ndarray, task: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bin of every number among its task's, about equally many in each, and the number that
    divides a bin from the next [tasks, columns, bins]. Equal numbers share a bin."""
    tasks, columns = len(begins) - 1, x.shape[1]
    code = np.empty(x.shape, dtype=np.int64)
    cuts = np.empty((tasks, columns, BINS), dtype=x.dtype)
    for column, values in enumerate(x.T):
        order = np.lexsort((values, task))
        ranked = values[order]
        new = np.ones(len(ranked), dtype=bool)
        new[1:] = (ranked[1:] != ranked[:-1]) | (task[1:] != task[:-1])
        rank = np.flatnonzero(new)[np.cumsum(new) - 1] - begins[task]
        bins = rank * BINS // np.diff(begins)[task]
        code[order, column] = bins
        highest, lowest = (np.full((tasks, BINS + 1), end) for end in (-np.inf, np.inf))
        np.maximum.at(highest, (task, bins), ranked)
        np.minimum.at(lowest, (task, bins), ranked)
        low = np.maximum.accumulate(highest[:, :-1], axis=1)
        high = np.minimum.accumulate(lowest[:, ::-1], axis=1)[:, ::-1][:, 1:]
        middle = np.where(np.isinf(high), low, (low + high) / 2).astype(x.dtype)
        cuts[:, column] = np.where(middle < high, middle, low)
    return code, cuts
