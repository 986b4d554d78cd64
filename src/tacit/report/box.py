"""The guarantee as a box that a privacy officer can sign, and the label of what it omits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.privacy.guarantee import epsilon_up
from tacit.report.page import Markup, definitions, paragraph, text
from tacit.report.words import (
    EXCHANGED,
    LEAKY,
    NOT_PUBLISHED,
    SEEDED,
    UNSURE,
    count,
    delta_text,
    epsilon_text,
    headline,
    hidden,
    label,
    meaning,
    neighbours_text,
    plain,
    plural,
    sentence,
    state,
)


def guarantee_box(guarantee: Mapping[str, Any], *, adapted: bool = False) -> str:
    """Verdict, ε and δ, their meaning, then every fact the promise rests on.

    `adapted` says that the clip followed a quantile, so that its last value is not that of all.
    """
    facts = _facts(guarantee, adapted)
    return signed_box(guarantee, _figures(guarantee), facts, void=_void(guarantee))


def brief_box(guarantee: Mapping[str, Any]) -> str:
    """The same with the facts that nobody may miss: whom it protects, whom it trusts."""
    facts = [fact for fact in _facts(guarantee, False) if fact[0] in BRIEF]
    return signed_box(guarantee, _figures(guarantee), facts, void=_void(guarantee))


BRIEF = (
    "Who is protected",
    "Who is trusted",
    "What may differ",
    "Promised beside",
    "Choice of settings",
    "Leaks",
)


def _void(guarantee: Mapping[str, Any]) -> bool:
    """Struck out where the promise does not hold, so that nobody copies the number on its own."""
    return guarantee.get("epsilon") is not None and state(guarantee) in (SEEDED, LEAKY, UNSURE)


def signed_box(
    guarantee: Mapping[str, Any],
    figures: list[tuple[str, str]],
    facts: list[tuple[str, object, str]],
    *,
    void: bool,
) -> str:
    """The frame: the verdict with its figures, struck out where they are void, then the facts."""
    said = text(meaning(guarantee)).replace("e^ε", "e<sup>ε</sup>")
    shown = "".join(f"<div><b>{text(b)}</b><span>{text(s)}</span></div>" for b, s in figures)
    return (
        f'<section class="box {state(guarantee).colour}" aria-label="Guarantee">'
        f'<div class="verdict"><h2>{text(headline(guarantee))}</h2>'
        f'<div class="figures{" void" if void else ""}">{shown}</div>'
        f"<p>{said}</p></div>{definitions(facts)}"
        f'<p class="sentence">In one sentence: {text(guarantee.get("in_words", ""))}</p></section>'
    )


def short_box(guarantee: Mapping[str, Any]) -> str:
    """The same with its facts folded away."""
    return guarantee_box(guarantee).replace("<dl>", FOLD, 1).replace("</dl>", "</dl></details>", 1)


FOLD = '<details class="facts"><summary>What it rests on</summary><dl>'


def covered(said: str, result: Mapping[str, Any]) -> str:
    """What covers figures that are computed from releases, in the colour of how far it holds."""
    words = Markup(f"<b>{text(sentence(said))}</b>.")
    return paragraph(words, "covered" if result["guarantee"].get("private") else "uncovered")


def heading(words: str, result: Mapping[str, Any], level: int = 2) -> str:
    """Of what was computed over several tasks: it carries the label, which `uncovered` explains."""
    return f'<h{level}>{text(words)} <span class="tag">{text(label(result))}</span></h{level}>'


def uncovered(result: Mapping[str, Any]) -> str:
    """What the label means that stands at such headings; once on every page."""
    words = sentence(label(result))
    # A label that already explains itself is left alone.
    rest = "" if ":" in words else f": {NOT_PUBLISHED}."
    return paragraph(Markup(f"<b>{text(words)}</b>{text(rest)}"), "uncovered")


def _figures(guarantee: Mapping[str, Any]) -> list[tuple[str, str]]:
    whom = hidden(guarantee)
    figures = [(f"ε = {epsilon_text(guarantee)}", f"how much may be learned about one {whom}")]
    if guarantee.get("channel") == "nothing":
        figures = [("ε = 0", f"nothing may be learned about any {whom}")]
    elif state(guarantee).key == EXCHANGED.key:
        figures = [("no ε", f"nothing bounds what may be learned about one {whom}")]
    elif guarantee.get("epsilon") is None:
        figures = [("ε = ∞", f"no bound on what may be learned about one {whom}")]
    elif guarantee.get("delta") is not None:
        figures.append(
            (f"δ = {delta_text(guarantee['delta'])}", "probability that the bound fails")
        )
        if guarantee.get("tasks_epsilon") is not None:
            party = guarantee.get("party", "task")
            said = f"beside that: how much may be learned about one whole {party}"
            figures.append((f"ε = {epsilon_up(guarantee['tasks_epsilon'])}", said))
    return figures


def _facts(guarantee: Mapping[str, Any], adapted: bool) -> list[tuple[str, object, str]]:
    kind = state(guarantee)
    protects, trusts = (sentence(guarantee.get(key)) for key in ("protects", "trusts"))
    facts: list[tuple[str, object, str]] = []
    if kind in (SEEDED, LEAKY, UNSURE):
        protects = (
            f"As run, the promise does not hold. As designed: {protects[:1].lower()}{protects[1:]}"
        )
    facts.append(("Who is protected", protects, "bad" if kind.colour == "red" else ""))
    facts.append(("Who is trusted", trusts, ""))
    if guarantee.get("channel") != "nothing":
        if guarantee.get("neighbours"):
            whom = hidden(guarantee)
            whole = neighbours_text(guarantee["neighbours"], whom)
            whole += "" if whom == "row" else f": a {whom} with all its rows, at once"
            facts.append(("What may differ", sentence(whole), ""))
        if guarantee.get("tasks_in_words"):
            facts.append(("Promised beside", f"With {guarantee['tasks_in_words']}", ""))
        facts.append(("Sampling", sentence(guarantee.get("sampling")), ""))
        if guarantee.get("accountant"):
            name = guarantee["accountant"]
            facts.append(("Accountant", f"{LONG.get(name, name)}, over every booked release", ""))
        facts.append(("Releases", _releases(guarantee), ""))
        facts.append(("Noise", _noise(guarantee, adapted), ""))
    if kind.key != EXCHANGED.key:  # it says what ε covers, and here is none
        facts.append(("Choice of settings", sentence(guarantee.get("tuning")), ""))
    assumptions = guarantee.get("assumptions") or []
    facts.append(("Assumptions", [sentence(a) for a in assumptions] or "None stated", ""))
    leaks = guarantee.get("leaks") or []
    facts.append(("Leaks", [sentence(leak) for leak in leaks] or "None", "bad" if leaks else ""))
    return facts


LONG = {
    "PLD": "Privacy loss distributions (PLD)",
    "RDP": "Rényi differential privacy (RDP)",
}


def _releases(guarantee: Mapping[str, Any]) -> str:
    if state(guarantee).key == EXCHANGED.key:
        return "None: models were exchanged, and nothing was published to everybody"
    if guarantee.get("epsilon") is None:
        if guarantee.get("refuted"):
            return "Not counted: no ε could be added up from them"
        return "Not counted: nothing was bounded, so nothing could be booked"
    number = int(guarantee.get("releases") or 0)
    verb = "was" if number == 1 else "were"
    return f"{plural(number, 'noisy sum')} {verb} published, each booked before it was made"


def _noise(guarantee: Mapping[str, Any], adapted: bool) -> str:
    noise, clip = guarantee.get("noise_multiplier"), guarantee.get("clip")
    if not noise:
        return "As printed in the paper" if guarantee.get("refuted") else "None"
    words = (
        f"Gaussian, on every published number; standard deviation {_digits(noise)} times as far as "
        f"one {hidden(guarantee)} can move them by taking part"
    )
    if clip is not None and adapted:
        words += (
            "; the clip followed a quantile of the contributions' lengths and ended at "
            f"{plain(clip)}"
        )
    elif clip is not None:
        words += f"; contributions are clipped to length {plain(clip)}"
    origin = "drawn from a seed" if guarantee.get("seeded") else "drawn from the operating system"
    return f"{words}; {origin}"


def _digits(value: float) -> str:
    return count(round(value)) if value >= 1000 else f"{value:.3g}"
