"""Experiments as files: what `tacit train experiment.toml` reads, checked before anything runs.

[data]
from = "patients.csv"        # a file, or a name that `tacit data` lists
task = "hospital"
target = "outcome"

[method]                     # leave it out, and public facts decide
name = "pmtl"
pull = 1.0

[privacy]
epsilon = 2.0

[curator]                    # leave it out for one machine that sums
kind = "secure"
servers = 3

[run]
rounds = 100
cohort = 0.5
out = "runs/patients"
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from tacit import data
from tacit.checks import annotations_of, check_type, near, none_in_words
from tacit.data.federation import Federation
from tacit.data.registry import FILES
from tacit.data.relation_file import with_relation
from tacit.errors import TacitError
from tacit.experiment.plan import Plan, in_files, with_new_names
from tacit.files import reading
from tacit.methods import AUTO, METHODS, Method, Publishing, RelatedMethod
from tacit.privacy import Privacy
from tacit.secure.settings import Secure

LARGEST, DEEPEST = 1 << 20, 100
"""Characters of a file of settings, and levels of tables in tables."""


class Section(BaseModel):
    """Part of a file; a setting that it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid")


class DataSection(Section):
    """Where rows come from, and how they are read."""

    model_config = ConfigDict(extra="allow")  # options differ by source; `data.load` checks them
    source: str = Field(alias="from")
    relation: str | None = None

    def federation(self, **more: Any) -> Federation:
        found = data.load(self.source, **(self.model_extra or {}), **more)
        return found if self.relation is None else with_relation(found, self.relation)


class MethodSection(Section):
    """The method's name and its hyperparameters."""

    model_config = ConfigDict(extra="allow")  # fields differ by method; `method` checks them
    name: str = AUTO

    def method(self) -> Method | str:
        given = self.model_extra or {}
        if self.name != AUTO:
            return make_method(self.name, given)
        if given:
            raise TacitError(
                f"{', '.join(given)} belong to a method, but none is named: add --method pmtl (or "
                '[method] name = "pmtl"), or leave them out'
            )
        return AUTO


class PublishingSection(Section):
    """What is done with a release before it is published."""

    model_config = ConfigDict(extra="allow")  # `Publishing` knows its settings, and checks them

    def rule(self) -> Publishing:
        return Publishing(**_checked("publishing", Publishing, self.model_extra or {}))


def section(settings: Mapping[str, Any]) -> type[Section]:
    """A part of a file with settings that are declared elsewhere: types and defaults by name."""
    return create_model("Section", __base__=Section, **settings)


def in_section(kind: type, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Types and defaults of a dataclass's settings; it checks by itself which words it takes."""
    kinds = annotations_of(kind)
    return {
        one.name: (str if get_origin(kinds[one.name]) is Literal else kinds[one.name], one.default)
        for one in dataclasses.fields(kind)
        if names is None or one.name in names
    }


class PrivacySection(section(in_section(Privacy))):
    """The promise; leave the whole section out to run without privacy."""


class CuratorSection(section(in_section(Secure))):
    """Servers that work on shares; leave the whole section out for one machine that sees all."""

    kind: Literal["secure"]

    def settings(self) -> Secure:
        return Secure(**self.model_dump(exclude={"kind"}))


class RunSection(section(in_files())):
    """How long, with whom, and where the result goes."""


class TuneSection(Section):
    """What `tacit tune` searches: settings of the method, as arrays or as {low, high}."""

    model_config = ConfigDict(extra="allow")  # fields differ by method; `tune` checks them
    runs: float = 10

    def search(self) -> dict[str, Any]:
        return {name: _searched(name, value) for name, value in (self.model_extra or {}).items()}


class Config(Section):
    """A whole experiment."""

    data: DataSection
    method: MethodSection = MethodSection()
    publishing: PublishingSection | None = None
    privacy: PrivacySection | None = None
    curator: CuratorSection | None = None
    run: RunSection = RunSection()
    tune: TuneSection | None = None

    def federation(self) -> Federation:
        """The data; whose rows they are decides how they are prepared."""
        unit = "task" if self.privacy is None else self.privacy.model_dump()["unit"]
        person = (self.data.model_extra or {}).get("person")
        if unit == "person" and person is None:
            raise TacitError(
                "--unit person needs --person COLUMN, which says whose row each is; where every "
                "row is another person, say --unit row"
            )
        if unit == "row" and person is not None:
            raise TacitError("--unit row hides single rows: leave --person out, or --unit person")
        return self.data.federation(**({"person": True} if unit == "row" else {}))

    def plan(self) -> Plan:
        return Plan(
            method=self.method.method(),
            publishing=None if self.publishing is None else self.publishing.rule(),
            privacy=None if self.privacy is None else Privacy(**self.privacy.model_dump()),
            curator=None if self.curator is None else self.curator.settings(),
            **self.run.model_dump(),
        )

    def to_json(self) -> str:
        return json.dumps(self.model_dump(by_alias=True), indent=2)


def read(path: Path) -> dict[str, Any]:
    """A TOML file (or the JSON that a run leaves in its folder) as nested tables.

    A file of rows is an experiment that says nothing but where its rows are.
    """
    if path.name.lower().endswith(tuple(FILES)):
        return {"data": {"from": str(path)}}
    if not path.is_file():
        raise TacitError(f"there is no file {path}")
    with reading(path, "correct it"):
        text = path.read_text(encoding="utf-8")
        tables = json.loads(text) if path.suffix == ".json" else _toml(text)
        if not isinstance(tables, dict) or _deeper(tables, DEEPEST):
            raise ValueError(f"expected tables in tables, at most {DEEPEST} deep")
        if _huge(tables):
            raise ValueError("a whole number in it has more than 64 bits")
        return tables


def _toml(text: str) -> dict[str, Any]:
    """Python's parser takes minutes for a name with ten thousand dots: who wrote it is unknown."""
    if len(text) > LARGEST:
        raise ValueError(f"it has {len(text)} characters, at most {LARGEST} are read")
    if any(part.count(".") > DEEPEST for part in re.split(r"[,={}\n]", text)):
        raise ValueError(f"more than {DEEPEST} dots in a name")
    return tomllib.loads(text)


def _held_in(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _deeper(value: Any, levels: int) -> bool:
    return levels < 0 or any(_deeper(one, levels - 1) for one in _held_in(value))


def _huge(value: Any) -> bool:
    """Python reads whole numbers of any size, and no float is as large as they may be."""
    if isinstance(value, int):
        return not -(2**63) <= value < 2**64
    return any(map(_huge, _held_in(value)))


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Flags over file: what `over` gives wins, section by section."""
    base = with_new_names(base)
    merged = {section: dict(values) for section, values in base.items() if isinstance(values, dict)}
    merged |= {key: value for key, value in base.items() if not isinstance(value, dict)}
    for section, given in with_new_names({s: given for s, given in over.items() if given}).items():
        if isinstance(merged.get(section, {}), dict):  # `check` refuses what is no table
            merged[section] = merged.get(section, {}) | given
    return merged


def check(tables: dict[str, Any]) -> Config:
    """A checked experiment, or one sentence about the first thing that is wrong."""
    tables = with_new_names(tables)
    data = tables.get("data", {})
    if isinstance(data, dict) and not data.get("from"):
        raise TacitError("no data: pass --data FILE (or a name that `tacit data` lists)")
    curator = tables.get("curator")
    if isinstance(curator, dict) and "kind" not in curator:
        raise TacitError(
            f"{', '.join(curator)} without a curator of servers: add --curator secure (or "
            '[curator] kind = "secure"), or leave them out'
        )
    try:
        config = Config.model_validate(tables)
    except ValidationError as error:
        raise TacitError(sentence(error, Config, "the configuration")) from error
    method = config.plan().method
    reads = isinstance(method, RelatedMethod) and type(method).relation is RelatedMethod.relation
    reads = reads or method == AUTO
    if config.data.relation is not None and not reads:
        raise TacitError(
            f"method {config.method.name} does not read how tasks are related: use method related, "
            "or leave relation out"
        )
    return config


def make_method(name: str, settings: dict[str, Any]) -> Method:
    """A method by name, with its hyperparameters checked against its fields."""
    if name not in METHODS:
        raise TacitError(f"there is no method {name!r}{near(name, METHODS)}")
    return METHODS[name](**_checked(f"method {name}", METHODS[name], settings))


def _checked(what: str, kind: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Names and types of settings against the fields of a dataclass, which checks their values."""
    fields = [field.name for field in dataclasses.fields(kind)]
    found = {}
    for key, value in settings.items():
        if key not in fields:
            raise TacitError(f"{what} has no setting {key!r}{near(key, fields)}")
        annotation = annotations_of(kind)[key]
        found[key] = none_in_words(annotation, value)
        check_type(f"{what}: {key}", annotation, found[key])
    return found


def _searched(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() != {"low", "high"}:
        raise TacitError(f"tune.{name}: a range is written {{low = 0.1, high = 2.0}}")
    return value["low"], value["high"]


def sentence(error: ValidationError, kind: type[BaseModel], file: str) -> str:
    """The first thing that is wrong with a file of this kind."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{file} lacks {where!r}: add it"
    if first["type"] == "extra_forbidden":
        known = _section(kind, first["loc"][:-1]).model_fields
        return f"{file} has no setting {where!r}{near(str(first['loc'][-1]), known)}"
    return f"{file}'s {where} is {first['input']!r}: {first['msg'].lower()}"


def _section(kind: type[BaseModel], place: Iterable[int | str]) -> type[BaseModel]:
    """The section in this place; parts of the place that are no fields are names people gave."""
    for part in place:
        if str(part) in kind.model_fields:
            kind = _inner(kind.model_fields[str(part)].annotation) or kind
    return kind


def _inner(annotation: Any) -> type[BaseModel] | None:
    """The section in `Section`, `Section | None` or `dict[str, Section]`."""
    if parts := get_args(annotation):
        return next(filter(None, map(_inner, parts)), None)
    found = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if found else None
