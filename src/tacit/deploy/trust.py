"""What taking part means for a silo, in plain words: what leaves it, and whom it has to trust."""

from __future__ import annotations

from tacit.deploy.terms import Terms
from tacit.methods import ExchangeMethod, OnBillboard
from tacit.privacy.guarantee import marks_of

UNKNOWN = {
    "add-remove": "this silo takes part or not",
    "replace": "this silo has these rows or others",
}
"""What nobody else can tell."""
UNKNOWN_PERSON = {
    "add-remove": "any one {unit} is in this silo's table or not",
    "replace": "any one {unit} of this silo's table is this one or another",
}
"""The same, where persons are protected."""


def what_leaves(terms: Terms) -> list[str]:
    """One sentence each, from the terms alone."""
    method, privacy = terms.make_method(), terms.make_privacy()
    lines = [f"up to {terms.rounds} rounds of {method.called} on a {terms.model} model"]
    if isinstance(method, ExchangeMethod):
        seen = "servers see shares only" if terms.curator else "the coordinator sees every model"
        lines.append(f"this silo's model leaves it in each round, without noise: {seen}")
        lines.append("no ε is promised: others' models are mixed into answers, and so is this one")
    elif isinstance(method, OnBillboard) and privacy is not None:
        seen = (
            "servers see shares only"
            if terms.curator
            else "the coordinator sees it, and has to be trusted with it"
        )
        who, unknown = "all other silos", UNKNOWN[privacy.neighbours]
        what = f"a contribution of length at most {method.clip:g} leaves"
        if privacy.unit != "task":
            who, unknown = "all outside this silo", UNKNOWN_PERSON[privacy.neighbours]
            unknown = unknown.format(unit=privacy.unit)
            what = f"a sum over {privacy.unit}s leaves, each bounded by a clip of {method.clip:g}"
        if privacy.noise_by == "task":
            seen = "this silo adds the noise itself, and nobody has to be trusted with it"
        lines.append(f"{what}: {seen}")
        promise = (
            f"ε={privacy.epsilon:g}" if privacy.epsilon else f"noise multiplier {privacy.noise:g}"
        )
        lines.append(
            f"{who} together learn no more than {promise} allows "
            f"(δ={privacy.delta_for(len(terms.silos)):.3g}), whether {unknown}"
        )
        if privacy.tasks_epsilon is not None:
            whole = UNKNOWN[privacy.neighbours]
            lines.append(
                "that sum is shortened until all other silos together learn no more than "
                f"ε={privacy.tasks_epsilon:g} allows (same δ), whether {whole}"
            )
    else:
        lines.append("contributions leave without bound or noise: everybody may learn from sums")
    if privacy is not None and isinstance(method, OnBillboard):
        lines += marks_of(privacy, len(terms.silos), seeded=False)
    if terms.seed is not None:
        lines.append("the run has a seed: it is reproducible, and therefore not private")
    if terms.metrics:
        lines.append("a score and a loss leave once, bounded, and are released with noise")
    kept = "rows and losses" if isinstance(method, ExchangeMethod) else "rows, losses and its model"
    return [*lines, f"{kept} never leave"]
