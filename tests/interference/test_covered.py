"""All that is published of a run, and all that other tasks have of it, is a function of releases.

Where a run is handed the releases of another one, whose table differs in one task, nothing else may
differ but what is that task's own.
"""

from __future__ import annotations

from typing import Any

import pytest

import tacit
from tacit import data
from tacit.experiment.run import Run
from tests.interference.replay import CHANGES, Go, Table, rows_of, told

NOISY = tacit.Privacy(noise=5.0)
PERSONS = tacit.Privacy(unit="person", persons=150, noise=5.0, delta=1e-3)
SEVERAL = tacit.Privacy(unit="person", persons=150, noise=5.0, delta=1e-3, at_most=3)
CASES: dict[str, dict[str, Any]] = {
    "mixed": {},
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
    "additive, scaled by each task": {"method": "additive", "scale": "task"},
    "additive, public rows": {"method": "additive", "public": True},
    "additive, persons": {"method": "additive", "kind": "binary", "privacy": PERSONS},
    "clusters": {"method": "clusters", "kind": "binary", "rounds": 6},
    "cluster-priors": {"method": "cluster-priors"},
    "a network": {"kind": "binary", "model": "mlp", "rounds": 5},
    "a formula": {},
}
QUICK = {"few rows": ("mixed", "additive", "cluster-priors"), "many rows more": ("mixed, persons",)}


def runner(case: str) -> tuple[str, Go]:
    """The kind of target, and the run that a case is about."""
    given = dict(CASES[case])
    kind, scale = given.pop("kind", "regression"), given.pop("scale", "auto")
    public = given.pop("public", False)
    settings = {"privacy": NOISY, "baselines": False, "seed": 3} | given
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
        pytest.param(case, how, marks=() if case in QUICK.get(how, ()) else (pytest.mark.slow,))
        for case in CASES
        for how in CHANGES
    ],
)
def test_nothing_but_releases_goes_from_task_to_task(case, how, monkeypatch):
    kind, go = runner(case)
    assert told(monkeypatch, rows_of(kind), how, go) == []


@pytest.mark.parametrize("method", ["mixed", "additive"])
def test_constants_that_happen_to_be_alike_are_still_each_tasks_own(method, monkeypatch):
    """All tasks have the same years, so they scale them alike. That is a fact about their rows."""
    rows = rows_of("binary", alike=True)

    def go(table: Table) -> Run:
        parts: Any = {"validation": 0.0, "test": 0.0, "scale": "task", "kind": "binary"}
        few = {name: table[name] for name in ("site", "year", "y")}
        made = data.from_table(few, task="site", target="y", **parts)
        return tacit.train(made, method, privacy=NOISY, baselines=False, seed=3)

    assert told(monkeypatch, rows, "other values", go) == []
