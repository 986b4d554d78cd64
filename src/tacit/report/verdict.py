"""The verdict on a run, as it stands above everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.report.page import Markup, note, paragraph, text
from tacit.report.words import sentence

MOST = 3
"""Sentences that fit into a terminal."""


def told(result: Mapping[str, Any]) -> list[str]:
    """The first sentences of the verdict; none for a result from before there were verdicts."""
    return list((result.get("verdict") or {}).get("sentences", ()))[:MOST]


def section(verdict: Mapping[str, Any] | None) -> str:
    """A box in its colour: how the first sentence begins stands out, the label comes last."""
    if not verdict or not verdict["sentences"]:
        return ""
    first, *others = verdict["sentences"]
    says, _, rest = first.partition(": ")
    said = [sentence(rest), *others] if rest else others
    marked = Markup(f'{text(says)} <span class="tag">{text(verdict["label"])}</span>')
    return note(marked, verdict["colour"], paragraph(" ".join(said)) if said else "")
