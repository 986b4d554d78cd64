"""Randomised trees of many tasks at once, each grown on its own task's rows.

Pierre Geurts, Damien Ernst, Louis Wehenkel. "Extremely randomized trees." Machine Learning, 2006.

A node tries a few columns, each with a cut drawn between its smallest and largest value, and keeps
the one that lowers the squared error most (for classes: of their indicators, which is Gini's
index). All trees of all tasks grow together, level by level: scikit-learn spends about a
millisecond on a tree however few rows it has, and thousands of small tasks have very many trees.

What a task draws derives from its own key alone, so its trees do not depend on the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tacit.local.threads import side_by_side
from tacit.randomness import scramble

NODES = ("column", "cut", "child", "value")
TREES_EACH = 64
"""Trees of a task."""
IN_BAG = 0.7
"""Share of a task's rows that a tree is grown on; the others are judged without it."""
FEWEST_TO_SPLIT, DEEPEST = 2, 30
FEWEST_TRIES, TRIED, MOST_TRIES, MORE_TRIES = 3, 0.4, 12, 4
"""Cuts that a node tries: one for so many of the columns, but at least and at most so many; and so
many times as many where no column differed."""
ALIKE = 1e-10
"""A node whose values differ by less, over their squares, is not divided."""
PAIRS_AT_ONCE = 400_000
"""Rows times trees in work together."""


@dataclass(frozen=True)
class Forests:
    """Trees of several tasks: task i has the trees `i · trees` to `(i + 1) · trees`.

    A node holds its column (−1: a leaf), its cut, the places of its children and its value; `roots`
    are the places of each tree's first node.
    """

    trees: int
    roots: Tensor
    column: Tensor
    cut: Tensor
    child: Tensor
    """Of the rows at most at the cut; the other child is the next node."""
    value: Tensor

    def __len__(self) -> int:
        return len(self.roots) // max(self.trees, 1)

    @property
    def depth(self) -> int:
        """Steps from a root to the furthest leaf."""
        steps, node = 0, self.roots
        while len(node := node[self.column[node] >= 0]):
            steps, node = steps + 1, torch.cat([self.child[node], self.child[node] + 1])
        return steps

    def each(self, x: Tensor, task: Tensor, steps: int | None = None) -> Tensor:
        """What every tree of a row's own task says about it: [rows, trees, outputs].

        Rows go down until all are at a leaf or, if given, for so many `steps`, whatever they hold.
        """
        offset = torch.arange(self.trees, device=x.device)
        node = self.roots[task.unsqueeze(1) * self.trees + offset]
        if steps is None:
            row = torch.arange(len(x), device=x.device).repeat_interleave(self.trees)
            return self.value[self._leaves(node.flatten(), x, row)].unflatten(0, node.shape)
        for _ in range(steps):
            seen = x.gather(1, self.column[node].clamp(min=0))
            below = self.child[node] + (seen > self.cut[node]).long()
            node = torch.where(self.column[node] >= 0, below, node)
        return self.value[node]

    def left_out(self, x: Tensor, task: Tensor, inside: Tensor) -> Tensor:
        """The mean over the trees that had a row not `inside` [rows, trees]: [rows, outputs].

        A row that no tree left out is told zero.
        """
        row, tree = (~inside).nonzero(as_tuple=True)
        said = self.value[self._leaves(self.roots[task[row] * self.trees + tree], x, row)]
        sums = said.new_zeros(len(x), said.shape[1]).index_add_(0, row, said)
        return sums / (~inside).sum(dim=1, keepdim=True).clamp(min=1)

    def _leaves(self, node: Tensor, x: Tensor, row: Tensor) -> Tensor:
        """The leaves below these nodes, each for its row of x. Who is at a leaf goes no further:
        most are long before the last."""
        found, place, flat = node.clone(), torch.arange(len(node), device=x.device), x.flatten()
        first = row * x.shape[1]
        while len(node):
            column = self.column[node]
            inner = (column >= 0).nonzero().squeeze(1)
            if len(inner) < len(node):
                found[place] = node
                node, column, place, first = (side[inner] for side in (node, column, place, first))
            node = self.child[node] + (flat[first + column] > self.cut[node])
        return found

    def __call__(self, x: Tensor, task: Tensor) -> Tensor:
        """The mean over each task's trees: [rows, outputs]; `task` is the place of each row's."""
        step = max(1, PAIRS_AT_ONCE // max(self.trees, 1))
        chunks = zip(x.split(step), task.split(step), strict=True)
        parts = [self.each(some, of).mean(dim=1) for some, of in chunks]
        return torch.cat(parts) if parts else self.value[:0]

    def to(self, device: torch.device | str) -> Forests:
        moved = {name: getattr(self, name).to(device) for name in (*NODES, "roots")}
        return replace(self, **moved)

    def of(self, tasks: Tensor) -> Forests:
        """Those of some tasks, without the nodes of the others."""
        tasks = tasks.to(self.roots.device)  # trees grow on the CPU
        offset = torch.arange(self.trees, device=tasks.device)
        wanted = (tasks.unsqueeze(1) * self.trees + offset).flatten()
        ends = torch.cat([self.roots[1:], self.roots.new_tensor([len(self.column)])])
        sizes = (ends[: len(self.roots)] - self.roots)[wanted]
        begin = sizes.cumsum(0) - sizes
        shift = torch.repeat_interleave(begin - self.roots[wanted], sizes)
        place = torch.arange(int(sizes.sum()), device=tasks.device) - shift
        return Forests(
            self.trees,
            begin,
            self.column[place],
            self.cut[place],
            self.child[place] + shift,
            self.value[place],
        )

    def to_tensors(self) -> dict[str, Tensor]:
        """For a file of safetensors."""
        return {name: getattr(self, name) for name in NODES} | {"roots": self.roots}

    @staticmethod
    def from_tensors(found: dict[str, Tensor], columns: int) -> Forests:
        """Back from a file; ValueError where a tree could not be walked down to a leaf."""
        roots, nodes = found["roots"], len(found["column"])
        column, child = found["column"], found["child"]
        inner = column >= 0
        place = torch.arange(nodes)
        sound = all(len(found[name]) == nodes for name in NODES)
        sound = sound and bool((column < columns).all()) and bool((roots < nodes).all())
        sound = sound and bool((roots >= 0).all()) and found["value"].ndim == 2
        if not sound or bool((inner & ((child <= place) | (child + 1 >= nodes))).any()):
            raise ValueError("the nodes of a tree do not fit together")
        if len(roots) % TREES_EACH:
            raise ValueError("a task has another number of trees than the others")
        return Forests(TREES_EACH, roots, column, found["cut"], child, found["value"])

    @staticmethod
    def joined(some: list[Forests]) -> Forests:
        """The tasks of all, one after another."""
        sizes = torch.tensor([0, *(len(one.column) for one in some)]).cumsum(0).tolist()
        moved = [(one.roots + at, one.child + at) for one, at in zip(some, sizes, strict=False)]
        return Forests(
            some[0].trees,
            torch.cat([roots for roots, _ in moved]),
            torch.cat([one.column for one in some]),
            torch.cat([one.cut for one in some]),
            torch.cat([child for _, child in moved]),
            torch.cat([one.value for one in some]),
        )


@dataclass(frozen=True)
class Grown:
    """Forests, and what trees say of rows that they were not grown on [rows, outputs]."""

    forests: Forests
    unseen: Tensor


def grow(
    x: Tensor,
    y: Tensor,
    offsets: Tensor,
    keys: Tensor,
    *,
    bagged: bool,
    trees: int = TREES_EACH,
) -> Grown:
    """Trees for each task; task i owns rows `offsets[i]:offsets[i + 1]`.

    `y` is [rows, outputs]. With `bagged`, each tree leaves some of its task's rows out; `unseen` is
    the mean over the trees that left a row out; otherwise `unseen` is empty.
    """
    device = x.device
    x, y, offsets, keys = (side.cpu() for side in (x, y, offsets, keys))

    def work(span: tuple[int, int, int, int]) -> Grown:
        i, j, a, b = span
        return _grow(x[a:b], y[a:b], offsets[i : j + 1] - a, keys[i:j], trees, bagged)

    grown = list(side_by_side(work, spans(offsets, trees), torch.get_num_threads()))
    if not grown:
        return Grown(no_forests(trees, y.shape[1]).to(device), y[:0].to(device))
    forests = Forests.joined([one.forests for one in grown])
    return Grown(forests.to(device), torch.cat([one.unseen for one in grown]).to(device))


def no_forests(trees: int, outputs: int) -> Forests:
    none = torch.zeros(0, dtype=torch.int64)
    return Forests(trees, none, none, torch.zeros(0), none, torch.zeros(0, outputs))


def spans(offsets: Tensor, trees: int) -> Iterator[tuple[int, int, int, int]]:
    """Tasks that are grown together, and their rows."""
    starts, most = offsets.tolist(), max(1, PAIRS_AT_ONCE // trees)
    first = 0
    for k in range(1, len(starts)):
        if k == len(starts) - 1 or starts[k + 1] - starts[first] > most:
            yield first, k, starts[first], starts[k]
            first = k


def _grow(x: Tensor, y: Tensor, offsets: Tensor, keys: Tensor, trees: int, bagged: bool) -> Grown:
    tasks, rows, counts = len(offsets) - 1, len(x), offsets[1:] - offsets[:-1]
    task = torch.repeat_interleave(torch.arange(tasks), counts)
    number = torch.arange(trees)
    inside = torch.ones(rows, trees, dtype=torch.bool)
    if bagged:
        within = torch.arange(rows) - offsets[task]
        inside = uniform(scramble(keys[task].unsqueeze(1), within.unsqueeze(1), number)) < IN_BAG
    # Pairs of a row and a tree, sorted by tree.
    row, tree = (side.numpy() for side in inside.nonzero(as_tuple=True))
    tree = task.numpy()[row] * trees + tree
    order = np.argsort(tree, kind="stable")
    pairs = _Pairs(row[order], tree[order])
    own = scramble(keys.repeat_interleave(trees), number.repeat(tasks))
    forests = _all_levels(x.numpy(), y.double().numpy(), pairs, own, trees)
    if not bagged:
        return Grown(forests, forests.value[:0])
    unseen = forests.left_out(x, task, inside)
    # A row that no tree left out is told the mean of all: so unlikely that it does not matter.
    by_all = inside.all(dim=1)
    if bool(by_all.any()):
        unseen[by_all] = forests.each(x[by_all], task[by_all]).mean(dim=1)
    return Grown(forests, unseen)


@dataclass(frozen=True)
class _Pairs:
    """Rows of trees that are still to be divided, sorted by the node that they are in."""

    row: np.ndarray
    node: np.ndarray

    def sums(self, values: np.ndarray, starts: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, starts, axis=0)

    def parted(self, beyond: np.ndarray, nodes: int) -> _Pairs:
        """In the children 2i and 2i + 1 of their nodes i, sorted; otherwise they keep their order.

        Counting is all that it takes: they are sorted by node already.
        """
        below = 2 * self.node + beyond
        size = np.bincount(below, minlength=2 * nodes)
        sides = size.reshape(-1, 2)
        starts = (np.cumsum(size) - size).reshape(-1, 2) - (np.cumsum(sides, axis=0) - sides)
        rank = np.where(beyond, np.cumsum(beyond), np.cumsum(~beyond)) - 1  # on its side
        row = np.empty_like(self.row)
        row[starts.ravel()[below] + rank] = self.row
        return _Pairs(row, np.repeat(np.arange(2 * nodes), size))


@dataclass
class _Level:
    """The nodes that are equally far from their roots; those with column −1 are leaves."""

    tree: np.ndarray
    column: np.ndarray
    cut: np.ndarray
    child: np.ndarray
    value: np.ndarray


def _all_levels(x: np.ndarray, y: np.ndarray, pairs: _Pairs, keys: Tensor, trees: int) -> Forests:
    tree, levels, total = np.arange(len(keys)), [], 0
    while len(tree):
        nodes = len(tree)
        total += nodes
        size = np.bincount(pairs.node, minlength=nodes)
        # Every node has rows but roots of tasks whose rows were all left out.
        here = np.flatnonzero(size)
        starts = (np.cumsum(size) - size)[here]
        sums, squares = np.zeros((nodes, y.shape[1])), np.zeros(nodes)
        if len(here):
            mine = y[pairs.row]
            sums[here] = pairs.sums(mine, starts)
            squares[here] = pairs.sums((mine**2).sum(axis=1), starts)
        mean = sums / np.maximum(size, 1)[:, None]
        spread = squares - (mean * sums).sum(axis=1)
        column, cut = np.full(nodes, -1), np.zeros(nodes, dtype=x.dtype)
        open_ = (size >= FEWEST_TO_SPLIT) & (spread > ALIKE * squares) & (len(levels) < DEEPEST)
        if open_.any():
            number = np.cumsum(open_) - 1
            keep = open_[pairs.node]
            pairs = _Pairs(pairs.row[keep], number[pairs.node[keep]])
            column[open_], cut[open_] = _choose(x, y, pairs, keys[torch.from_numpy(open_)])
            pairs = _Pairs(pairs.row, np.flatnonzero(open_)[pairs.node])
        splits = column >= 0
        number = np.cumsum(splits) - 1
        child = np.where(splits, total + 2 * number, 0)
        levels.append(_Level(tree, column, cut, child, mean))
        keep = splits[pairs.node] if open_.any() else np.zeros(len(pairs.row), dtype=bool)
        row, node = pairs.row[keep], pairs.node[keep]
        beyond = x.ravel().take(row * x.shape[1] + column[node]) > cut[node]
        pairs = _Pairs(row, number[node]).parted(beyond, int(splits.sum()))
        tree = np.repeat(tree[splits], 2)
        both = torch.arange(2).repeat(int(splits.sum()))
        keys = scramble(keys[torch.from_numpy(splits)].repeat_interleave(2), both)
    return _in_order(levels, trees)


def _choose(
    x: np.ndarray, y: np.ndarray, pairs: _Pairs, keys: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """The best of a few random cuts of each node; column −1 where no column differed.

    Nodes without any go on by themselves, and take the first that they find.
    """
    tries = min(MOST_TRIES, max(FEWEST_TRIES, round(TRIED * x.shape[1])))
    best, cuts = _tried(x, y, pairs, keys, range(tries), best=True)
    left = best < 0
    if left.any():
        number, keep = np.cumsum(left) - 1, left[pairs.node]
        few = _Pairs(pairs.row[keep], number[pairs.node[keep]])
        more = range(tries, MORE_TRIES * tries)
        found = _tried(x, y, few, keys[torch.from_numpy(left)], more, best=False)
        best[left], cuts[left] = found
    return best, cuts


def _tried(
    x: np.ndarray, y: np.ndarray, pairs: _Pairs, keys: Tensor, tries: range, *, best: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The best of these cuts of each node, or the first that divides it."""
    nodes, columns = len(keys), x.shape[1]
    size = np.bincount(pairs.node, minlength=nodes)
    starts, mine, flat, begin = np.cumsum(size) - size, y[pairs.row], x.ravel(), pairs.row * columns
    sums = pairs.sums(mine, starts)
    chosen, gain = np.full(nodes, -1), np.full(nodes, -np.inf)
    cuts = np.zeros(nodes, dtype=x.dtype)
    # Strides without a common divisor with the number of columns: no column comes twice.
    strides = np.flatnonzero(np.gcd(np.arange(columns + 1), columns) == 1)
    first = _drawn(keys, -1, columns)
    stride = strides[_drawn(keys, -2, len(strides))]
    for number in tries:
        if not best and (chosen >= 0).all():
            break
        column = (first + number * stride) % columns
        seen = flat.take(begin + np.repeat(column, size))
        low, high = (side.reduceat(seen, starts) for side in (np.minimum, np.maximum))
        chance = uniform(scramble(keys, number)).numpy().astype(x.dtype)
        cut = low + chance * (high - low)
        cut = np.where(cut < high, cut, low)  # rounding must not leave a side empty
        left = (seen <= np.repeat(cut, size)).astype(np.float64)
        many = pairs.sums(left, starts)
        part = pairs.sums(mine * left[:, None], starts)
        rest, others = sums - part, size - many
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (part**2).sum(axis=1) / many + (rest**2).sum(axis=1) / others
        found = np.where((low < high) & (others > 0) & (many > 0), found, -np.inf)
        better = (found > gain) & (best or chosen < 0)
        chosen, cuts = np.where(better, column, chosen), np.where(better, cut, cuts)
        gain = np.where(better, found, gain)
    return chosen, cuts


def _in_order(levels: list[_Level], trees: int) -> Forests:
    """Nodes of a tree lie together, its root first; children stay side by side."""
    tree = np.concatenate([level.tree for level in levels])
    order = np.argsort(tree, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    child = np.concatenate([level.child for level in levels])
    column, cut, value = (
        torch.from_numpy(np.concatenate([getattr(level, name) for level in levels])[order])
        for name in ("column", "cut", "value")
    )
    child = torch.from_numpy(np.where(child > 0, place[child], 0)[order])
    roots = torch.from_numpy(place[: len(levels[0].tree)])
    return Forests(trees, roots, column, cut, child, value.float())


def _drawn(keys: Tensor, use: int, below: int) -> np.ndarray:
    return (uniform(scramble(keys, use)) * below).long().numpy()


def uniform(words: Tensor) -> Tensor:
    """Numbers in [0, 1) from hashed words."""
    return ((words >> 11) & ((1 << 53) - 1)).double() / 2.0**53
