"""Numbers and the guarantee in words that a reader outside the field can check and sign."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tacit.privacy.guarantee import NOT_COVERED, delta_up

Colour = Literal["green", "amber", "red"]
WEAK = 10.0
"""Above this ε the odds may change more than 20 000-fold: true, but hardly a promise."""
MODERATE = math.log(9)
"""Above this ε somebody who thought it as likely as not may become more than 90 % sure."""

NARROW = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
NOTHING = "\N{EN DASH}"
"""Stands in a table where there is no number."""

NOT_PUBLISHED = (
    "computed from private data without noise; fine in a simulation, "
    "not to be published from a real deployment"
)

CHOOSING = (
    "Choosing among runs by such scores is covered by no ε here; tacit tune books such a choice."
)

NEIGHBOURS = {
    "add-remove": "any one {party} added or removed",
    "replace": "any one {party}'s data replaced by any other data",
}


@dataclass(frozen=True)
class State:
    """How a guarantee stands: a badge for tables, a headline for the box, and its colour.

    `{party}` in the headline stands for what those who are protected are called (`headline`).
    """

    key: str
    colour: Colour
    badge: str
    headline: str
    severity: int


ALONE = State(
    "alone", "green", "nothing released", "Nothing released: every {party} trained alone", 0
)
PRIVATE = State(
    "private", "green", "private", "Private: the promise below holds for every {party}", 1
)
MODERATELY = State(
    "moderate",
    "amber",
    "moderate promise",
    "A moderate promise, which holds for every {party}: ε is above 2.2",
    2,
)
WEAKLY = State("weak", "amber", "weak promise", "A weak promise: ε is above 10", 3)
SEEDED = State(
    "seeded",
    "amber",
    "reproducible, not private",
    "Reproducible, not private: the noise comes from a seed",
    4,
)
LEAKY = State(
    "leaks",
    "amber",
    "not private: leaks",
    "Not private: something was computed over several {party}s without noise",
    5,
)
UNSURE = State("unsure", "amber", "not private", "Not private: the run is not marked private", 6)
NONE = State("none", "red", "no privacy", "No privacy: nothing hides what a {party} contributed", 7)
REFUTED = State(
    "refuted", "red", "no privacy", "No privacy: the mechanism was published, and refuted", 7
)
EXCHANGED = State(
    "exchange",
    "red",
    "exchange, no\N{NO-BREAK SPACE}ε",
    "No privacy between clients: models were exchanged through a curator",
    7,
)
SHARED = State(
    "exchange",
    "amber",
    "exchange, no\N{NO-BREAK SPACE}ε",
    "Hidden from the servers; no privacy between clients",
    6,
)


def label(result: Mapping[str, Any]) -> str:
    """What stands beside every figure that was computed over several tasks without noise."""
    return result["metrics"].get("label") or NOT_COVERED


def state(guarantee: Mapping[str, Any]) -> State:
    """Green only when the run itself says so: whatever is missing or unclear counts against it."""
    released = guarantee.get("channel") != "nothing"
    if guarantee.get("channel") == "exchange":
        return EXCHANGED if guarantee.get("curator") is None else SHARED
    if released and guarantee.get("epsilon") is None:
        return REFUTED if guarantee.get("refuted") else NONE
    if guarantee.get("leaks"):
        return LEAKY
    if not released:
        return ALONE
    if guarantee.get("seeded"):
        return SEEDED
    if not guarantee.get("private"):
        return UNSURE
    if guarantee["epsilon"] > WEAK:
        return WEAKLY
    return MODERATELY if guarantee["epsilon"] > MODERATE else PRIVATE


def headline(guarantee: Mapping[str, Any]) -> str:
    """How it stands, for those whom it is about."""
    return state(guarantee).headline.format(party=hidden(guarantee))


def hidden(guarantee: Mapping[str, Any]) -> str:
    """What those who are protected are called."""
    unit = guarantee.get("unit") or "task"
    return unit if unit != "task" else guarantee.get("party") or "task"


def meaning(guarantee: Mapping[str, Any]) -> str:
    """What ε means in a sentence or two for somebody who has never heard of it."""
    kind, party = state(guarantee), hidden(guarantee)
    if kind is NONE:
        return (
            f"Exact sums were published. Whoever knows the data of the other {party}s can work out "
            f"what one {party} contributed; no ε bounds what is learned about it."
        )
    if kind is SHARED:
        return (
            "The curator is several servers that compute on secret shares: none of them sees a "
            "model. Every client is answered with mixtures of the others' models, without noise. "
            "Rows never leave a client, but no ε bounds what a client's answers tell it about the "
            "others."
        )
    if kind is EXCHANGED:
        return (
            "The curator sees every model that is uploaded, and every client is answered with "
            "mixtures of the others' models, without noise. Rows never leave a client, but no ε "
            "bounds what its model tells about them."
        )
    if kind is REFUTED:
        return (
            "Noise was added as a paper prints it, but its promise does not hold: what is seen can "
            f"prove that a {party} did not take part. No ε is stated, because none is true."
        )
    if guarantee.get("channel") == "nothing":
        return f"No {party} learned anything from another, so there is nothing to protect against."
    belief = (
        f"that a given {party} took part"
        if guarantee.get("neighbours") != "replace"
        else f"that a given {party} holds its true data rather than any other"
    )
    epsilon = float(guarantee["epsilon"])
    odds = factor_text(epsilon)
    seen = f"all other {party}s see together"
    if (guarantee.get("unit") or "task") != "task":
        seen = f"those outside its {guarantee.get('party') or 'task'} see together"
    promise = (
        f"whatever {seen}, and however they combine it, their odds "
        f"{belief} change by at most a factor of e^ε = {odds}, except with probability "
        f"{_rarely(guarantee)}"
    )
    sure = 100 / (1 + math.exp(-epsilon))
    example = (
        f"Somebody who thought it as likely as not can become at most {up(sure, 0)} % sure."
        if sure <= 99
        else "Somebody who thought it as likely as not can become all but certain."
    )
    if kind in (SEEDED, LEAKY, UNSURE):
        why = {
            SEEDED: "Anybody who knows or guesses the seed can take the noise away again. "
            "With secret noise",
            LEAKY: "The figures listed under leaks are outside the promise and void it. "
            "Without them",
            UNSURE: "The run does not say why. If everything below held",
        }[kind]
        return f"{why}, the promise would be: {promise}. {example}"
    promise = promise[0].upper() + promise[1:]
    if kind is WEAKLY:
        return f"{promise}. {example} That is a weak promise: on its own it rules out little."
    return f"{promise}. {example}"


def _rarely(guarantee: Mapping[str, Any]) -> str:
    delta = guarantee.get("delta")
    if not delta:
        return "zero"
    return f"δ = {delta_text(delta)} (1 in {count(math.floor(1 / delta + 1e-6))})"


def sentence(words: Any) -> str:
    """With a capital letter."""
    said = str(words) if words else "not stated"
    return said[:1].upper() + said[1:]


def neighbours_text(neighbours: str | None, whom: str = "task") -> str:
    known = NEIGHBOURS.get(neighbours or "")
    return known.format(party=whom) if known else neighbours or "not stated"


def up(value: float, digits: int) -> str:
    """Rounded up: a promise must never look better than it is."""
    scale = 10**digits
    return f"{math.ceil(value * scale - 1e-6) / scale:.{digits}f}"


def epsilon_text(guarantee: Mapping[str, Any]) -> str:
    """ε as it stands in every table: rounded up, ∞ without privacy, a dash on the exchange."""
    epsilon = guarantee.get("epsilon")
    if guarantee.get("channel") == "exchange":
        return NOTHING  # there is no ε, not even an infinite one: nothing is released to everybody
    if epsilon is None:
        return "0" if guarantee.get("channel") == "nothing" else "∞"
    if epsilon == 0:
        return "0"
    return up(epsilon, 2 if epsilon >= 0.1 else 2 - math.floor(math.log10(epsilon)))


def delta_text(delta: float | None) -> str:
    """Three significant digits, rounded up as `Guarantee` does."""
    if delta is None:
        return "none"
    if delta == 0:
        return "0"
    shown = delta_up(delta)
    if "e" not in shown:
        return shown
    mantissa, exponent = shown.split("e")
    return f"{mantissa} {TIMES} 10{superscript(int(exponent))}"


def factor_text(epsilon: float) -> str:
    """e^ε, rounded up; beyond a million as a power of ten (and by logarithm: no overflow)."""
    if epsilon > math.log(1e6):
        exponent = math.floor(epsilon / math.log(10))
        mantissa = math.exp(epsilon - exponent * math.log(10))
        return f"{up(mantissa, 1)} {TIMES} 10{superscript(exponent)}"
    factor = math.exp(epsilon)
    if factor < 100:
        return up(factor, 2 if factor < 2 else 1)
    step = 10 ** (math.floor(math.log10(factor)) - 1)
    return count(math.ceil(factor / step) * step)


def superscript(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def count(value: int) -> str:
    """1234567 -> 1 234 567, with spaces that do not break."""
    return f"{value:,}".replace(",", NARROW)


def share(part: int, whole: int) -> str:
    """A share in per cent that says 0 or 100 only when it is."""
    if whole == 0:
        return NOTHING
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "under 1 %"
    if 99 < percent < 100:
        return "over 99 %"
    return f"{percent:.0f} %"


def plural(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def fitted_on(public: Mapping[str, Any]) -> str:
    """What public rows were good for, and what of them was not used."""
    fitted = " and ".join(public["fitted"]) or "nothing that this method uses"
    said = f"{plural(public['rows'], 'public row')} of {public['source']} gave {fitted}, at no ε"
    return ". ".join([said, *public["notes"]])


def plain(value: Any) -> str:
    """A setting as a person would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}".replace("-", MINUS)
    if isinstance(value, int):
        return count(value) if abs(value) >= 10_000 else str(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value)) if value else "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {plain(inner)}" for key, inner in value.items()) or "none"
    return str(value)
