"""The methods of table 3, by name, and the settings that are tried for each.

"As published" is FedMTL as the paper runs it: anybody is mixed with (`min_peers` 1), thresholds
rise from .75 to .95, statistics of BatchNorm stay with their client. "Ours" is the same method with
the library's guard and mixed statistics; its thresholds are chosen like any other setting.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from papers.fedmtl.sets import FedMTLPlan
from tacit.methods import (
    MOCHA,
    Ditto,
    FedAMP,
    FedAvg,
    FedFomo,
    FedMTL,
    FedProx,
    Local,
    Method,
    PFedMe,
)
from tacit.methods.fedmtl import VARIANTS

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Contender:
    """A method as it takes part in the comparison."""

    title: str
    kind: type[Method]
    fixed: Settings = field(default_factory=dict)
    tried: tuple[Settings, ...] = ()
    """Settings that validation rows choose from."""
    position: bool = False
    """Heads are averaged by their place among a client's own, as published baselines do."""
    like: str | None = None
    """The contender whose chosen settings this one takes."""

    def method(self, plan: FedMTLPlan, settings: Settings) -> Method:
        local = {"local_steps": plan.local_steps, "batch": plan.batch}
        return self.kind(**{**local, **self.fixed, **settings})


def _grid(**values: tuple[Any, ...]) -> tuple[Settings, ...]:
    return tuple(dict(zip(values, each)) for each in itertools.product(*values.values()))


_THRESHOLDS = ((0.0, 0.0), (0.5, 0.75), (0.75, 0.95))
_OURS = tuple(
    {"threshold": first, "last_threshold": last, **other}
    for first, last in _THRESHOLDS
    for other in _grid(lr=(0.3, 1.0))
)
_ABOUT_1 = _grid(lr=(0.3, 1.0))
_MOREAU = tuple({"inner_lr": each["lr"], **each} for each in _grid(lr=(0.3,), pull=(1.0, 3.0)))
AS_PUBLISHED = {"min_peers": 1, "threshold": 0.75, "last_threshold": 0.95, "statistics": "own"}

CONTENDERS: dict[str, Contender] = {
    "fedmtl": Contender("FedMTL, as published", FedMTL, AS_PUBLISHED, _grid(lr=(0.1, 0.3, 1.0))),
    "fedmtl-ours": Contender(
        "FedMTL, ours", FedMTL, {"min_peers": 2, "statistics": "mixed"}, _OURS
    ),
    "fedavg-position": Contender("FedAvg, heads by position", FedAvg, {}, _ABOUT_1, position=True),
    "fedavg": Contender("FedAvg, heads by task", FedAvg, {}, _ABOUT_1),
    "local": Contender("alone", Local, {}, _ABOUT_1),
    "fedprox-position": Contender(
        "FedProx, heads by position", FedProx, {"pull": 0.1}, _ABOUT_1, position=True
    ),
    "fedprox": Contender("FedProx, heads by task", FedProx, {"pull": 0.1}, _ABOUT_1),
    "mocha": Contender("MOCHA", MOCHA, {}, _grid(lr=(0.3,), pull=(0.01, 0.1, 1.0))),
    "fedfomo": Contender("FedFomo", FedFomo, {"peers": 5}, _grid(lr=(0.1, 0.3))),
    "fedamp": Contender(
        "FedAMP",
        FedAMP,
        {"pull": 0.1, "others": 1.0, "min_peers": 1},
        _grid(sigma=(1.0, 10.0), lr=(0.3, 1.0)),
    ),
    "fedmtl-g": Contender(
        "FedMTL-G, statistics mixed",
        FedMTL,
        VARIANTS["G"] | {"min_peers": 1, "statistics": "mixed"},
        _ABOUT_1,
    ),
    "pfedme-position": Contender(
        "pFedMe, heads by position", PFedMe, {"inner_steps": 3}, position=True, like="pfedme"
    ),
    "pfedme": Contender("pFedMe, heads by task", PFedMe, {"inner_steps": 3}, _MOREAU),
    "ditto": Contender("Ditto", Ditto, {"pull": 0.1}, _grid(lr=(1.0,))),
}
"""What matters most comes first: a table that was stopped is still of use."""

SHOWN: dict[str, tuple[str, ...]] = {
    "lfwa": tuple(CONTENDERS),
    "facea": tuple(name for name in CONTENDERS if name not in ("pfedme", "ditto")),
    "nyud2": ("fedmtl-ours", "fedmtl", "fedavg", "local"),
}
"""Which are run on which set: the costly ones (three times the gradients) not everywhere."""
WITH_D2 = ("fedmtl", "fedmtl-ours", "fedavg", "local")
"""Where clients have different numbers of heads, nothing can go by position."""

SEARCHED: dict[str, tuple[str, ...]] = {
    "lfwa": tuple(name for name, own in CONTENDERS.items() if own.like is None),
    "facea": ("fedmtl", "fedmtl-ours", "fedavg", "local"),
    "nyud2": ("local",),
}
"""Whose settings are chosen on the set itself; the others take those of lfwa."""
RATES = {"nyud2": (0.1, 0.3)}
"""Step sizes tried for training alone, and then used for all methods of the set."""
ABLATIONS: dict[str, Settings] = {
    "FedMTL": {},
    **{f"FedMTL-{name}": VARIANTS[name] for name in ("X", "G", "T", "J", "E")},
    "FedMTL, Z = 0.8": {"threshold": 0.8, "last_threshold": 0.8},
    "FedMTL, Z = 0.9": {"threshold": 0.9, "last_threshold": 0.9},
}
"""Figure 8, all as published but for these."""
SWEEP = (0.0, 0.25, 0.5, 0.75, 0.85, 0.95)
"""Thresholds that stay where they are."""


def swept(plan: FedMTLPlan, threshold: float) -> Method:
    """FedMTL with mixed statistics and a fixed threshold: the question is who is mixed with."""
    return FedMTL(
        threshold=threshold,
        last_threshold=threshold,
        statistics="mixed",
        min_peers=1,
        lr=0.3,
        local_steps=plan.local_steps,
        batch=plan.batch,
    )
