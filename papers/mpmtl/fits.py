"""Every compared method as one function: a trial, an ε, settings and a seed give models [m, d].

Private methods run on the library's engine. All noise is Gaussian over all tasks, so T releases of
relative precision p_t have the ε of one release if the noise of each is √(Σ p_t²)/p_t times as
large: one calibrated number serves every schedule (and machines without an accountant).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from papers.common.noise import NoiseTable
from papers.mpmtl.data_level import RowMoments, dp_aggr, dp_mtrl
from papers.mpmtl.fast import Batched, run
from papers.mpmtl.trials import MPMTLTrial
from papers.mpmtl.wishart import PrintedMPMTL
from tacit import classical
from tacit.classical import Choice, Problem, Solver, cross_validate, strongest
from tacit.data.federation import Rows
from tacit.engine.simulate import Simulation
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.local.flat import build
from tacit.methods import OnBillboard, SharedPrior
from tacit.methods.mpmtl import MPMTL
from tacit.models import MODELS
from tacit.privacy import Everyone, Privacy
from tacit.randomness import Randomness

Settings = Mapping[str, Any]
Mechanism = Literal["gaussian", "2K", "K2"]
"""The sound one, or the printed one with this sensitivity."""
KEPT = 4
FOLDS = 3
"""Of the cross-validation of non-private methods (the paper has 5)."""
STRATEGIES: dict[str, dict[str, Any]] = {
    "plain": {"accelerated": False},
    "accelerated": {"accelerated": True},
    "strong": {"accelerated": False, "ridge": 1e-3},
    "strong-accelerated": {"accelerated": True, "ridge": 1e-3},
}
"""The paper's optimisation strategies; µ = 10⁻³ as there."""
STEP = {"low-rank": 6.0, "group-sparse": 6.0, "school": 0.08, "school-fixed": 0.08, "lsoa2": 0.04}
"""η: a little below one over the largest eigenvalue of a task's mean xxᵀ."""
BOUND = {"low-rank": 30.0, "group-sparse": 30.0, "school": 3.0, "school-fixed": 3.0, "lsoa2": 1.0}
"""B: targets of the data-level methods are clipped to [−B, B]; public."""


@dataclass(frozen=True)
class MPMTLBench:
    """Where and with which noise private methods run."""

    noise: NoiseTable
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    _batched: dict[int, tuple[MPMTLTrial, Batched]] = field(default_factory=dict)
    """The trials that were last prepared, by identity."""

    def batched(self, trial: MPMTLTrial) -> Batched:
        if id(trial) not in self._batched:
            if len(self._batched) >= KEPT:
                self._batched.pop(next(iter(self._batched)))
            self._batched[id(trial)] = trial, Batched(trial, self.device)
        return self._batched[id(trial)][1]

    def iterate(
        self,
        trial: MPMTLTrial,
        method: MPMTL,
        rounds: int,
        epsilon: float,
        seed: int,
        **more: Any,
    ) -> Tensor:
        """MP-MTL by `fast`."""
        one = self.noise.multiplier(epsilon, trial.delta, Everyone(), 1)
        method = asked(method, trial, rounds, epsilon, seed)
        return run(self.batched(trial), method, rounds, one, seed, **more).cpu()

    def simulation(
        self, trial: MPMTLTrial, method: OnBillboard, rounds: int, epsilon: float, seed: int
    ) -> Simulation:
        """Ready to run. A printed mechanism gets its ε, all others calibrated noise."""
        delta, sampler, randomness = trial.delta, Everyone(), Randomness.of(seed)
        method, privacy = asked(method, trial, rounds, epsilon, seed), None
        if not isinstance(method, PrintedMPMTL):
            one = self.noise.multiplier(epsilon, delta, sampler, 1)
            weights = method.weights(rounds, 0) or (1.0,) * rounds
            every = one * math.sqrt(sum(weight**2 for weight in weights))
            privacy = Privacy(noise=every, delta=delta, sampling="everyone")
        federation = trial.federation.to(self.device)
        model = build(MODELS[trial.model], federation, randomness.key("model", 0)).to(self.device)
        plan = Plan(method=method, privacy=privacy, rounds=rounds)
        return simulation_of(plan, federation, model, sampler, randomness, self.device)

    def train(
        self, trial: MPMTLTrial, method: OnBillboard, rounds: int, epsilon: float, seed: int
    ) -> Tensor:
        """Any method, by the engine."""
        simulation = self.simulation(trial, method, rounds, epsilon, seed)
        simulation.run()
        return models(simulation)


def asked(method: Any, trial: MPMTLTrial, rounds: int, epsilon: float, seed: int) -> Any:
    """The method with what is asked of this run: a printed mechanism draws its own noise."""
    if not isinstance(method, PrintedMPMTL):
        return method
    printed = {"printed_epsilon": epsilon, "printed_delta": trial.delta}
    return dataclasses.replace(method, rounds=rounds, seed=seed, **printed)


def models(simulation: Simulation) -> Tensor:
    """The tasks' models [m, d], an intercept last."""
    every = torch.arange(len(simulation.federation), device=simulation.device)
    return simulation.personal(every)[0].cpu()


# --- private ---


def mpmtl_of(
    trial: MPMTLTrial,
    structure: Literal["low-rank", "group-sparse"],
    mechanism: Mechanism,
    settings: Settings,
) -> tuple[MPMTL, int]:
    """Algorithm 2 or 3 with these settings, and T."""
    given: dict[str, Any] = dict(settings)
    rounds = given.pop("rounds")
    strategy = STRATEGIES[given.pop("strategy", "plain")]
    growth, q = given.pop("growth", None), given.pop("q", None)
    given["growth"] = q if "ridge" in strategy else growth  # with a ridge, the library has Q here
    every: dict[str, Any] = {"structure": structure, "lr": STEP[trial.key], **strategy, **given}
    if mechanism == "gaussian":
        return MPMTL(**every), rounds
    return PrintedMPMTL(sensitivity=mechanism, rounds=rounds, **every), rounds


def _mpmtl(structure: Any, mechanism: Any) -> Private:
    def fit(
        bench: MPMTLBench, trial: MPMTLTrial, epsilon: float, settings: Settings, seed: int
    ) -> Tensor:
        given = dict(settings)
        floor = given.pop("floor", True)
        method, rounds = mpmtl_of(trial, structure, mechanism, given)
        return bench.iterate(trial, method, rounds, epsilon, seed, floor=floor)

    return fit


def ours(
    bench: MPMTLBench, trial: MPMTLTrial, epsilon: float, settings: Settings, seed: int
) -> Tensor:
    given = dict(settings)
    rounds = given.pop("rounds", 1)
    return bench.train(trial, SharedPrior(**given), rounds, epsilon, seed)


def _data_level(
    bench: MPMTLBench, trial: MPMTLTrial, epsilon: float, settings: Settings, seed: int
) -> Tensor:
    given, randomness = dict(settings), Randomness.of(seed)
    moments = RowMoments(trial.federation, BOUND[trial.key], trial.intercept)
    if given.pop("method") == "dp-aggr":
        return dp_aggr(moments, epsilon, trial.delta, randomness=randomness, **given)
    return dp_mtrl(moments, epsilon, trial.delta, randomness=randomness, **given)


Private = Callable[[MPMTLBench, MPMTLTrial, float, Settings, int], Tensor]
PRIVATE: dict[str, Private] = {
    "printed-lr": _mpmtl("low-rank", "2K"),
    "printed-gs": _mpmtl("group-sparse", "2K"),
    "units-lr": _mpmtl("low-rank", "K2"),
    "units-gs": _mpmtl("group-sparse", "K2"),
    "valid-lr": _mpmtl("low-rank", "gaussian"),
    "valid-gs": _mpmtl("group-sparse", "gaussian"),
    "ours": ours,
    "ours-half": ours,
    "dp-mtrl": _data_level,
    "dp-aggr": _data_level,
}

# --- not private: strengths by cross-validation on the training rows ---

_POWERS = tuple(10.0**k for k in (-4, -3.5, -3, -2.5, -2, -1.5, -1))
PLAIN: dict[str, Sequence[float]] = {
    "ridge": _POWERS,
    "mean-regularised": (1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0),
    "relationship": (1e-4, 10**-3.5, 1e-3, 1e-2),
}
"""Strengths to choose from on made-up data (rows of length one)."""
PLAIN_REAL: dict[str, Sequence[float]] = {
    "ridge": (1e-2, 0.03, 0.1, 0.3, 1.0),
    "mean-regularised": (0.1, 0.3, 1.0, 3.0, 10.0),
    "relationship": (1e-3, 1e-2, 0.1, 1.0),
}
"""The same for real data."""
HALVINGS = {"lasso": (6, 7, 8, 9), "trace-norm": (4, 5, 6, 7), "group-sparse": (4, 5, 6, 8)}
"""For norms: how often the strongest penalty that leaves anything is halved."""
HALVINGS_REAL = {"lasso": (3, 4, 5, 6), "trace-norm": (2, 3, 4, 5), "group-sparse": (2, 3, 4, 5)}
STL = ("ridge", "lasso")
MTL = ("trace-norm", "group-sparse", "relationship", "mean-regularised")


def not_private(trial: MPMTLTrial, name: str) -> tuple[Tensor, Choice]:
    """Models of a classical method, and how its strength was chosen."""
    kind: Any = trial.federation.kind
    rows, intercept = trial.federation.train, trial.intercept
    if name == "mean-regularised" and intercept:  # levels are pulled to their mean like slopes
        x = torch.cat([rows.x, torch.ones_like(rows.x[:, :1])], dim=1)
        rows, intercept = Rows(x, rows.y, rows.offsets), False
    problem = Problem.of(rows, kind, intercept=intercept)
    solver: Solver = classical.SOLVERS[name]
    plain, halvings = (PLAIN_REAL, HALVINGS_REAL) if trial.intercept else (PLAIN, HALVINGS)
    if name in halvings:
        most = strongest(problem, solver)
        strengths: Sequence[float] = [most * 0.5**k for k in halvings[name]]
    else:
        strengths = plain[name]
    choice = cross_validate(solver, problem, strengths, folds=FOLDS)
    return choice.fit.w, choice
