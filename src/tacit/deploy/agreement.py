"""The file of a consortium, of which every party has a copy, and the terms that it makes.

[consortium]
name = "heart"
silos = ["cleveland", "hungarian"]

[data]
target = "disease"           # or a list of columns of 0 and 1 (multilabel)
kind = "binary"
labels = ["0", "1"]          # the classes, as the tables have them; numbers: range = [0, 100]

[data.columns]
age = { range = [0, 120] }   # a number, which each silo scales for itself
sex = { flag = true }        # 0 or 1, as it is
cp = { categories = ["typical", "atypical", "none"], gaps = true }

[method]                     # leave it out, and public facts decide
name = "pmtl"

[privacy]
epsilon = 2.0

[run]
rounds = 30

Who reads it needs no data. Whatever it says ends in `Terms`, and so in their digest.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tacit.checks import annotations_of, fits
from tacit.data.federation import ONE_OUTPUT
from tacit.deploy.agreed import DataSection, check_columns, heads_of, labels_of
from tacit.deploy.table import schema_of
from tacit.deploy.terms import Terms
from tacit.errors import TacitError
from tacit.experiment import toml as config
from tacit.experiment.auto import chosen
from tacit.experiment.curator import check_curator
from tacit.experiment.start import check as check_run
from tacit.experiment.start import check_channel, model_of, name_of
from tacit.experiment.toml import Section
from tacit.methods import ExchangeMethod, Mixed, OnBillboard, RelatedMethod
from tacit.privacy import Privacy
from tacit.secure.net.certificates import check_name

PUBLIC = (
    "the columns of the tables, their types, categories, classes and ranges, and which of them may "
    "have gaps, are public by agreement",
    "numbers are scaled, and gaps filled in, by each silo for itself",
)
BY_RANGES = "numbers are scaled by their agreed ranges; each silo fills in its own gaps"


class ConsortiumSection(Section):
    """Who runs together."""

    name: str
    silos: list[str]


class RunSection(Section):
    """How long, with whom, and what is released at the end."""

    rounds: int | None = None
    cohort: float | int | None = None
    model: str = "linear"
    seed: int | None = None
    metrics: bool = False


class CuratorSection(Section):
    """Servers that work on shares; each party knows for itself where they are."""

    servers: int = 3
    trust: Literal["dealer", "replicated"] | None = None
    bits: Literal[32, 64] | None = None
    slots: int | None = None
    retries: int = 0


class File(Section):
    """The whole file."""

    consortium: ConsortiumSection
    data: DataSection
    method: config.MethodSection = config.MethodSection()
    server: config.ServerSection | None = None
    privacy: config.PrivacySection | None = None
    curator: CuratorSection | None = None
    run: RunSection = RunSection()


@dataclass(frozen=True)
class Agreement:
    """What a consortium has written down, checked as far as it can be without data."""

    terms: Terms

    @classmethod
    def read(cls, path: str | Path) -> Agreement:
        """From a TOML file, or one sentence about the first thing that is wrong with it."""
        try:
            file = File.model_validate(config.read(Path(path)))
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
    run, given = file.run, file.method.method()
    found = chosen(
        draft.federation(), given, draft.made_privacy(), run.model, run.rounds, run.cohort, "none"
    )
    method = {"name": name_of(found.picked), **_plain(found.picked)}
    cohort = 1.0 if found.cohort == 1 else found.cohort
    assumed = (PUBLIC[0], BY_RANGES) if isinstance(found.picked, Mixed) else PUBLIC
    return dataclasses.replace(
        draft, method=method, rounds=found.rounds, cohort=cohort, assumptions=assumed
    )


def _draft(file: File, labels: tuple[str, ...]) -> Terms:
    """Without the method, which is chosen by all the rest."""
    table, run = file.data.agreed(), file.run
    features = schema_of(table).features
    privacy = None if file.privacy is None else Privacy(**file.privacy.model_dump())
    heads = heads_of(file.data, file.consortium.silos)
    return Terms(
        consortium=file.consortium.name,
        silos=tuple(file.consortium.silos),
        kind=file.data.kind,
        outputs=1 if file.data.kind in ONE_OUTPUT else len(labels),
        input_shape=(len(features),),
        method={},
        model=run.model,
        rounds=1,
        cohort=1.0,
        privacy=None if privacy is None else _plain(privacy),
        server=None if file.server is None else _plain(file.server.rule()),
        curator=None if file.curator is None else file.curator.model_dump(exclude={"retries"}),
        retries=0 if file.curator is None else file.curator.retries,
        metrics=run.metrics,
        seed=run.seed,
        features=features,
        labels=labels,
        heads=None if heads is None else heads.to_json(),
        assumptions=PUBLIC,
        data=table,
    )


def _plain(settings: Any) -> dict[str, Any]:
    """All settings; 1 becomes 1.0 where a fraction may be, or two who agree would differ."""
    kinds = annotations_of(type(settings))
    return {
        name: float(value) if type(value) is int and fits(kinds[name], 0.5) else value
        for name, value in dataclasses.asdict(settings).items()
    }


def _check_terms(terms: Terms) -> None:
    """Refuse what could not run, by the same rules as a run in one process."""
    method, privacy, server = terms.made_method(), terms.made_privacy(), terms.made_server()
    sampler, curator = terms.sampler(), terms.made_curator()
    everyone = terms.federation()
    if isinstance(method, RelatedMethod) and type(method).relation is RelatedMethod.relation:
        raise TacitError(
            f"method {terms.method['name']!r} needs to know how silos are related, which this file "
            "cannot say: choose another (tacit methods)"
        )
    check_run(everyone, method, terms.rounds, None, privacy, "none")
    check_channel(method, server, None)
    check_curator(everyone, method, curator, privacy, terms.seed)
    if isinstance(method, ExchangeMethod) and method.judges and not terms.data["validation"]:
        raise TacitError(
            f"silos of {type(method).__name__} judge models by their validation rows: keep some "
            "(validation = 0.2)"
        )
    if privacy is not None:
        sampler.accountants(privacy.neighbours)
    if privacy is not None and isinstance(method, OnBillboard) and not math.isfinite(method.clip):
        raise TacitError("clip must be finite under privacy: an unbounded silo cannot be hidden")
    model_of(terms.model, everyone, 0)
