"""The end of a report: what was asked for, on which data, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tacit.report.page import definitions
from tacit.report.words import count, fitted_on, label, plain, plural

PLAIN = ("device", "date")
"""Of the timing, what does not depend on rows."""
LISTED = 20
"""Features and heads that are named before it says how many more there are."""


def section(result: Mapping[str, Any]) -> str:
    """Data, settings and timing as a list of terms."""
    federation, timing = result["federation"], result.get("timing") or {}
    facts: list[tuple[str, object, str]] = [
        ("data", federation["source"], ""),
        ("tasks", count(federation["tasks"]), ""),
        *((term, f"{value} ({label(result)})", "") for term, value in _exact(result)),
    ]
    features = [str(name) for name in federation.get("features") or []]
    if features:
        facts.append(("features", _some(features), ""))
    if result.get("public"):
        facts.append(("public rows", fitted_on(result["public"]), ""))
    if federation.get("heads"):
        facts.append(("heads", _some(_heads(federation["heads"])), ""))
    facts += [(str(key).replace("_", " "), plain(v), "") for key, v in result["config"].items()]
    facts += [(key, plain(timing[key]), "") for key in PLAIN if key in timing]
    return "<h2>Settings and timing</h2>" + definitions(facts)


def _exact(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was counted or measured over all tasks without noise."""
    federation, timing = result["federation"], result.get("timing") or {}
    rows = [f"{part} {count(n)}" for part, n in federation.get("rows", {}).items()]
    if rows:
        yield "rows", ", ".join(rows)
    if federation.get("smallest") is not None:
        span = f"{count(federation['smallest'])} to {count(federation['largest'])} rows"
        yield "size of a task", span
    dropped = result["metrics"].get("dropped_contributions")
    if dropped is not None:
        yield "dropped contributions", count(dropped)
    for key, value in timing.items():
        if key not in PLAIN:
            yield str(key).replace("_", " "), plain(value)


def _some(names: list[str]) -> str:
    rest = f" and {count(len(names) - LISTED)} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + rest


def _heads(heads: Mapping[str, Any]) -> list[str]:
    pairs = zip(heads["names"], heads["outputs"], strict=True)
    return [f"{name} ({plural(int(outputs), 'output')})" for name, outputs in pairs]
