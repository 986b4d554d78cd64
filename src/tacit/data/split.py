"""Rows to tasks, and each task's rows to training, validation and test.

A task's rows are shuffled by hashing (seed, the task's name, the number of the row within it). So
its parts depend on its own rows alone: another task may gain a row or move within the file, and no
other task notices.

Where persons are to be protected (`apart`), a person's part is hashed from the seed, the task's
name and who the person is, and from nothing else: the others keep their parts if one leaves. Shares
are then kept on average only.

No Python loop runs over tasks: a million tasks cost one sort of their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tacit.checks import check_whole
from tacit.errors import TacitError
from tacit.randomness import name_keys, scramble


@dataclass(frozen=True)
class SplitRule:
    """The share of each task's rows to hold back, and the seed of the shuffle."""

    validation: float = 0.2
    test: float = 0.2
    split_seed: int = 0
    min_rows: int = 0

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            share = getattr(self, name)
            if not isinstance(share, (int, float)) or not 0 <= share < 1:
                raise TacitError(f"{name} is {share!r}, expected a share of rows from 0 to below 1")
        if self.validation + self.test >= 1:
            raise TacitError(
                f"validation={self.validation} and test={self.test} leave no rows to train on; "
                "their sum must be below 1"
            )
        check_whole("split_seed", self.split_seed, 0)
        check_whole("min_rows", self.min_rows, 0)

    @property
    def needed(self) -> int:
        """The fewest rows a task can have: one for each part in use."""
        return 1 + (self.validation > 0) + (self.test > 0)


@dataclass(frozen=True)
class PartRows:
    """Rows of one part, task after task, in their original order; `task` is the task of each."""

    rows: np.ndarray
    task: np.ndarray
    offsets: np.ndarray


def group(tasks: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The task number of each row, and the task names, in order of first appearance."""
    if tasks.dtype.kind in "biufSU":
        values, first, inverse = np.unique(tasks, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        values = values[order]
        if values.dtype.kind == "f" and bool((values == np.floor(values)).all()):
            values = values.astype(np.int64)  # 3, not 3.0: whole numbers that met a gap in a table
        return rank[inverse], [str(value) for value in values.tolist()]
    known: dict[object, int] = {}
    try:
        codes = [known.setdefault(task, len(known)) for task in tasks.tolist()]
    except TypeError:
        raise TacitError(
            "a task name cannot be used as a key (is it a list?); name tasks by text or numbers"
        ) from None
    names = [str(task) for task in known]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise TacitError(
            f"two different tasks are both written {twice!r} (perhaps a number and a text); write "
            "task names all as text or all as numbers"
        )
    return np.array(codes, dtype=np.int64), names


def by_name(codes: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """The same tasks in the order of their names: no row decides it by coming first."""
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], [names[k] for k in order]


def leave_out_small(
    codes: np.ndarray, names: Sequence[str], rule: SplitRule, held: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Rows kept, their new task numbers, and the names of tasks kept.

    Rows `held` for testing by the publishers do not count: they cannot be trained on.
    """
    counts = np.bincount(codes if held is None else codes[~held], minlength=len(names))
    needed = rule.needed if held is None else 1 + (rule.validation > 0)
    keep = counts >= rule.min_rows
    small = np.flatnonzero(keep & (counts < needed))
    if len(names) > 1 and len(small):
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        shown = ", ".join(repr(names[k]) for k in small[:5])
        have, belong = ("has", "it") if len(small) == 1 else ("have", "them")
        raise TacitError(
            f"task{'s' if len(small) > 1 else ''} {shown}{more} {have} fewer than {needed} "
            f"rows, too few to split; pass min_rows={needed} (--min-rows {needed}) to "
            f"leave {belong} out"
        )
    left = int((~keep).sum())
    if int(keep.sum()) < 2:
        without = f" once {left} with fewer than {rule.min_rows} rows are left out" if left else ""
        raise TacitError(
            f"there is {'only one task' if keep.sum() else 'no task'}{without}, but learning from "
            "each other needs two or more; check the task column"
        )
    if not left:
        return np.arange(len(codes)), codes, list(names)
    number = np.cumsum(keep) - 1
    rows = np.flatnonzero(keep[codes])
    kept = [name for name, kept in zip(names, keep.tolist(), strict=True) if kept]
    return rows, number[codes[rows]], kept


def split(
    codes: np.ndarray, names: Sequence[str], rule: SplitRule, held: np.ndarray | None = None
) -> dict[str, PartRows]:
    """Each task's rows, shuffled, to the three parts; every part in use gets at least one.

    Row i belongs to the task `names[codes[i]]`. Where the publishers `held` rows for testing, those
    are the test part and only validation rows are drawn from the others.
    """
    tasks = len(names)
    in_order = np.argsort(codes, kind="stable")
    every = np.bincount(codes, minlength=tasks)
    number = np.empty(len(codes), dtype=np.int64)  # of each row within its task
    number[in_order] = np.arange(len(codes)) - np.repeat(np.cumsum(every) - every, every)
    free = np.arange(len(codes)) if held is None else np.flatnonzero(~held)
    counts = np.bincount(codes[free], minlength=tasks)
    test_share = rule.test if held is None else 0.0
    test = _share(counts, test_share, counts - 1 - (rule.validation > 0))
    validation = _share(counts, rule.validation, counts - 1 - test)

    part = np.full(len(codes), 2, dtype=np.int8)
    part[free] = 0
    away = test + validation
    if away.any():  # otherwise nothing is drawn
        own = torch.from_numpy(name_keys(names)[codes[free]])
        keys = scramble(int(rule.split_seed), own, torch.from_numpy(number[free])).numpy()
        shuffled = free[np.lexsort((keys, codes[free]))]
        starts = np.cumsum(counts) - counts
        sorted_codes = codes[shuffled]
        place = np.arange(len(free)) - starts[sorted_codes]
        part[shuffled] = (place < away[sorted_codes]).astype(np.int8) + (place < test[sorted_codes])
    return _parts(codes, tasks, part)


def apart(
    codes: np.ndarray, names: Sequence[str], rule: SplitRule, persons: np.ndarray
) -> dict[str, PartRows]:
    """Each person to one of the three parts; `persons` [N] are numbers hashed from who they are."""
    own = torch.from_numpy(name_keys(names)[codes])
    hashed = scramble(int(rule.split_seed), own, torch.from_numpy(persons)).numpy()
    place = (hashed >> 11 & (2**53 - 1)) * 2.0**-53
    part = (place < rule.test + rule.validation).astype(np.int8) + (place < rule.test)
    parts = _parts(codes, len(names), part)
    for name, share in (("train", 1.0), ("validation", rule.validation), ("test", rule.test)):
        none = np.flatnonzero(np.diff(parts[name].offsets) == 0)
        if share and len(none):
            raise TacitError(
                f"task {names[none[0]]!r} has nobody in its {name} part, because every person is "
                "dealt to a part by itself: pass another split_seed, or leave small tasks out "
                "(min_rows, --min-rows)"
            )
    return parts


def _parts(codes: np.ndarray, tasks: int, part: np.ndarray) -> dict[str, PartRows]:
    """Rows of the three parts, from the number of the part of each row."""
    in_order = np.argsort(codes, kind="stable")
    parts: dict[str, PartRows] = {}
    for number, name in enumerate(("train", "validation", "test")):
        rows = in_order[part[in_order] == number]
        offsets = np.zeros(tasks + 1, dtype=np.int64)
        np.cumsum(np.bincount(codes[rows], minlength=tasks), out=offsets[1:])
        parts[name] = PartRows(rows, codes[rows], offsets)
    return parts


def _share(counts: np.ndarray, share: float, most: np.ndarray) -> np.ndarray:
    if share == 0:
        return np.zeros_like(counts)
    return np.clip(np.floor(counts * share + 0.5).astype(np.int64), 1, most)
