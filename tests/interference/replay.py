"""Whole runs on two tables that differ in one task, with the very same releases.

The second run makes its sums as it must, and is then handed those of the first. So whatever still
differs came to it by another way than a release: `told` names it, but for what is the task's own
and what is labelled as not covered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tacit
from tacit.experiment.run import Run
from tacit.privacy.channel import Collection

TARGET = "site-03"
"""The task that differs."""
LABELLED = ("metrics", "curve", "timing", "groups", "verdict", "exchange")
"""Parts of result.json that carry the label themselves."""
COUNTED = ("rows", "smallest", "largest", "lacking")
"""Of the federation, likewise."""
Table = dict[str, np.ndarray]
Go = Callable[[Table], Run]


def rows_of(
    kind: str = "regression", tasks: int = 12, seed: int = 0, *, alike: bool = False
) -> Table:
    """Numbers far from zero, gaps, categories, 0 and 1, years; `alike`: all tasks have the same."""
    rng = np.random.default_rng(seed)
    counts = np.full(tasks, 12) if alike else rng.integers(8, 30, size=tasks)
    site = np.repeat([f"site-{k:02d}" for k in range(tasks)], counts)
    within = np.concatenate([np.arange(many) for many in counts])
    a, b = rng.normal(size=len(site)), 20 + 3 * rng.normal(size=len(site))
    score = a + (b - 20) / 3 + 0.5 * rng.normal(size=len(site))
    y = {
        "regression": 100 + 10 * score,
        "binary": (score > 0).astype(float),
        "count": np.round(np.exp(np.clip(score, -2, 2))),
        "multiclass": np.array(["k", "l", "m"])[np.digitize(score, [-1.0, 1.0])],
        "survival": 5 * np.exp(score / 2),
    }[kind]
    return {
        "site": site,
        "who": np.array([f"{k}-{n // 2}" for k, n in zip(site, within, strict=True)]),
        "year": 1970.0 + within % 6,
        "a": np.where(rng.random(len(site)) < 0.1, np.nan, a),
        "b": b,
        "c": np.array(["u", "v", "w"])[rng.integers(3, size=len(site))],
        "flag": rng.integers(2, size=len(site)).astype(float),
        "y": y,
    } | ({"event": (rng.random(len(site)) < 0.7) * 1.0} if kind == "survival" else {})


def _other_values(table: Table, own: np.ndarray) -> Table:
    table["a"][own] = 3 * table["a"][own] - 1
    table["b"][own] = 1.5 * table["b"][own][::-1] + 7
    table["year"][own] += np.arange(len(own)) % 3
    table["flag"][own] = 1 - table["flag"][own]
    table["y"][own] = np.roll(table["y"][own], 2)
    return table


def _many_rows_more(table: Table, own: np.ndarray) -> Table:
    """Of persons who were not there."""
    more = np.resize(own, 70)
    longer = {name: np.concatenate([column, column[more]]) for name, column in table.items()}
    longer["who"][-70:] = [f"new-{k}"[:9] for k in range(70)]
    return longer


def _few_rows(table: Table, own: np.ndarray) -> Table:
    """Too few to scale a column, to be judged, or to grow trees."""
    keep = ~np.isin(np.arange(len(table["site"])), own[3:])
    return {name: column[keep] for name, column in table.items()}


def _constant(table: Table, own: np.ndarray) -> Table:
    for name, value in (("a", 2.5), ("b", 20.0), ("year", 1972.0), ("flag", 0.0)):
        table[name][own] = value
    return table


CHANGES = {
    "other values": _other_values,
    "many rows more": _many_rows_more,
    "few rows": _few_rows,
    "constant columns": _constant,
}


def without(table: Table, person: str) -> Table:
    """As if this person had never been anywhere."""
    return {name: column[table["who"] != person] for name, column in table.items()}


def changed(table: Table, how: str) -> Table:
    copy = {name: column.copy() for name, column in table.items()}
    return CHANGES[how](copy, np.flatnonzero(table["site"] == TARGET))


def told(monkeypatch: Any, table: Table, other: Table, go: Go) -> tuple[list[str], float]:
    """What differs between the runs, by name, and how far apart their sums are at most, in clips.

    Both hear the same after every round, so sums are compared at the same billboards.
    """
    releases: list[Tensor] = []
    sums: list[list[Tensor]] = [[], []]
    opened = Collection._Collection__opened  # type: ignore[attr-defined]
    turn = 0

    def replayed(self: Collection, size: int) -> Tensor:
        found = opened(self, size)
        sums[turn].append(found.clone())
        if turn == 0:
            releases.append(found.clone())
        return releases[len(sums[turn]) - 1].clone()

    monkeypatch.setattr(Collection, "_Collection__opened", replayed)
    first = dict(seen(go(table), table))
    turn = 1
    second = dict(seen(go(other), table))
    names = sorted(first.keys() | second.keys())
    away = [float(torch.linalg.vector_norm(a - b)) for a, b in zip(*sums, strict=True)]
    differ = [name for name in names if not _same(first.get(name), second.get(name))]
    return differ, max(away)


def seen(run: Run, table: Table) -> Iterator[tuple[str, Any]]:
    """What is published of a run, and what all tasks but the target have of it."""
    result = json.loads(json.dumps(run.to_json()))
    for name in LABELLED:
        result.pop(name)
    for name in COUNTED:
        result["federation"].pop(name)
    if "shapes" in result:
        for column in result["shapes"]["columns"]:
            column.pop("own")
    yield from _flat("result.json", result)
    federation = run.federation
    for number, name in enumerate(federation.names):
        if name != TARGET:
            few = np.flatnonzero(table["site"] == name)[:5]
            rows = {column: values[few] for column, values in table.items()}
            yield f"predictions of {name}", run.predict(rows)
            yield f"model of {name}", run.models(torch.tensor([number]))[0].numpy()
    few = np.flatnonzero(table["site"] != TARGET)[:12]
    guest = {column: values[few] for column, values in table.items()}
    guest["site"] = np.array(["somebody new"] * len(few))
    yield "predictions of somebody new", _tried(run, guest)
    if run.simulation.method.joins:
        yield "predictions of somebody who joins", _tried(run, guest, join=guest)


def _tried(run: Run, rows: Table, **join: Any) -> Any:
    try:
        return run.predict(rows, **join)
    except tacit.TacitError as error:
        return str(error)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _flat(f"{name}: {key}", part)
    else:
        yield name, value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and bool(one == other)
