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
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tacit.data.federation import ONE_OUTPUT
from tacit.deploy.agreed import AgreedTable, check_columns, heads_of, labels_of
from tacit.deploy.table import schema_of
from tacit.deploy.terms import SERVERS, Terms, agreed_of
from tacit.errors import TacitError
from tacit.experiment import toml as config
from tacit.experiment.auto import choose
from tacit.experiment.plan import Plan, in_files, with_new_names
from tacit.experiment.start import model_of
from tacit.experiment.toml import Section, in_section, section
from tacit.methods import ExchangeMethod, Mixed, RelatedMethod
from tacit.privacy import Privacy
from tacit.secure.jobs.job import check_name
from tacit.secure.settings import Secure

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
    found = choose(draft.federation(), plan)
    cohort = 1.0 if found.cohort == 1 else found.cohort
    agreed = agreed_of(found.plan.but(method=found.picked, cohort=cohort))
    assumed = (PUBLIC[0], BY_RANGES) if isinstance(found.picked, Mixed) else PUBLIC
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
            f"silos of {type(method).__name__} judge models by their validation rows: keep some "
            "(validation = 0.2)"
        )
    if (privacy := terms.make_privacy()) is not None:
        sampler.accountants(privacy.neighbours)
    model_of(terms.model, everyone, 0)
