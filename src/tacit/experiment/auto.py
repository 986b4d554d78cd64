"""What a run does where nobody says: the method, its rounds, and who takes part.

`auto` decides by public facts alone: how many tasks and columns there are, the kind of target, the
model that was asked for, and ε. Rows are never looked at, so the choice costs no privacy.

    a linear model of rows of numbers       `mixed`: common units, shared coefficients, own effects
                                            (without an intercept `prior`)
    anything else: networks, and classes    `pmtl` with local steps that cannot diverge, in common
    with more coefficients than `mixed`     units where columns have them, and a clip that follows
    takes                                   the median length of what tasks send

Of several classes `mixed` has the lower log loss too, at ε = 2 on three tables and on digits, over
two seeds (docs/methods.md). But its information is a matrix of the square of all coefficients, and
the 650 of digits take minutes.

A method that is named stays as its paper has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from tacit.data.common import in_own_units
from tacit.data.federation import ONE_OUTPUT, Federation, Kind
from tacit.engine.votes import Votes
from tacit.experiment.plan import Plan
from tacit.experiment.start import method_of
from tacit.local.flat import ModelFactory
from tacit.methods import (
    AUTO,
    PMTL,
    Method,
    Mixed,
    RelatedPMTL,
    SharedPrior,
    TrainedMethod,
)
from tacit.methods.linear import shape_of
from tacit.methods.mixed import MOST_COEFFICIENTS
from tacit.methods.of_persons import of_persons
from tacit.models import MODELS

STEADY: dict[str, Any] = dict(
    lr=0.1, steepest=1.0, local_steps=10, clip=1.0, clip_quantile=0.5, shorten=True
)
"""Neither a local step nor a step of the billboard is longer than it should be."""
ROUNDS = 30
TOGETHER = 1000
"""More tasks than this are not needed in a round."""
MODEL_TYPES = nn.Module | ModelFactory | str


@dataclass(frozen=True)
class Intended:
    """What a run will do."""

    plan: Plan
    """With a method that has what it takes from public facts, and with rounds and a cohort."""
    federation: Federation
    picked: Method
    """The method as it was named or chosen."""
    method: Method
    rounds: int
    cohort: float | int
    """These three as the plan has them, where nothing is left open any more."""
    why: str = ""
    """In words, for what the caller did not choose."""


def choose(federation: Federation, plan: Plan) -> Intended:
    """The method (an instance, a name, or "auto") with the rounds and the cohort it will have.

    All rows but the test rows are learned from where the method needs none to judge by, unless its
    models are to be kept as they are. A method that has a model of its own trains that one, if none
    but the default was named.
    """
    named, rounds, cohort = plan.method != AUTO, plan.rounds, plan.cohort
    picked, why = (method_of(plan.method), "") if named else _auto(federation, plan.model)
    if plan.privacy is not None and plan.privacy.unit != "task":
        picked = of_persons(picked)
    made = picked.for_run(federation, plan.privacy)
    steady = not named and isinstance(made, TrainedMethod)
    if rounds is None:
        votes = Votes.of(made, federation)
        rounds = len(votes.stages) + (ROUNDS if steady else made.usual_rounds)
    if cohort is None:
        crowd = len(federation) if plan.privacy is None else plan.privacy.crowd(len(federation))
        cohort = min(1.0, TOGETHER / max(crowd, 1)) if steady else 1.0
    if plan.personalise != "none":
        federation = learned_from(federation, made)
    if plan.model in (Method.usual_model, MODELS[Method.usual_model]):
        plan = plan.but(model=made.usual_model)
    plan = plan.but(method=made, rounds=rounds, cohort=cohort)
    return Intended(plan, federation, picked, made, rounds, cohort, why)


def learned_from(federation: Federation, method: Method) -> Federation:
    """The same, with all but the test rows to learn from where the method needs none to judge by.

    A silo splits its table so in the first place.
    """
    if method.judges_by_rows:
        return federation
    return in_own_units(federation.without_validation())


def mixes(kind: Kind, columns: int, outputs: int) -> bool:
    """Whether `mixed` can fit a linear model of so many columns, with so many scores for a row."""
    return kind in Mixed.kinds and (outputs == 1 or outputs * (columns + 1) <= MOST_COEFFICIENTS)


def _auto(federation: Federation, model: MODEL_TYPES) -> tuple[Method, str]:
    """A method by public facts, and the facts."""
    rows = f"{len(federation)} tasks, {federation.kind}"
    if federation.relation is not None:
        return RelatedPMTL(**STEADY), f"{rows}, a public relation among tasks"
    linear, through = (model in (name, MODELS[name]) for name in ("linear", "linear-no-intercept"))
    wide, whole = math.prod(federation.input_shape), federation.heads is None
    columns = f"{rows}, a linear model of {wide} columns"
    if linear and whole and mixes(federation.kind, wide, shape_of(federation)[0]):
        return Mixed(judged=True), columns
    if through and whole and federation.kind in ONE_OUTPUT:
        return SharedPrior(), columns
    name = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    steady = PMTL(**STEADY)
    if federation.units is not None and len(federation.units):
        steady = replace(steady, units="common")
    return steady, f"{rows}, model {name}"
