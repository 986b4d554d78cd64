"""What attacks on a run found, as a section of its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.report.page import definitions, paragraph
from tacit.report.words import count, sentence

MEANS = (
    "An attack can refute the promise and cannot prove it. The bound is what this observer, with "
    "so many tries, is sure of; what is proved in general is the promise."
)
NAMES = {
    "many runs": "Many runs of the channel alone",
    "one run": "One run with canaries",
    "neighbour": "Data with and without one row, or person",
}
TRIES = {
    "runs": "runs",
    "releases": "releases",
    "canaries": "canaries",
    "guesses": "guesses",
    "right": "right guesses",
    "others_moved": "clips that other tasks moved by",
    "others_changed": "others whose contributions changed",
    "sum_moved": "clips that the sum moved by",
}


def section(result: Mapping[str, Any]) -> str:
    """One list of terms for each attack; nothing where nobody attacked."""
    found = result.get("audits") or {}
    if not found:
        return ""
    parts = [_facts(name, audit) for name, audit in found.items()]
    return "<h2>Attacked</h2>" + paragraph(MEANS) + "".join(parts)


def _facts(name: str, audit: Mapping[str, Any]) -> str:
    colour = "bad" if audit["refuted"] else ""
    facts: list[tuple[str, object, str]] = [
        (NAMES.get(name, name), sentence(audit["verdict"]), colour),
        ("Promised", audit["promised"]["in_words"], ""),
        ("Assumed", [sentence(words) for words in audit["assumed"]], ""),
        ("Tried", ", ".join(_tried(*one) for one in audit["tries"].items()), ""),
    ]
    return definitions(facts)


def _tried(what: str, number: float) -> str:
    shown = count(number) if isinstance(number, int) else f"{number:.3g}"
    return f"{shown} {TRIES.get(what, what)}"
