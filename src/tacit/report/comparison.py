"""Several results side by side: runs that share everything but the seed count as one."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.report.scores import Score, against_alone, baseline, number, overall_score, task_score
from tacit.report.words import State, epsilon_text, plain, state

_PRIVACY = ("privacy", "epsilon", "delta", "noise", "noise_multiplier")
"""Settings that move a run along the ε axis, and so do not make another line."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over runs; a single run has no deviation."""

    mean: float
    sd: float | None

    def text(self, kind: Score, decimals: int) -> str:
        mean = kind.text(self.mean, decimals)
        if self.sd is None or not math.isfinite(self.mean):
            return mean
        return f"{mean} ± {kind.text(self.sd, decimals, sign=True).lstrip('+')}"


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only."""

    names: tuple[str, ...]
    results: tuple[Mapping[str, Any], ...]
    series: str
    """The method, with the settings that tell it from its likes."""

    @property
    def first(self) -> Mapping[str, Any]:
        return self.results[0]

    @property
    def label(self) -> str:
        more = len(self.names) - 1
        return self.names[0] + (f" and {more} more" if more else "")

    @property
    def data(self) -> tuple[str, str]:
        """Runs are comparable within this: same source, same score."""
        return str(self.first["federation"]["source"]), self.score.name

    @property
    def score(self) -> Score:
        return overall_score(self.first)

    @property
    def task_score(self) -> Score:
        return task_score(self.first)

    @property
    def state(self) -> State:
        """The worst of its runs: one seeded run does not hide among private ones."""
        return max((state(r["guarantee"]) for r in self.results), key=lambda s: s.severity)

    @property
    def epsilon(self) -> float:
        """The greatest of its runs; infinite without privacy, zero when nothing was released."""
        return max(_epsilon(result["guarantee"]) for result in self.results)

    @property
    def epsilon_text(self) -> str:
        worst = max(self.results, key=lambda r: _epsilon(r["guarantee"]))["guarantee"]
        unit = worst.get("unit") or "task"
        return epsilon_text(worst) + ("" if unit == "task" else f" ({unit})")

    @property
    def main(self) -> Spread:
        return spread(r["metrics"]["overall"].get(self.score.name) for r in self.results)

    @property
    def worst_tenth(self) -> Spread:
        return spread(r["metrics"]["overall"].get("worst_tenth") for r in self.results)

    @property
    def losing(self) -> float | None:
        """Mean share of tasks that do worse than alone; None without that baseline."""
        found = [tasks for tasks in map(against_alone, self.results) if tasks]
        return statistics.fmean(t.losing / len(t) for t in found) if found else None

    @property
    def alone(self) -> float:
        """The main score of training alone, NaN without that baseline."""
        levels = [(baseline(r, "local") or {}).get("overall") or {} for r in self.results]
        return spread(level.get(self.score.name) for level in levels).mean


def spread(values: Any) -> Spread:
    finite = [x for x in map(number, values) if math.isfinite(x)]
    if not finite:
        return Spread(math.nan, None)
    return Spread(statistics.fmean(finite), statistics.stdev(finite) if len(finite) > 1 else None)


def groups(results: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    """Runs gathered over seeds; sorted by data, then method, then ε."""
    gathered: dict[str, list[str]] = {}
    for name, result in results.items():
        gathered.setdefault(_identity(result), []).append(name)
    labels = _series([results[names[0]] for names in gathered.values()])
    made = [
        Group(tuple(names), tuple(results[name] for name in names), label)
        for names, label in zip(gathered.values(), labels, strict=True)
    ]
    return sorted(made, key=lambda g: (g.data, g.series, g.epsilon, g.label))


def _epsilon(guarantee: Mapping[str, Any]) -> float:
    if guarantee.get("channel") == "nothing":
        return 0.0
    return math.inf if guarantee.get("epsilon") is None else float(guarantee["epsilon"])


def _identity(result: Mapping[str, Any]) -> str:
    """Everything that was chosen, but the seed. What was measured (scores, timing) is no choice."""
    guarantee, federation = result["guarantee"], result["federation"]
    promised = ("channel", "delta", "neighbours", "sampling", "noise_multiplier", "leaks")
    chosen = {
        "config": _without(result["config"], ("seed",)),
        "guarantee": {key: _rounded(guarantee.get(key)) for key in promised},
        "federation": {key: federation.get(key) for key in ("source", "tasks", "kind")},
        "part": result["metrics"].get("part"),
        "main": result["metrics"]["main"]["name"],
    }
    return json.dumps(chosen, sort_keys=True, default=str)


def _rounded(value: Any) -> Any:
    # A calibrated noise is found by search: its last digits mean nothing.
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _without(config: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(config, Mapping):
        return {k: _without(v, keys) for k, v in config.items() if k not in keys}
    return config


def _series(firsts: list[Mapping[str, Any]]) -> list[str]:
    """Labels: the method, and those settings in which runs of that method on that data differ."""
    # An ε of persons and one of tasks are different things: they are never on one line.
    chosen = [
        _without(result["config"], ("seed", *_PRIVACY))
        | {"unit": result["guarantee"].get("unit") or "task"}
        for result in firsts
    ]
    labels = []
    for result, config in zip(firsts, chosen, strict=True):
        method, source = config.get("method", "?"), result["federation"]["source"]
        likes = [
            other
            for like, other in zip(firsts, chosen, strict=True)
            if other.get("method", "?") == method and like["federation"]["source"] == source
        ]
        keys = sorted({key for other in likes for key in other})
        differ = [k for k in keys if any(other.get(k) != config.get(k) for other in likes)]
        told = [f"{key} = {plain(config.get(key))}" for key in differ]
        labels.append(", ".join([str(method), *told]))
    return labels
