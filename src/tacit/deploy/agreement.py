"""The file of a consortium, of which every party has a copy, and the terms that it makes.

[consortium]
name = "heart"
silos = ["cleveland", "hungarian"]

[data]
target = "disease"           # or a list of columns of 0 and 1 (multilabel)
kind = "binary"
labels = ["0", "1"]          # the classes, as the tables have them; numbers: range = [0, 100]
                             # over time (survival): event = "died", cuts = [365, 730, 1095]

[data.columns]
age = { range = [0, 120] }   # a number, which each silo scales for itself, or all by constants
                             # (scale = [55, 10]); where persons are protected, by its range, or by
                             # constants that their votes find, with noise (scale = "found")
sex = { flag = true }        # 0 or 1, as it is
cp = { categories = ["typical", "atypical", "none"], gaps = true }

[method]                     # leave it out, and public facts decide
name = "pmtl"

[privacy]
epsilon = 2.0

[run]
rounds = 30

Who reads it needs no data: what its columns are is checked before anybody has rows. Whatever it
says ends in `Terms`, and so in their digest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from tacit.checks import near
from tacit.data.cells import MISSING, number_text
from tacit.data.columns import GAP
from tacit.data.federation import NUMBERS, ONE_OUTPUT
from tacit.data.heads import Heads, holding
from tacit.data.persons import DEALT
from tacit.data.split import SplitRule
from tacit.data.survival import check_cuts, check_roles, cut_labels
from tacit.deploy.table import schema_of, unscaled_of
from tacit.deploy.terms import SERVERS, Terms, agreed_of
from tacit.errors import TacitError
from tacit.experiment import toml as config
from tacit.experiment.auto import choose
from tacit.experiment.plan import Plan, in_files, with_new_names
from tacit.experiment.start import model_of
from tacit.experiment.toml import Section, in_section, section
from tacit.methods import ExchangeMethod, Mixed, RelatedMethod, SharedShapes
from tacit.privacy import Privacy
from tacit.secure.jobs.job import check_name
from tacit.secure.settings import Secure

LARGEST = float(np.finfo(np.float32).max)
"""Rows are 32-bit numbers, in which larger ones would be infinite."""


class ColumnSection(Section):
    """One column that every silo's table has: a number, a flag or one of several categories."""

    range: tuple[float, float] | None = None
    scale: tuple[float, float] | Literal["found"] | None = None
    flag: bool = False
    categories: list[str] | None = None
    gaps: bool = False


class AgreedTable(Section):
    """What every silo's table looks like, and what is predicted from it."""

    target: str | list[str]
    kind: Literal["regression", "count", "binary", "multiclass", "multilabel", "survival"]
    labels: list[str] | None = None
    range: tuple[float, float] | None = None
    event: str | None = None
    cuts: list[float] | None = None
    validation: float = 0.2
    test: float = 0.2
    split_seed: int = 0
    columns: dict[str, ColumnSection]
    public: str | None = None
    heads: dict[str, list[str]] | None = None

    @property
    def targets(self) -> list[str]:
        named = [self.target] if isinstance(self.target, str) else self.target
        return named if self.event is None else [*named, self.event]

    def agreed(self) -> dict[str, Any]:
        """The table in plain values; columns are a list, because their order matters."""
        columns = [{"name": name, **c.model_dump(mode="json")} for name, c in self.columns.items()]
        shares = {"validation": self.validation, "test": self.test, "split_seed": self.split_seed}
        span = None if self.range is None else list(self.range)
        table = {"target": self.targets, "range": span, **shares, "columns": columns}
        return table if self.event is None else table | {"cuts": list(check_cuts(self.cuts))}


def check_columns(data: AgreedTable) -> None:
    """Refuse columns without a kind, and columns of two kinds at once."""
    SplitRule(data.validation, data.test, data.split_seed)
    if data.public is not None:
        raise TacitError(
            f"public = {data.public!r}: all parties would have to hold the same public rows, and "
            "this file cannot make sure of that; leave it out: ranges of columns are public already"
        )
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
        if column.scale is not None and (
            column.range is None or (column.scale != "found" and not 0 < column.scale[1] <= LARGEST)
        ):
            raise TacitError(
                f"{where} has scale {column.scale}: a mean and a positive standard deviation "
                'are needed, beside range, or "found" for those that votes of persons find'
            )
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
    check_roles(kind, data.target, data.event, data.cuts)
    if kind == "survival":
        return cut_labels(check_cuts(data.cuts))
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
        raise TacitError(
            f"[data.heads] names {unknown!r}, which is not a silo{near(unknown, silos)}"
        )
    holds = holding(data.targets, silos, data.heads)
    heads = Heads(tuple(data.targets), (1,) * len(data.targets), holds)
    for name, holders in zip(heads.names, heads.holders.tolist(), strict=True):
        if not holders:
            raise TacitError(f"no silo predicts {name!r}: leave it out of data.target")
    return heads


PUBLIC = (
    "the columns of the tables, their types, categories, classes and ranges, and which of them may "
    "have gaps, are public by agreement",
    "numbers are scaled, and gaps filled in, by each silo for itself",
)
BY_RANGES = "numbers are scaled by their agreed ranges; each silo fills in its own gaps"


OF_PERSONS = (
    "numbers are scaled by agreed constants, and gaps are filled with the centres of those",
    DEALT,
)


class ConsortiumSection(Section):
    """Who runs together."""

    name: str
    silos: list[str]


class AgreedRun(section(in_files(agreed=True))):
    """How long, with whom, and what is released at the end."""

    metrics: bool = False


class AgreedCurator(section(in_section(Secure, SERVERS))):
    """Servers that work on shares; each party knows for itself where they are."""

    retries: int = 0

    def settings(self) -> Secure:
        return Secure(**self.model_dump(exclude={"retries"}))


class File(Section):
    """The whole file."""

    consortium: ConsortiumSection
    data: AgreedTable
    method: config.MethodSection = config.MethodSection()
    publishing: config.PublishingSection | None = None
    privacy: config.PrivacySection | None = None
    curator: AgreedCurator | None = None
    run: AgreedRun = AgreedRun()


@dataclass(frozen=True)
class Agreement:
    """What a consortium has written down, checked as far as it can be without data."""

    terms: Terms

    @classmethod
    def read(cls, path: str | Path) -> Agreement:
        """From a TOML file, or one sentence about the first thing that is wrong with it."""
        try:
            file = File.model_validate(with_new_names(config.read(Path(path))))
        except ValidationError as error:
            raise TacitError(config.sentence(error, File, "the consortium's file")) from error
        for name in file.consortium.silos:
            check_name(name)
        check_columns(file.data)
        terms = _terms(file, labels_of(file.data))
        _check_terms(terms)
        return cls(terms)


def _terms(file: File, labels: tuple[str, ...]) -> Terms:
    """What the file says, with what is usual where it says nothing."""
    draft = _draft(file, labels)
    plan = Plan(
        method=file.method.method(),
        privacy=None if file.privacy is None else Privacy(**file.privacy.model_dump()),
        publishing=None if file.publishing is None else file.publishing.rule(),
        curator=None if file.curator is None else file.curator.settings(),
        personalise="none",
        **file.run.model_dump(exclude={"metrics"}),
    )
    persons = plan.privacy is not None and plan.privacy.unit != "task"
    if draft.unscaled and not persons:
        raise TacitError(
            'scale = "found" is for votes of persons: give the column constants or its range '
            "alone, or set unit in [privacy]"
        )
    found = choose(draft.federation(), plan)
    cohort = 1.0 if found.cohort == 1 else found.cohort
    agreed = agreed_of(found.plan.but(method=found.picked, cohort=cohort))
    assumed = (PUBLIC[0], BY_RANGES) if isinstance(found.picked, Mixed | SharedShapes) else PUBLIC
    if persons:
        assumed = (PUBLIC[0], *OF_PERSONS)
    agreed |= {"retries": 0 if file.curator is None else file.curator.retries}
    return dataclasses.replace(draft, **agreed, metrics=file.run.metrics, assumptions=assumed)


def _draft(file: File, labels: tuple[str, ...]) -> Terms:
    """Who and what data: a run is planned by them."""
    table = file.data.agreed()
    features = schema_of(table).features
    heads = heads_of(file.data, file.consortium.silos)
    return Terms(
        consortium=file.consortium.name,
        silos=tuple(file.consortium.silos),
        kind=file.data.kind,
        outputs=1 if file.data.kind in ONE_OUTPUT else len(labels),
        input_shape=(len(features),),
        method={},
        model="",
        rounds=1,
        features=features,
        labels=labels,
        heads=None if heads is None else heads.to_json(),
        unscaled=unscaled_of(table),
        assumptions=PUBLIC,
        data=table,
    )


def _check_terms(terms: Terms) -> None:
    """Refuse what could not run, by the same rules as a run in one process."""
    method, sampler, everyone = terms.make_method(), terms.sampler(), terms.federation()
    if isinstance(method, RelatedMethod) and type(method).relation is RelatedMethod.relation:
        raise TacitError(
            f"method {terms.method['name']!r} needs to know how silos are related, which this file "
            "cannot say: choose another (tacit methods)"
        )
    terms.plan().check(everyone)
    if isinstance(method, ExchangeMethod) and method.judges and not terms.data["validation"]:
        raise TacitError(
            f"silos of {method.called} judge models by their validation rows: keep some "
            "(validation = 0.2)"
        )
    if (privacy := terms.make_privacy()) is not None:
        sampler.accountants(privacy.neighbours)
    model_of(terms.model, everyone, 0)
