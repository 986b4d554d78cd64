"""The end of a report: what was asked for, on which data, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.report.page import definitions
from tacit.report.words import count, plain, plural

LISTED = 20
"""Features and heads that are named before it says how many more there are."""


def section(result: Mapping[str, Any]) -> str:
    """Data, settings and timing as a list of terms."""
    federation, timing = result["federation"], result.get("timing") or {}
    rows = [f"{part} {count(n)}" for part, n in federation.get("rows", {}).items()]
    facts: list[tuple[str, object, str]] = [
        ("data", federation["source"], ""),
        ("tasks", count(federation["tasks"]), ""),
        ("rows", ", ".join(rows), ""),
    ]
    if federation.get("smallest") is not None:
        span = f"{count(federation['smallest'])} to {count(federation['largest'])} rows"
        facts.append(("size of a task", span, ""))
    features = [str(name) for name in federation.get("features") or []]
    if features:
        facts.append(("features", _some(features), ""))
    if federation.get("heads"):
        facts.append(("heads", _some(_heads(federation["heads"])), ""))
    facts += [(str(key).replace("_", " "), plain(v), "") for key, v in result["config"].items()]
    facts += [(str(key).replace("_", " "), plain(v), "") for key, v in timing.items()]
    dropped = result.get("metrics", {}).get("dropped_contributions")
    if dropped:
        facts.append(("dropped contributions", count(dropped), "not covered by the guarantee"))
    return "<h2>Settings and timing</h2>" + definitions(facts)


def _some(names: list[str]) -> str:
    rest = f" and {count(len(names) - LISTED)} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + rest


def _heads(heads: Mapping[str, Any]) -> list[str]:
    pairs = zip(heads["names"], heads["outputs"], strict=True)
    return [f"{name} ({plural(int(outputs), 'output')})" for name, outputs in pairs]
