"""Fake results that look like real ones: every state of the guarantee, both kinds of score."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pytest

from tacit.engine.personalise import Personalised
from tacit.local.recipes import ALONE, Candidate, Recipe
from tacit.report.html import page

STATES = ("private", "weak", "seeded", "leaks", "none", "alone")


class Make(Protocol):
    def __call__(
        self, *, kind: str = ..., state: str = ..., tasks: int = ..., baselines: bool = ...,
        losers: int | None = ..., seed: int = ..., epsilon: float = ..., method: str = ...,
    ) -> dict[str, Any]: ...  # fmt: skip


def fake_guarantee(state: str, epsilon: float) -> dict[str, Any]:
    alone, none = state == "alone", state == "none"
    value = 0.0 if alone else None if none else 14.2 if state == "weak" else epsilon
    leaks = ["scaling was fitted over all tasks without noise"] if state == "leaks" else []
    protects = (
        "nothing leaves a task"
        if alone
        else "protects nobody: sums are published without noise"
        if none
        else "protects each task from all others together, whatever they share among themselves"
    )
    words = "nothing was released: every task trained alone (ε=0)" if alone else (
        "no privacy (ε=∞): protects nobody: sums are published without noise" if none else
        f"ε={value:.2f} at δ=0.00154, any one task added or removed, Poisson cohorts q=0.5, "
        f"200 releases, PLD accountant; {protects}"
    )  # fmt: skip
    if state == "seeded":
        words += "; reproducible, not private: the noise comes from a seed"
    words += "".join(f"; not private: {leak}" for leak in leaks)
    return {
        "epsilon": value,
        "delta": None if alone or none else 1 / 650,
        "neighbours": None if alone or none else "add-remove",
        "sampling": None if alone else "Poisson cohorts q=0.5",
        "accountant": None if alone or none else "PLD",
        "releases": 0 if alone or none else 200,
        "noise_multiplier": None if alone else 0.0 if none else 12.934567 * 2 / epsilon,
        "clip": None if alone or none else 0.5,
        "private": state in ("private", "weak", "alone"),
        "channel": "nothing" if alone else "billboard",
        "seeded": state == "seeded",
        "protects": protects,
        "trusts": "nobody has to be trusted" if alone else
        "the machine that sums sees each clipped contribution; personal models stay with their "
        "tasks and must not be handed to others",
        "assumptions": ["the schema and the category names are public",
                        "the number of tasks is public"],
        "leaks": leaks,
        "in_words": words,
    }  # fmt: skip


ENDED = (
    Candidate(ALONE, 3),
    Candidate(Recipe("billboard", "mean", 0.1), 2),
    Candidate(Recipe("billboard", "mean", 1.0), 2),
    Candidate(Recipe("own"), 0),
    Candidate(Recipe("billboard"), 1),
)


def fake_models(names: list[str]) -> dict[str, Any]:
    made = Personalised("best", [{ENDED[k % len(ENDED)]: 1.0} for k in range(len(names))])
    return json.loads(json.dumps(made.to_json(names)))


def fake_result(
    *, kind: str = "regression", state: str = "private", tasks: int = 65, baselines: bool = True,
    losers: int | None = None, seed: int = 0, epsilon: float = 1.98, method: str = "pmtl",
) -> dict[str, Any]:  # fmt: skip
    rng = np.random.default_rng([seed, tasks])
    regression = kind == "regression"
    rows = np.maximum(1, rng.lognormal(3.0, 0.7, tasks)).astype(int)
    help_ = rng.normal(0.6, 0.6, tasks) / np.sqrt(rows / 10) * (1 - 0.3 / epsilon)
    if losers is not None:
        help_ = np.abs(help_) + 0.01
        help_[:losers] *= -1
    if regression:
        alone = rng.lognormal(-0.25, 0.35, tasks)
        mine = alone * np.exp(-0.35 * help_)
        main, per_task, higher = "nmse_pooled", "mse", False
    else:
        alone = 1 / (1 + np.exp(-rng.normal(1.1, 0.5, tasks)))
        mine = np.clip(alone + 0.12 * help_, 0.02, 0.99)
        main, per_task, higher = "accuracy", "accuracy", True
    common = np.clip(alone * rng.normal(1.0, 0.1, tasks), 0.02, 0.99 if higher else 9.0)
    names = [f"school-{k + 1}" for k in range(tasks)]

    def block(values: np.ndarray) -> dict[str, Any]:
        ordered = np.sort(values)
        tenth = math.ceil(tasks / 10)
        overall: dict[str, Any] = {
            "loss": float(values.mean()) if regression else float(-np.log(values).mean()),
            main: float(np.average(values, weights=rows)),
            "worst_tenth": float((ordered[:tenth] if higher else ordered[-tenth:]).mean()),
        }
        each = {}
        for k, name in enumerate(names):
            each[name] = {"rows": int(rows[k]), "loss": float(values[k])}
            each[name][per_task] = float(values[k])
            if not regression:
                each[name]["auc"] = None
        if not regression:
            overall["auc"] = None
        return {"overall": overall, "per_task": each}

    run = block(mine)
    guarantee = fake_guarantee(state, epsilon)
    rounds = np.arange(0, 201, 5)
    last, first = run["overall"][main], (0.5 if higher else 1.0)
    path = last + (first - last) * np.exp(-rounds / 35) + rng.normal(0, 0.004, len(rounds))
    spent = guarantee["epsilon"]
    metrics = {
        "part": "test",
        "label": "not covered by the guarantee",
        "personal_models": fake_models(names),
        "main": {"name": main, "per_task": per_task, "higher_is_better": higher},
        **run,
    }
    if baselines:
        metrics["baselines"] = {"local": block(alone), "global": block(common)}
    return {
        "tacit": "0.1.0",
        "guarantee": guarantee,
        "metrics": metrics,
        "curve": [
            {"round": int(r), "loss": float(v), main: float(v),
             "epsilon": None if spent is None else float(spent * math.sqrt(r / 200))}
            for r, v in zip(rounds, path, strict=True)
        ],
        "federation": {
            "source": "exam" if regression else "digits", "tasks": tasks, "kind": kind,
            "rows": {"train": int(rows.sum() * 3), "validation": int(rows.sum()),
                     "test": int(rows.sum())},
            "features": ["standLRT", "girl", "school gender"], "smallest": 2, "largest": 198,
        },
        "config": {"method": method, "pull": 1.0, "clip": 0.5, "local_steps": 5, "lr": 0.1,
                   "rounds": 200, "cohort": 0.5, "epsilon": epsilon, "seed": seed},
        "timing": {"seconds": 12.345678, "rounds_per_second": 16.2, "device": "cpu"},
        "stopped": None,
    }  # fmt: skip


@pytest.fixture
def make() -> Make:
    return fake_result


@pytest.fixture(scope="session")
def rendered() -> Callable[..., str]:
    """Pages of untouched fake results: those that several tests look at are drawn once."""
    return functools.cache(lambda **chosen: page(fake_result(**chosen)))
