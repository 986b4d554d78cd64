"""The end of a report: what was asked for, on which data, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from tacit.report.page import definitions
from tacit.report.words import count, fitted_on, label, plain, plural

PLAIN = ("device", "date")
"""Of the timing, what does not depend on rows."""
ELSEWHERE = ("data", "chosen", "tasks")
"""Of the configuration, what is said in another line."""
FOUND: dict[str, tuple[str, dict[object, str]]] = {
    "crowd": ("contributors", {}),
    "outputs": ("scores of a row", {}),
    "judged": ("own rows judge what was told", {}),
    "whole": (
        "information about coefficients",
        {True: "released as a matrix", False: "released as one number"},
    ),
    "units": (
        "units of columns",
        {
            "common": "found together, by votes",
            "own": "every task's own",
            "none": "every task's own",
        },
    ),
}
"""Settings that nobody types, because a run finds them by itself, in words; and their values."""
Fact = tuple[str, object, str]
LISTED = 20
"""Features and heads that are named before it says how many more there are."""


def section(result: Mapping[str, Any]) -> str:
    """Data, settings and timing as a list of terms."""
    timing = result.get("timing") or {}
    facts = about_data(result["federation"], label(result))
    if result.get("public"):
        facts.append(("public rows", fitted_on(result["public"]), ""))
    facts += [(term, f"{value} ({label(result)})", "") for term, value in _exact(result)]
    facts += list(_asked(result["config"]))
    facts += [(key, plain(timing[key]), "") for key in PLAIN if key in timing]
    return "<h2>Settings and timing</h2>" + definitions(facts)


def about_data(federation: Mapping[str, Any], marked: str) -> list[Fact]:
    """What was trained on; what was counted over all tasks without noise is `marked`."""
    facts: list[Fact] = [
        ("data", federation["source"], ""),
        ("tasks", count(federation["tasks"]), ""),
    ]
    rows = [f"{part} {count(n)}" for part, n in (federation.get("rows") or {}).items() if n]
    if rows:
        facts.append(("rows", f"{', '.join(rows)} ({marked})", ""))
    if rows and federation.get("smallest") is not None:
        span = f"{count(federation['smallest'])} to {count(federation['largest'])} rows"
        facts.append(("size of a task", f"{span} ({marked})", ""))
    features = [str(name) for name in federation.get("features") or []]
    if features:
        facts.append(("features", _some(features), ""))
    if federation.get("heads"):
        facts.append(("heads", _some(_heads(federation["heads"])), ""))
    return facts


def _asked(config: Mapping[str, Any]) -> Iterator[Fact]:
    """Every setting once, as it is typed or in words; a file by its name, wherever it lay."""
    told = {key: value for key, value in config.items() if key not in ELSEWHERE}
    privacy = told.pop("privacy", None)
    for key, value in {**told, **(privacy if isinstance(privacy, Mapping) else {})}.items():
        if value not in (None, ""):  # nobody set it
            term, values = FOUND.get(key, (str(key).replace("_", " "), {}))
            known = values.get(value) if isinstance(value, bool | str) else None
            yield term, known or plain(_without_folders(value)), ""
    if config.get("chosen"):
        yield "chosen by auto", plain(config["chosen"]), ""
    read = {key: value for key, value in (config.get("data") or {}).items() if key != "name"}
    asked = {key: _without_folders(value) for key, value in read.items() if value is not None}
    if asked:
        yield "read from", plain(asked), ""


def _without_folders(value: Any) -> Any:
    """A path without its folders: they tell about a machine, and nothing about a run."""
    if isinstance(value, str) and ("/" in value or "\\" in value):
        whole = PureWindowsPath(value) if "\\" in value else PurePosixPath(value)
        return whole.name if whole.is_absolute() or whole.suffix else value
    if isinstance(value, Mapping):
        return {key: _without_folders(inner) for key, inner in value.items()}
    return [_without_folders(inner) for inner in value] if isinstance(value, list) else value


def _exact(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was counted or measured over all tasks without noise."""
    timing = result.get("timing") or {}
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
