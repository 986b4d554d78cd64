"""From settings to a simulation that is ready to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from tacit.data.federation import Federation
from tacit.engine.course import Course
from tacit.engine.rehearse import first_board
from tacit.engine.simulate import Simulation
from tacit.engine.store import CHECKPOINT, Store, confirm_ledger
from tacit.engine.votes import Votes
from tacit.errors import TacitError
from tacit.experiment.curator import curator_of
from tacit.experiment.plan import Plan
from tacit.experiment.refusals import refuse_unbounded
from tacit.experiment.start import method_of
from tacit.local.flat import FlatModel
from tacit.methods import (
    BillboardMethod,
    Board,
    Method,
    OnBillboard,
    Publishing,
    RelatedMethod,
    TrainedMethod,
)
from tacit.privacy import Channel, Ledger, Privacy, Release, Sampler
from tacit.privacy.channel import Budget
from tacit.randomness import Randomness

Made = TypeVar("Made")


def prepare(
    federation: Federation,
    method: Method,
    model: FlatModel,
    privacy: Privacy | None,
    sampler: Sampler,
    rounds: int,
    randomness: Randomness,
    device: torch.device,
    *,
    folder: Path | None = None,
    engine: Callable[[Course, Federation, Store], Made] | None = None,
    **settings: Any,
) -> Simulation | Made:
    """The simulation of a plan with these settings, for a caller that has none."""
    plan = Plan(method=method, privacy=privacy, rounds=rounds, **settings)
    return simulation_of(plan, federation, model, sampler, randomness, device, folder, engine)


def simulation_of(
    plan: Plan,
    federation: Federation,
    model: FlatModel,
    sampler: Sampler,
    randomness: Randomness,
    device: torch.device,
    folder: Path | None = None,
    engine: Callable[[Course, Federation, Store], Made] | None = None,
) -> Simulation | Made:
    """A simulation ready to run: noise calibrated, ledger and states opened, model tried out.

    `engine` makes what a silo or a coordinator has in its place.
    """
    privacy, rounds, curator = plan.privacy, plan.rounds, plan.curator
    assert rounds is not None
    tasks, method = len(federation), method_of(plan.method).for_run(federation, privacy)
    refuse_unbounded(method, privacy)
    if isinstance(method, TrainedMethod):
        model = model.bounded(method.steepest)
    channel = Channel(sampler, tasks, randomness)
    if isinstance(method, OnBillboard):
        channel.moments = method.moments
    if isinstance(method, RelatedMethod):
        channel.relation = method.relation(federation).to(device)
    if privacy is not None and isinstance(method, OnBillboard):
        channel.clip = method.clip
        channel.quantile = method.clip_quantile if isinstance(method, BillboardMethod) else None
        delta = privacy.delta_for(tasks)
        channel.ledger = Ledger() if folder is None else confirm_ledger(folder)
        votes = Votes.of(method, federation)
        own = method.weights(votes.rounds_after(rounds), tasks)
        channel.weights = votes.weights(tasks, rounds, own)
        # A tuning books all rounds with the noise of weight one: no round may have less.
        if channel.weights is not None and max(channel.weights) > 1:
            raise TacitError(f"{type(method).__name__}.weights must be at most 1")
        replaced = 2.0 if channel.moments is None else channel.moments.replaced
        noise = privacy.noise_multiplier(
            sampler, rounds, tasks, weights=channel.weights, replaced=replaced
        )
        channel.release = Release(sampler, noise, replaced)
        if curator is not None:
            channel.curator = curator_of(federation, curator, randomness)
        if privacy.epsilon is not None:
            channel.budget = Budget(privacy.epsilon, delta, privacy.neighbours)
    board = Board(first_board(method, model, channel.relation))
    if isinstance(method, RelatedMethod) and channel.relation is not None:
        board = method.read(board, channel.relation.places[0])
    state = method.state(model, board)
    place = None if folder is None else folder / CHECKPOINT
    states = Store(tasks, state, place=plan.store, folder=place, device=device)
    publishing = plan.publishing or Publishing()
    course = Course(federation, method, model, channel, rounds, publishing, trace=engine is None)
    if engine is not None:
        return engine(course, federation, states)
    return Simulation(course, federation, states, attendance=plan.attendance, curator=curator)
