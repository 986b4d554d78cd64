"""The terms of a run: all that every party knows and agrees to before it starts, as plain values.

A silo computes from its own copy of the terms, never from what a message says; a message carries
the coordinator's copy, so that a silo can say what differs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tacit.checks import annotations_of, fits
from tacit.data.federation import PARTS, Federation, Kind, Part, Rows, TargetScale
from tacit.data.heads import Heads
from tacit.data.persons import Unscaled
from tacit.data.preprocess import Preprocessing
from tacit.data.relation import Relation
from tacit.data.schema import Schema
from tacit.engine.votes import Votes
from tacit.errors import TacitError
from tacit.experiment.plan import Plan, in_files
from tacit.experiment.start import method_of, model_name, name_of, sampler_of
from tacit.experiment.toml import make_method
from tacit.methods import ExchangeMethod, Method, OnBillboard, Publishing
from tacit.methods.of_persons import of_persons
from tacit.privacy import Privacy, Sampler
from tacit.secure.settings import Secure

SERVERS = ("servers", "trust", "bits", "slots")
"""What is agreed about servers: how many, and on what trust."""


@dataclass(frozen=True)
class Own:
    """One silo's rows as its model sees them, and what turned its table into them."""

    parts: Mapping[Part, tuple[Tensor, Tensor]]
    """Inputs and targets of training, validation and test."""
    persons: Mapping[Part, Tensor] | None = None
    """Whose rows they are, where persons are protected; see `Rows.persons`."""
    preprocessing: Preprocessing | None = None
    target_scale: TargetScale | None = None
    schema: Schema | None = None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Task k of the run is `silos[k]`."""

    consortium: str
    silos: tuple[str, ...]
    kind: Kind
    outputs: int
    input_shape: tuple[int, ...]
    method: Mapping[str, Any]
    """Its name and all its settings."""
    model: str
    rounds: int
    cohort: float | int = 1.0
    privacy: Mapping[str, Any] | None = None
    publishing: Mapping[str, Any] | None = None
    curator: Mapping[str, Any] | None = None
    """How many servers, and on what trust; where they are is each party's own knowledge."""
    retries: int = 0
    """How many rounds on shares may be done once more without a silo that stayed away: each is one
    more release, and the noise is enough for all of them."""
    metrics: bool = False
    """Whether the mean score of all silos is released once, with noise, after the last round."""
    seed: int | None = None
    """Makes the run reproducible, and therefore not private."""
    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    heads: Mapping[str, Any] | None = None
    relation: Mapping[str, Any] | None = None
    unscaled: tuple[int, ...] = ()
    """Columns whose unit nobody knows, and persons vote for; see `data.persons`."""
    assumptions: tuple[str, ...] = ()
    """What is taken to be public, in words."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The agreed table; read by `table`, and by nobody else."""

    def __post_init__(self) -> None:
        if len(self.silos) < 2 or len(set(self.silos)) < len(self.silos):
            raise TacitError("a consortium needs two or more silos, each with a name of its own")
        if self.retries < 0 or (self.retries and (self.curator is None or self.privacy is None)):
            raise TacitError(
                f"retries={self.retries}: they are for sums on shares, 0 or more of them"
            )
        if self.retries and (self.privacy or {}).get("tasks_epsilon") is not None:
            raise TacitError(
                "a task's sum is shortened for tasks_epsilon as if every round were made once: "
                "leave retries out, or tasks_epsilon"
            )
        if self.metrics and self.privacy is None:
            raise TacitError(
                "scores of silos are released with noise only: give privacy, or leave metrics out"
            )
        if self.metrics and self.curator is not None:
            raise TacitError(
                "servers on shares have no sum for scores, so nobody hides them: leave metrics out"
            )
        if self.metrics and self.of_persons:
            raise TacitError(
                "a silo's score is made of all its persons, so none of them is bounded in it: "
                "leave metrics out, or unit"
            )

    def index(self, silo: str) -> int:
        if silo not in self.silos:
            raise TacitError(f"there is no silo {silo!r}; there are {', '.join(self.silos)}")
        return self.silos.index(silo)

    @property
    def of_persons(self) -> bool:
        """Whether persons (or rows) inside silos are protected, and not silos."""
        return (self.privacy or {}).get("unit", "task") != "task"

    @property
    def crowd(self) -> int:
        """How many there are to hide among, as everybody knows."""
        privacy, silos = self.make_privacy(), len(self.silos)
        return silos if privacy is None else privacy.crowd(silos)

    def plan(self) -> Plan:
        """The run that was agreed on."""
        agreed = {name: getattr(self, name) for name in in_files(agreed=True)}
        return Plan(
            method=self.make_method(),
            privacy=self.make_privacy(),
            publishing=self.make_publishing(),
            curator=self.make_curator(),
            personalise="none",
            **agreed,
        )

    def make_method(self) -> Method:
        settings = dict(self.method)
        made = make_method(settings.pop("name"), settings)
        return of_persons(made) if self.of_persons else made

    def make_privacy(self) -> Privacy | None:
        return None if self.privacy is None else Privacy(**self.privacy)

    def make_publishing(self) -> Publishing | None:
        return None if self.publishing is None else Publishing(**self.publishing)

    def make_curator(self, **where: Any) -> Secure | None:
        """`where` says where the servers are."""
        return None if self.curator is None else Secure(**self.curator, **where)

    def sampler(self) -> Sampler:
        if not isinstance(self.make_method(), OnBillboard | ExchangeMethod):
            raise TacitError(
                f"nothing leaves a silo with method {self.method['name']!r}, so there is nothing "
                "to run together: choose another (tacit methods)"
            )
        return sampler_of(self.plan(), len(self.silos))

    def federation(self, own: Mapping[int, Own] | None = None) -> Federation:
        """All silos as tasks; the rows of those that are not given are elsewhere."""
        here = own or {}
        train, validation, test = (self._rows(part, here) for part in PARTS)
        one = next(iter(here.values())) if len(here) == 1 else None
        return Federation(
            self.silos, self.kind, self.outputs, train, validation, test,
            features=self.features, labels=self.labels, assumptions=self.assumptions,
            source=f"the silos of {self.consortium}",
            target_scale=None if one is None else _repeated(one.target_scale, len(self.silos)),
            heads=None if self.heads is None else Heads.from_json(self.heads),
            relation=None if self.relation is None else _relation(self.relation),
            preprocessing=None if one is None else one.preprocessing,
            unscaled=Unscaled(self.unscaled) if self.unscaled else None,
        )  # fmt: skip

    def _rows(self, part: Part, own: Mapping[int, Own]) -> Rows:
        none = torch.zeros(0, *self.input_shape), self._no_targets()
        given = [own[k].parts[part] if k in own else none for k in range(len(self.silos))]
        counts = torch.tensor([len(y) for _, y in given])
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        whose = None
        if self.of_persons:
            none = torch.zeros(0, dtype=torch.int64)
            whose = torch.cat(
                [_persons(own[k], part) if k in own else none for k in range(len(given))]
            )
        x, y = (torch.cat(side) for side in zip(*given, strict=True))
        return Rows(x, y, offsets, whose)

    def _no_targets(self) -> Tensor:
        """Zero targets, of the right type and shape."""
        if self.kind == "segmentation":
            heads = 1 if self.heads is None else len(self.heads["names"])
            return torch.zeros(0, heads, *self.input_shape[-2:], dtype=torch.int8)
        if self.kind == "multiclass":
            return torch.zeros(0, dtype=torch.int64)
        several = self.kind in ("multilabel", "survival")
        return torch.zeros(0, self.outputs) if several else torch.zeros(0)

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Terms:
        names = {field.name for field in dataclasses.fields(cls)}
        if unknown := found.keys() - names:
            raise TacitError(f"terms with unknown {', '.join(sorted(unknown))}: another version?")
        sequences = ("silos", "input_shape", "features", "labels", "unscaled", "assumptions")
        values: dict[str, Any] = {k: tuple(v) if k in sequences else v for k, v in found.items()}
        return cls(**values)

    @property
    def digest(self) -> str:
        """Names these terms: the same for everybody who has the same."""
        text = json.dumps(self.to_json(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def agreed_noise(terms: Terms) -> float:
    """The noise multiplier of a release of weight one that keeps what was agreed; else 0."""
    method, privacy, tasks = terms.make_method(), terms.make_privacy(), len(terms.silos)
    if privacy is None or not isinstance(method, OnBillboard):
        return 0.0
    moments, weights = method.moments, agreed_weights(terms)
    replaced = 2.0 if moments is None or terms.metrics else moments.replaced
    if terms.metrics:
        weights = (*(weights or (1.0,) * terms.rounds), 1.0)
    return privacy.noise_multiplier(
        terms.sampler(),
        terms.rounds + terms.metrics,
        tasks,
        weights=weights,
        replaced=replaced,
        again=terms.retries,
    )


def agreed_weights(terms: Terms) -> tuple[float, ...] | None:
    """How precise each round's release is, votes for units among them; None for all alike."""
    method = terms.make_method()
    assert isinstance(method, OnBillboard)
    votes = Votes.of(method, terms.federation())
    own = method.weights(votes.rounds_after(terms.rounds), terms.crowd)
    return votes.weights(terms.crowd, terms.rounds, own)


def terms_of(federation: Federation, plan: Plan) -> Terms:
    """The terms of a run whose rows are all in this process."""
    relation, heads, unscaled = federation.relation, federation.heads, federation.unscaled
    return Terms(
        consortium=federation.source,
        silos=tuple(federation.names),
        kind=federation.kind,
        outputs=federation.outputs,
        input_shape=federation.input_shape,
        **agreed_of(plan),
        features=federation.features,
        labels=federation.labels,
        heads=None if heads is None else heads.to_json(),
        relation=None if relation is None else _plain(relation),
        unscaled=() if unscaled is None else unscaled.columns,
        assumptions=federation.assumptions,
    )


def agreed_of(plan: Plan) -> dict[str, Any]:
    """The settings of a plan that terms have, as plain values; `Terms.plan` turns them back."""
    method, curator = method_of(plan.method), plan.curator
    settings = {name: getattr(plan, name) for name in in_files(agreed=True)}
    return settings | {
        "model": model_name(plan.model) or "",
        "method": {"name": name_of(method), **_fractions(method)},
        "privacy": plan.privacy and _fractions(plan.privacy, plan.privacy.to_json()),
        "publishing": None if plan.publishing is None else _fractions(plan.publishing),
        "curator": None if curator is None else {name: getattr(curator, name) for name in SERVERS},
    }


def _fractions(settings: Any, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All settings; 1 becomes 1.0 where a fraction may be, so that digests are the same."""
    kinds = annotations_of(type(settings))
    return {
        name: float(value) if type(value) is int and fits(kinds[name], 0.5) else value
        for name, value in (values or dataclasses.asdict(settings)).items()
    }


def differences(agreed: Terms, asked: Mapping[str, Any]) -> list[str]:
    """What somebody asks for that was not agreed, in words."""
    mine, found = agreed.to_json(), []
    for name in sorted(mine.keys() | asked.keys()):
        was, now = mine.get(name), asked.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            pairs = {f"{name}.{key}": (was.get(key), now.get(key)) for key in {*was, *now}}
        else:
            pairs = {name: (was, now)}
        found += [
            f"{what} is {_short(now)}, agreed was {_short(was)}"
            for what, (was, now) in sorted(pairs.items())
            if was != now
        ]
    return found


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _plain(relation: Relation) -> dict[str, Any]:
    return {
        name: value.tolist() if isinstance(value, Tensor) else value
        for name, value in vars(relation).items()
    }


def _relation(plain: Mapping[str, Any]) -> Relation:
    numbers = {name: torch.tensor(value) for name, value in plain.items() if name != "name"}
    return Relation(**numbers, name=plain["name"])


def _persons(own: Own, part: Part) -> Tensor:
    if own.persons is None:
        raise TacitError("persons are to be protected, but nobody said whose rows these are")
    return own.persons[part]


def _repeated(scale: TargetScale | None, count: int) -> TargetScale | None:
    """A silo's own scale, repeated for all tasks; only its own place is read."""
    if scale is None:
        return None
    return TargetScale(scale.shift.expand(count), scale.scale.expand(count))
