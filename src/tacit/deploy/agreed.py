"""The agreed table of a consortium: what its columns are, checked before anybody has rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tacit.checks import near
from tacit.data.cells import MISSING, number_text
from tacit.data.columns import GAP
from tacit.data.federation import NUMBERS
from tacit.data.heads import Heads, holding
from tacit.data.split import SplitRule
from tacit.errors import TacitError
from tacit.experiment.toml import Section

LARGEST = float(np.finfo(np.float32).max)
"""Rows are 32-bit numbers, in which larger ones would be infinite."""


class ColumnSection(Section):
    """One column that every silo's table has: a number, a flag or one of several categories."""

    range: tuple[float, float] | None = None
    flag: bool = False
    categories: list[str] | None = None
    gaps: bool = False


class AgreedTable(Section):
    """What every silo's table looks like, and what is predicted from it."""

    target: str | list[str]
    kind: Literal["regression", "count", "binary", "multiclass", "multilabel"]
    labels: list[str] | None = None
    range: tuple[float, float] | None = None
    validation: float = 0.2
    test: float = 0.2
    split_seed: int = 0
    columns: dict[str, ColumnSection]
    heads: dict[str, list[str]] | None = None

    @property
    def targets(self) -> list[str]:
        return [self.target] if isinstance(self.target, str) else self.target

    def agreed(self) -> dict[str, Any]:
        """The table in plain values; columns are a list, because their order matters."""
        columns = [{"name": name, **c.model_dump(mode="json")} for name, c in self.columns.items()]
        shares = {"validation": self.validation, "test": self.test, "split_seed": self.split_seed}
        span = None if self.range is None else list(self.range)
        return {"target": self.targets, "range": span, **shares, "columns": columns}


def check_columns(data: AgreedTable) -> None:
    """Refuse columns without a kind, and columns of two kinds at once."""
    SplitRule(data.validation, data.test, data.split_seed)
    if not data.columns:
        raise TacitError("no columns were agreed: name at least one in [data.columns]")
    for name, column in data.columns.items():
        where = f"column {name!r}"
        if name in data.targets:
            raise TacitError(f"{where} is a target, so it cannot be in [data.columns] too")
        given = (column.range is not None, column.flag, column.categories is not None)
        if sum(given) != 1:
            raise TacitError(
                f"{where} needs one of range = [low, high], flag = true and categories = [...], "
                f"but has {sum(given) or 'none'}"
            )
        if column.range is not None:
            _check_range(where, column.range)
        if column.categories is not None:
            _check_words(where, column.categories, 2 - column.gaps)
            if GAP in column.categories:
                raise TacitError(f"{where}: {GAP!r} means an empty cell; write gaps = true instead")


def _check_range(where: str, span: tuple[float, float]) -> None:
    if not (span[0] <= span[1] and max(map(abs, span)) <= LARGEST):
        raise TacitError(
            f"{where} has range {list(span)}: two finite numbers are needed, the lower one first"
        )


def _check_words(where: str, words: Sequence[str], needed: int) -> None:
    """Names that can stand in a cell: distinct, and the same when they are read."""
    if len(words) < needed or len(set(words)) < len(words):
        raise TacitError(f"{where} has {list(words)}: {needed} or more different ones are needed")
    odd = next((word for word in words if word in MISSING or word != word.strip()), None)
    if odd is not None:
        raise TacitError(
            f"{where} has {odd!r}, which no cell is read as: write it without blanks, or leave it "
            "out if it means an empty cell"
        )


def labels_of(data: AgreedTable) -> tuple[str, ...]:
    """The names of the outputs, once target, labels and range are what this kind needs."""
    kind, classes = data.kind, data.kind in ("binary", "multiclass")
    if (kind == "multilabel") != isinstance(data.target, list):
        needs = "a list of columns of 0 and 1" if kind == "multilabel" else "the name of one column"
        raise TacitError(f"data.target is {data.target!r}, but kind {kind!r} needs {needs}")
    for name, given, needed, how in (
        ("labels", data.labels, classes, '["0", "1"]'),
        ("range", data.range, kind in NUMBERS, "[0, 100]"),
    ):
        if (given is not None) != needed:
            remedy = f"add {name} = {how} to [data]" if needed else f"leave {name} out"
            raise TacitError(f"kind {kind!r} has {'' if needed else 'no '}{name}: {remedy}")
    if data.range is not None:
        _check_range("the target", data.range)
    if kind == "multilabel":
        _check_words("data.target", data.targets, 1)
        return tuple(data.targets)
    labels = data.labels or []
    if classes:
        _check_words("data.labels", labels, 2)
        if len({number_text(label) for label in labels}) < len(labels):
            raise TacitError(f"data.labels has {labels}: two are the same number, so drop one")
    if kind == "binary" and len(labels) != 2:
        raise TacitError(f"kind 'binary' has two classes, but labels are {labels}: name two")
    return tuple(labels)


def heads_of(data: AgreedTable, silos: Sequence[str]) -> Heads | None:
    """Which labels each silo predicts; None where all predict all."""
    if data.heads is None:
        return None
    if data.kind != "multilabel":
        raise TacitError("heads are for kind 'multilabel': leave [data.heads] out")
    unknown = next((silo for silo in data.heads if silo not in silos), None)
    if unknown is not None:
        raise TacitError(f"[data.heads] names {unknown!r}, which is no silo{near(unknown, silos)}")
    holds = holding(data.targets, silos, data.heads)
    heads = Heads(tuple(data.targets), (1,) * len(data.targets), holds)
    for name, holders in zip(heads.names, heads.holders.tolist(), strict=True):
        if not holders:
            raise TacitError(f"no silo predicts {name!r}: leave it out of data.target")
    return heads
