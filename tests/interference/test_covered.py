"""All that is published of a run, and all that other tasks have of it, is a function of releases.

Where a run is handed the releases of another one, whose table differs in one task, nothing else may
differ but what is that task's own.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import data
from tacit.experiment.run import Run
from tests.interference.replay import CHANGES, Go, Table, changed, rows_of, told, without

NOISY, QUIET = (tacit.Privacy(noise=noise) for noise in (5.0, 0.05))
"""With so few tasks votes for units drown in the first, and are heard in the second."""
PERSONS = tacit.Privacy(unit="person", persons=150, noise=5.0, delta=1e-3)
SEVERAL = tacit.Privacy(unit="person", persons=150, noise=5.0, delta=1e-3, at_most=3)
CASES: dict[str, dict[str, Any]] = {
    "mixed": {},
    "mixed, units drown": {"privacy": NOISY},
    "mixed, scaled by each task": {"scale": "task"},
    "mixed, yes or no": {"kind": "binary"},
    "mixed, counts": {"kind": "count"},
    "mixed, classes": {"kind": "multiclass"},
    "mixed, times": {"kind": "survival"},
    "mixed, public rows": {"public": True},
    "mixed, persons": {"privacy": PERSONS},
    "mixed, persons at several tasks": {"privacy": SEVERAL, "kind": "binary"},
    "prior": {"method": "prior"},
    "additive": {"method": "additive"},
    "additive, units drown": {"method": "additive", "privacy": NOISY},
    "additive, scaled by each task": {"method": "additive", "scale": "task"},
    "additive, public rows": {"method": "additive", "public": True},
    "additive, persons": {"method": "additive", "kind": "binary", "privacy": PERSONS},
    "clusters": {"method": "clusters", "kind": "binary", "rounds": 6},
    "cluster-priors": {"method": "cluster-priors"},
    "a network": {"kind": "binary", "model": "mlp", "rounds": 5},
    "a formula": {},
}
ROUNDING = 1e-4
"""Of sums on a grid."""
SLOW = pytest.mark.slow
QUICK = {"few rows": ("mixed", "additive", "cluster-priors"), "many rows more": ("mixed, persons",)}


def runner(case: str) -> tuple[str, Go]:
    """The kind of target, and the run that a case is about."""
    given = dict(CASES[case])
    kind, scale = given.pop("kind", "regression"), given.pop("scale", "auto")
    public = given.pop("public", False)
    settings = {"privacy": QUIET, "baselines": False, "seed": 3} | given
    whose: dict[str, Any] = {}
    if settings["privacy"].unit == "person":  # in small tasks some part may have nobody
        whose = {"person": "who", "validation": 0.0, "test": 0.0}
    beside = {n: c for n, c in rows_of(kind, 6, 7).items() if n not in ("site", "who")}

    def go(table: Table) -> Run:
        rows = {n: c for n, c in table.items() if whose or n != "who"}
        if case == "a formula":
            return tacit.mixed("y ~ year + b + C(c) + (1 + b | site)", rows, **settings)
        known: dict[str, Any] = {"event": "event"} if kind == "survival" else {"kind": kind}
        known |= {"scale": scale, **whose, **({"public": beside} if public else {})}
        return tacit.train(data.from_table(rows, task="site", target="y", **known), **settings)

    return kind, go


@pytest.mark.parametrize(
    ("case", "how"),
    [
        pytest.param(case, how, marks=() if case in QUICK.get(how, ()) else SLOW)
        for case in CASES
        for how in CHANGES
    ],
)
def test_nothing_but_releases_goes_from_task_to_task(case, how, monkeypatch):
    kind, go = runner(case)
    rows = rows_of(kind)
    differ, away = told(monkeypatch, rows, changed(rows, how), go)
    assert differ == [] and away > 0
    if "persons" not in case:  # the task is replaced by another one
        assert away <= 2 + ROUNDING


PERSONAL = {
    "mixed": {},
    "mixed, yes or no": {"kind": "binary"},
    "mixed, counts": {"kind": "count"},
    "mixed, classes": {"kind": "multiclass"},
    "mixed, times": {"kind": "survival"},
    "additive": {"method": "additive", "kind": "binary"},
    "additive, numbers": {"method": "additive"},
    "gradients": {"method": tacit.FedAvg(local_steps=1, batch=None), "rounds": 6},
    "several steps": {"method": "fedavg", "kind": "binary", "rounds": 6},
    "every task its own noise": {"noise_by": "task"},
}


@pytest.mark.parametrize(
    ("case", "at_most"),
    [
        pytest.param(*pair, marks=() if pair in (("mixed", 3), ("gradients", 1)) else SLOW)
        for pair in itertools.product(PERSONAL, (1, 3))
    ],
)
def test_nobody_moves_a_sum_by_more_than_a_clip(case, at_most, monkeypatch):
    """One person, with rows that are as loud as they can be, at as many tasks as it may be."""
    given: dict[str, Any] = dict(PERSONAL[case])
    kind, noise_by = given.pop("kind", "regression"), given.pop("noise_by", "curator")
    privacy = tacit.Privacy(
        unit="person", persons=150, noise=5.0, delta=1e-3, at_most=at_most, noise_by=noise_by
    )
    rows = rows_of(kind, tasks=6)
    for site in dict.fromkeys(rows["site"]):
        own = np.flatnonzero(rows["site"] == site)[:3]
        if site in ("site-03", "site-04", "site-05")[:at_most]:
            rows["who"][own] = "anybody"
            rows["b"][own] = 1e6
    known: dict[str, Any] = {"event": "event"} if kind == "survival" else {"kind": kind}

    def go(table: Table) -> Run:
        parts = {"person": "who", "validation": 0.0, "test": 0.0}
        made = data.from_table(table, task="site", target="y", **known, **parts)
        settings = {"privacy": privacy, "baselines": False, "seed": 3} | given
        return tacit.train(made, **settings)

    differ, away = told(monkeypatch, rows, without(rows, "anybody"), go)
    assert 0.2 < away <= 1 + ROUNDING
    if at_most == 1:
        assert differ == []


@pytest.mark.parametrize("method", ["mixed", "additive"])
def test_constants_that_happen_to_be_alike_are_still_each_tasks_own(method, monkeypatch):
    """All tasks have the same years, so they scale them alike. That is a fact about their rows."""
    rows = rows_of("binary", alike=True)

    def go(table: Table) -> Run:
        parts: Any = {"validation": 0.0, "test": 0.0, "scale": "task", "kind": "binary"}
        few = {name: table[name] for name in ("site", "year", "y")}
        made = data.from_table(few, task="site", target="y", **parts)
        return tacit.train(made, method, privacy=NOISY, baselines=False, seed=3)

    differ, away = told(monkeypatch, rows, changed(rows, "other values"), go)
    assert differ == [] and away > 0
