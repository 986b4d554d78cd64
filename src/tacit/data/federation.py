"""A federation: all tasks with their training, validation and test rows.

Rows of all tasks lie one after another in flat tensors; `offsets` says where each task begins.
Nothing is padded in memory, so a million small tasks cost what their rows cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.data.heads import Heads, holding
from tacit.data.relation import Relation, clusters, graph
from tacit.data.representation import represent
from tacit.errors import TacitError
from tacit.randomness import name_keys
from tacit.shown import as_html

if TYPE_CHECKING:  # data/ imports this module, so the names are for type checkers only
    from tacit.data.persons import Unscaled
    from tacit.data.preprocess import Preprocessing
    from tacit.data.public import PublicRows
    from tacit.data.schema import Schema
    from tacit.formula.design import FormulaSchema

Kind = Literal[
    "regression", "count", "binary", "multiclass", "multilabel", "segmentation", "survival"
]
NUMBERS: tuple[Kind, ...] = ("regression", "count")
"""Kinds whose targets are numbers, not classes."""
ONE_OUTPUT: tuple[Kind, ...] = (*NUMBERS, "binary")
"""Kinds whose models say one number for each row."""
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Rows:
    """Task k owns rows `offsets[k]:offsets[k + 1]` of `x` and `y`.

    `y` is float [N] for regression, count and binary (0/1), int64 [N] for multiclass, float
    [N, labels] (0/1, NaN where missing) for multilabel, int8 [N, heads, height, width] (-1 where
    missing) for segmentation, float [N, intervals] for survival (`data.survival` says of what).
    """

    x: Tensor
    y: Tensor
    offsets: Tensor
    persons: Tensor | None = None
    """int64 [N]: hashed from who the person of a row is, and from nothing else; None where nobody
    said whose rows they are."""

    @property
    def counts(self) -> Tensor:
        return self.offsets[1:] - self.offsets[:-1]

    def count(self, tasks: Tensor) -> Tensor:
        """Rows of these tasks, without looking at the others."""
        return self.offsets[tasks + 1] - self.offsets[tasks]

    def of(self, task: int) -> tuple[Tensor, Tensor]:
        """The rows of one task."""
        span = slice(int(self.offsets[task]), int(self.offsets[task + 1]))
        return self.x[span], self.y[span]

    def where(self, keep: Tensor) -> Rows:
        """Some of the rows; every task stays, perhaps without any."""
        before = torch.cat([keep.new_zeros(1, dtype=torch.int64), keep.long().cumsum(0)])
        persons = None if self.persons is None else self.persons[keep]
        return Rows(self.x[keep], self.y[keep], before[self.offsets], persons)

    def joined(self, other: Rows) -> Rows:
        """Each task's rows of both, side by side."""
        counts, more = self.counts, other.counts
        rank = torch.arange(len(counts), device=counts.device)
        order = torch.argsort(
            torch.cat([rank.repeat_interleave(counts), rank.repeat_interleave(more)]), stable=True
        )
        x, y = torch.cat([self.x, other.x])[order], torch.cat([self.y, other.y])[order]
        persons = None
        if self.persons is not None and other.persons is not None:
            persons = torch.cat([self.persons, other.persons])[order]
        return Rows(x, y, self.offsets + other.offsets, persons)

    def to(self, device: torch.device | str) -> Rows:
        persons = None if self.persons is None else self.persons.to(device)
        return Rows(self.x.to(device), self.y.to(device), self.offsets.to(device), persons)


@dataclass(frozen=True)
class TargetScale:
    """What each task did to its own regression target: `y = shift + scale * (what we train on)`."""

    shift: Tensor
    scale: Tensor


@dataclass(frozen=True)
class OwnUnits:
    """How each task scaled its own columns, where common units may take their place.

    `columns` are the scaled ones, a public list. Centres and spreads are [m, columns], and the last
    of them is the target where that was scaled too. A spread is zero for a constant column, and NaN
    where the task has no value at all.
    """

    columns: tuple[int, ...]
    centre: Tensor
    spread: Tensor

    def __len__(self) -> int:
        return self.centre.shape[1]

    def to(self, device: torch.device | str) -> OwnUnits:
        return OwnUnits(self.columns, self.centre.to(device), self.spread.to(device))


@dataclass(frozen=True)
class Federation:
    """All tasks; `names[k]` is the task whose rows are the k-th of every part."""

    names: Sequence[str]
    kind: Kind
    """What is to be predicted: numbers, counts, classes and so on."""
    outputs: int
    """Numbers that a model puts out for a row."""
    train: Rows
    """Rows to learn from."""
    validation: Rows
    """Rows that each task chooses its own model by."""
    test: Rows
    """Rows that scores are computed on."""
    features: tuple[str, ...] = ()
    """Names of the columns; empty for images and the like."""
    labels: tuple[str, ...] = ()
    """Names of classes or labels, in the order of their numbers."""
    target_scale: TargetScale | None = None
    """How a target that is a number was scaled, for the way back."""
    assumptions: tuple[str, ...] = ()
    """What is taken to be public, in words (shown with the guarantee)."""
    leaks: tuple[str, ...] = ()
    """What was computed over several tasks without noise; any entry voids the guarantee."""
    source: str = "arrays in memory"
    """What the data are called in reports."""
    preprocessing: Preprocessing | None = None
    """What turns raw feature rows of a task into the rows its model sees; needed to predict."""
    schema: Schema | FormulaSchema | None = None
    """How a table becomes raw feature rows; None where the data never was a table."""
    units: OwnUnits | None = None
    """Given where nobody said how to scale: methods that need common units then choose them."""
    unscaled: Unscaled | None = None
    """Where persons are protected: columns in units of the table, until a run finds better ones."""
    without_unit: tuple[int, ...] = ()
    """Columns for which no common unit was found, as everybody knows; -1 is the target."""
    own_columns: tuple[int, ...] = ()
    """Columns that tasks scaled by constants of their own, as everybody knows; -1 is the target. It
    is never read off these constants: where they happen to be alike, that is a fact about rows."""

    naming: tuple[str, ...] = ()
    """Columns with another whole number in every row: they may only name rows. For who typed in the
    table alone; it is a fact about the rows of all tasks."""
    representation: str | None = None
    """The fixed public representation that rows are seen through, if any."""
    relation: Relation | None = None
    """How tasks are publicly related; only related methods read it."""
    heads: Heads | None = None
    """Which of several kinds of prediction each task works on; None where all do the same."""
    public: PublicRows | None = None
    """Rows of nobody's task, which anybody may see; what is fitted on them costs nothing."""

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def keys(self) -> Tensor:
        """A number for each task, from its name alone: all that a task draws derives from it."""
        return torch.from_numpy(name_keys(self.names)).to(self.train.offsets.device)

    @property
    def own_scaling(self) -> bool:
        """Whether tasks scaled rows, filled gaps or scaled targets by constants of their own."""
        made, target = self.preprocessing, self.target_scale
        if self.own_columns or (made is not None and made.fill is not None):
            return True
        sides = () if made is None else (made.shift, made.scale)
        sides += () if target is None else (target.shift, target.scale)
        return any(bool((side != side[:1]).any()) for side in sides)

    def clustered(self, groups: Mapping[str, object] | Sequence[object]) -> Federation:
        """The same tasks in public clusters: the cluster of each task, by name or in order."""
        if isinstance(groups, Mapping):
            absent = next((name for name in self.names if name not in groups), None)
            if absent is not None:
                raise TacitError(f"task {absent!r} has no cluster: give one for every task")
            groups = [groups[name] for name in self.names]
        if len(groups) != len(self):
            raise TacitError(
                f"there are {len(groups)} clusters for {len(self)} tasks: give one each"
            )
        return self._with(clusters(groups))

    def related(self, omega: object) -> Federation:
        """The same tasks with a public relationship matrix Ω (`data.relation` says which work)."""
        made = graph(np.asarray(omega))
        if len(made.loadings) != len(self):
            raise TacitError(f"Ω is for {len(made.loadings)} tasks, but there are {len(self)}")
        return self._with(made)

    def with_heads(
        self,
        groups: Mapping[str, Sequence[str]] | None = None,
        holds: Mapping[str, Sequence[str]] | None = None,
    ) -> Federation:
        """The same rows, but each task predicts only some of the labels.

        `groups` gives each head the labels it predicts (by default every label is a head), `holds`
        each task the heads it works on (by default those that it has training labels for). Labels
        in no group are left out; those of heads that a task does not hold are forgotten.
        """
        if self.kind != "multilabel" or self.heads is not None:
            raise TacitError("heads are groups of the labels of a multilabel federation: load one")
        groups = {label: [label] for label in self.labels} if groups is None else groups
        number = {label: k for k, label in enumerate(self.labels)}
        unknown = next((n for group in groups.values() for n in group if n not in number), None)
        if unknown is not None or not all(groups.values()):
            raise TacitError(
                f"there is no label {unknown!r}; labels are named like {', '.join(self.labels[:5])}"
                if unknown is not None
                else "a head without labels has nothing to predict: leave it out"
            )
        order = [number[label] for group in groups.values() for label in group]
        heads = Heads(
            tuple(groups),
            tuple(map(len, groups.values())),
            holding(tuple(groups), self.names, self._labelled(groups) if holds is None else holds),
        )
        seen = heads.holds.repeat_interleave(torch.tensor(heads.outputs), dim=1)
        parts = {}
        for name in PARTS:
            rows = self.part(name)
            mine = seen.repeat_interleave(rows.counts, dim=0)
            y = torch.where(mine, rows.y[:, order], torch.nan)
            parts[name] = replace(rows, y=y)
        labels, public = tuple(self.labels[k] for k in order), self.public
        if public is not None:
            rows = public.rows
            public = replace(public, rows=replace(rows, y=rows.y[:, order]))
        return replace(
            self, **parts, heads=heads, labels=labels, outputs=len(labels), public=public
        )

    def _labelled(self, groups: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """The heads that each task has any training label for."""
        task = torch.arange(len(self)).repeat_interleave(self.train.counts)
        seen = torch.zeros(len(self), len(self.labels), dtype=torch.bool)
        rows, columns = (~self.train.y.isnan()).nonzero(as_tuple=True)
        seen[task[rows], columns] = True
        known = [dict(zip(self.labels, row, strict=True)) for row in seen.tolist()]
        return {
            name: [head for head, labels in groups.items() if any(had[n] for n in labels)]
            for name, had in zip(self.names, known, strict=True)
        }

    def through(self, name: str) -> Federation:
        """The same rows seen through a fixed public representation (`data.representation`)."""
        if self.representation is not None:
            raise TacitError(f"these rows already are seen through {self.representation!r}")
        seen = {
            part: replace(self.part(part), x=represent(name, self.part(part).x)) for part in PARTS
        }
        said = f"rows are seen through a fixed representation ({name}), chosen without the data"
        features = self.features if seen["train"].x.shape == self.train.x.shape else ()
        assumptions, public = (*self.assumptions, said), self.public
        if public is not None:
            rows = public.rows
            public = replace(public, rows=replace(rows, x=represent(name, rows.x)))
        made = replace(self, **seen, representation=name, features=features, public=public)
        return replace(made, assumptions=assumptions)

    def _with(self, relation: Relation) -> Federation:
        said = f"how tasks are related is taken to be public ({relation.name})"
        return replace(self, relation=relation, assumptions=(*self.assumptions, said))

    def facts(self) -> dict[str, Any]:
        """What is said of it beside results; rows are counted over all tasks, without noise."""
        counts = self.train.counts
        return {
            "source": self.source,
            "tasks": len(self),
            "kind": self.kind,
            "features": list(self.features),
            "labels": list(self.labels),
            "heads": None if self.heads is None else self.heads.to_json(),
            "rows": {part: len(self.part(part).y) for part in PARTS},
            "smallest": int(counts.min()),
            "largest": int(counts.max()),
        }

    def _repr_html_(self) -> str:
        said = {"assumptions": self.assumptions, "leaks": self.leaks}
        return as_html("federation", self.facts() | said)

    def __repr__(self) -> str:
        # How many rows there are is computed over all tasks, and would stand here without a label.
        return f"Federation({len(self)} tasks, {self.kind}, from {self.source})"

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])

    @property
    def words(self) -> int | None:
        """The size of the vocabulary (`features`) where rows are lists of word ids, else None.

        A row of ids has another length than the vocabulary: `tacit.data.words` sees to it.
        """
        ids = len(self.input_shape) == 1 and len(self.features) != self.input_shape[0]
        return len(self.features) if self.features and ids else None

    def part(self, name: Part) -> Rows:
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]

    def index(self, name: str) -> int:
        """The position of a task, or an error that shows names that exist."""
        for position, known in enumerate(self.names):
            if known == name:
                return position
        some = ", ".join(map(str, self.names[:5]))
        raise TacitError(f"there is no task {name!r}; tasks are named like {some}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def without_validation(self) -> Federation:
        """The same with validation rows among those that tasks learn from."""
        none = torch.zeros(len(self.validation.y), dtype=torch.bool, device=self.train.y.device)
        return replace(
            self,
            train=self.train.joined(self.validation),
            validation=self.validation.where(none),
        )

    def to(self, device: torch.device | str) -> Federation:
        moved = {name: self.part(name).to(device) for name in PARTS}
        heads = None if self.heads is None else self.heads.to(device)
        units = None if self.units is None else self.units.to(device)
        return replace(self, **moved, heads=heads, units=units)
