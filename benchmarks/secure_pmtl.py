"""What noise inside costs: PMTL summed by one machine and by three servers, at the same ε.

The demo's data and settings (verbal aggression, 316 people), as the method leaves the models. Only
one honest server's noise counts for ε, so an opened sum has √3 times the noise of the central one.
Both curators get the same seeds, cohorts and noise multiplier, but draw other noise.

At ε = 1 and 4 noise hardly moves the accuracy, whoever sums, so a loss could not be seen there. It
can at ε = 0.1, and in the log loss; both are printed. MP-MTL, whose covariance is released the same
way, runs on the same people with its default settings, which are not tuned for them (its accuracy
is below that of training alone): it shows that curators agree, and nothing about the method.

    python benchmarks/secure_pmtl.py [--seeds 5] [--servers 3]
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from typing import Any

import tacit
from tacit.demos.tables import COHORT, ROUNDS, demo_data
from tacit.experiment.run import Run
from tacit.methods import Method

EPSILONS = (4.0, 1.0, 0.1)
METHODS: dict[str, tuple[Method, dict[str, Any]]] = {
    "PMTL": (
        tacit.PMTL(lr=1.0, batch=None, clip=0.3, pull=0.1),
        {"rounds": ROUNDS, "cohort": COHORT},
    ),
    "MPMTL": (tacit.MPMTL(), {"rounds": 10}),
}
SCORES = {"accuracy": (100.0, "%", 2), "loss": (1.0, "log loss", 4)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--servers", type=int, default=3)
    asked = parser.parse_args()
    federation, words = demo_data()
    print(f"{words}; test answers, mean ± sd over {asked.seeds} seeds")
    curators = {"central": None, "secure": tacit.Secure(servers=asked.servers)}
    for name, (method, settings) in METHODS.items():
        for epsilon in EPSILONS:
            runs: dict[str, list[Run]] = {}
            for label, curator in curators.items():
                begin = time.perf_counter()
                runs[label] = [
                    tacit.train(
                        federation, method, privacy=tacit.Privacy(epsilon=epsilon), seed=seed,
                        curator=curator, personalise="none", baselines=False, **settings,
                    )
                    for seed in range(asked.seeds)
                ]  # fmt: skip
                seconds = (time.perf_counter() - begin) / asked.seeds
                spent = max(run.guarantee.epsilon for run in runs[label])
                shown = ", ".join(_spread(_scores(runs[label], key), key) for key in SCORES)
                told = f"ε spent {spent:.3f}, {seconds:.1f} s a run"
                print(f"{name:6} ε = {epsilon:<4g} {label:8} {shown} ({told})")
            print(f"{name:6} ε = {epsilon:<4g} secure − central: {_apart(runs)}", flush=True)


def _scores(runs: list[Run], key: str) -> list[float]:
    return [SCORES[key][0] * float(run.measured.overall[key] or 0) for run in runs]


def _spread(values: list[float], key: str) -> str:
    _, unit, digits = SCORES[key]
    return f"{statistics.mean(values):.{digits}f} ± {_sd(values):.{digits}f} {unit}"


def _apart(runs: dict[str, list[Run]]) -> str:
    """Differences seed by seed: their mean and its standard error."""
    words = []
    for key, (_, unit, digits) in SCORES.items():
        pairs = zip(_scores(runs["central"], key), _scores(runs["secure"], key), strict=True)
        apart = [secure - central for central, secure in pairs]
        error = _sd(apart) / math.sqrt(len(apart))
        unit = "points" if unit == "%" else unit
        words.append(f"{statistics.mean(apart):+.{digits}f} {unit} (s.e. {error:.{digits}f})")
    return ", ".join(words)


def _sd(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
