"""What is trained on which data set: as in the paper, on stand-ins, and reduced for a CPU.

Where the choices come from:

| version  | settings                                                                          |
|----------|-----------------------------------------------------------------------------------|
| full     | the paper's appendix A.5 and the authors' scripts: rounds, q = 100, η, halving, λ; |
|          | γ is the middle of their grid                                                     |
| stand-in | images: the paper's network, q = 100 and halving; pull, clip, step size, noise     |
|          | and rounds are in `chosen.csv`, by method and ε (`choices`); words: in advance     |
| linear   | a linear layer on a fixed public representation of images (`LINEAR`), for figures  |
|          | that do not rank methods: fixed in advance, one setting for all ε                  |
| reduced  | fixed in advance: fewer writers and rounds                                        |

The paper picks clip, noise and rounds for each ε by validation accuracy too. A choice made on
validation rows is not covered by ε, and every page says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from papers.common.cells import CellFile
from tacit.methods import PMTL, PPSGD, FedAvg, FedProx, Method, NaiveDP

Version = Literal["full", "stand-in", "linear", "reduced"]
EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 4.0)
"""The paper's grid (section 5.2)."""
FEW = (0.1, 0.8, 2.0)
"""Those of its tables."""
REDUCED = {0.1, 0.8, 4.0}
LEFT_OUT = {"fedprox"}
"""Methods and ε of the reduced version: FedProx is nearly FedAvg."""
KINDS: dict[str, type[Method]] = {
    "pmtl": PMTL,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "naive": NaiveDP,
    "ppsgd": PPSGD,
}


@dataclass(frozen=True)
class PMTLPlan:
    """How the methods are trained on one data set."""

    model: str
    rounds: int
    cohort: int
    """Expected number of tasks per round (Poisson)."""
    steps: Mapping[str, Any]
    """Local training, the same for all methods: also what training alone uses."""
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a method has of its own: clip, pull."""
    noise: float | None = None
    """Multiplier of the clip; None is as little as ε allows."""

    def method(self, name: str, **other: Any) -> Method:
        return KINDS[name](**{**self.steps, **self.own[name], **other})

    def expected(self, tasks: int) -> int:
        return min(self.cohort, tasks)

    def with_setting(self, method: str, setting: Setting) -> PMTLPlan:
        """With what was chosen for one method and one ε."""
        own = {name: getattr(setting, name) or self.own[method][name] for name in self.own[method]}
        return dataclasses.replace(
            self,
            rounds=setting.rounds,
            steps={**self.steps, "lr": setting.lr},
            own={**self.own, method: own},
            noise=setting.noise,
        )


@dataclass(frozen=True)
class Setting:
    """What may be chosen for a method and an ε."""

    lr: float
    clip: float
    """0 where nothing is clipped, without privacy."""
    pull: float
    """0 for methods that have none."""
    noise: float
    """Multiplier of the clip; 0 without privacy."""
    rounds: int


@dataclass(frozen=True)
class ChosenSetting(Setting):
    """One line of chosen.csv."""

    set: str
    version: str
    method: str
    epsilon: float
    accuracy: float
    """Mean over tasks, of validation rows."""
    tried: int
    """Settings that were compared for this ε."""

    @property
    def key(self) -> tuple[str, str, str, float]:
        return self.set, self.version, self.method, self.epsilon


CHOSEN = CellFile(Path(__file__).with_name("chosen.csv"), ChosenSetting).rows
"""By data set, version, method and ε; what is not in it is planned in advance."""
AS = {"naive": "pmtl"}
"""Methods that take another one's choice."""


def _own(clip: float, pull: float, **other: dict[str, Any]) -> dict[str, dict[str, Any]]:
    own: dict[str, dict[str, Any]] = {
        "pmtl": {"clip": clip, "pull": pull},
        "naive": {"clip": clip, "pull": pull},
        "fedavg": {"clip": clip},
        "fedprox": {"clip": clip, "pull": pull},
        "ppsgd": {"clip": clip},
    }
    return {name: values | other.get(name, {}) for name, values in own.items()}


LINEAR = ("pmtl/figure1", "pmtl/figure2", "pmtl/figure4")
"""Their images are seen through the representation `strokes` (`tacit.data.representation`)."""
STEPS = {"lr": 0.1, "local_steps": 5, "batch": 10}
IMAGES = STEPS | {"halve_every": 200}
PLANS: dict[tuple[str, Version], PMTLPlan] = {
    ("femnist", "full"): PMTLPlan(
        "cnn",
        1000,
        100,
        {"lr": 0.1, "local_steps": 2, "batch": 100, "halve_every": 200},
        _own(0.5, 0.05),
    ),
    ("stackoverflow", "full"): PMTLPlan(
        "bag",
        600,
        100,
        {"lr": 0.1, "local_steps": 2, "batch": 100, "halve_every": 200},
        _own(0.5, 0.05),
    ),
    ("celeba", "full"): PMTLPlan(
        "celeba-cnn",
        1000,
        100,
        {"lr": 0.1, "local_steps": 1, "batch": 100, "halve_every": 100},
        _own(0.5, 0.05),
    ),
    ("writers", "stand-in"): PMTLPlan("cnn", 100, 100, IMAGES, _own(0.2, 0.5)),
    ("femnist", "stand-in"): PMTLPlan("cnn", 100, 100, IMAGES, _own(0.2, 0.5)),
    ("writers", "linear"): PMTLPlan("linear", 60, 270, STEPS, _own(0.2, 0.1)),
    ("femnist", "linear"): PMTLPlan("linear", 60, 100, STEPS, _own(0.2, 0.1)),
    ("stackoverflow", "stand-in"): PMTLPlan(
        "bag",
        60,
        100,
        {"lr": 20.0, "local_steps": 5, "batch": 10},
        _own(2.0, 0.002),
    ),
    ("writers", "reduced"): PMTLPlan("linear", 20, 25, STEPS, _own(0.1, 0.1)),
    ("femnist", "reduced"): PMTLPlan("linear", 20, 25, STEPS, _own(0.1, 0.1)),
    ("stackoverflow", "reduced"): PMTLPlan(
        "bag",
        20,
        25,
        {"lr": 20.0, "local_steps": 5, "batch": 10},
        _own(2.0, 0.002),
    ),
}


def plan_of(key: str, version: Version) -> PMTLPlan:
    return PLANS[key, version]


def chosen_plan(key: str, version: Version, method: str, epsilon: float) -> PMTLPlan:
    """What a method is trained with for this ε: as chosen, or else as planned for all."""
    plan = PLANS[key, version]
    choice = CHOSEN.get((key, version, AS.get(method, method), epsilon))
    return plan if choice is None else plan.with_setting(method, choice)
