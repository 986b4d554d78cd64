"""From settings to a simulation that is ready to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from tacit.data.federation import Federation
from tacit.engine.course import Course
from tacit.engine.rehearse import first_board
from tacit.engine.simulate import Simulation
from tacit.engine.store import CHECKPOINT, Store, confirm_ledger
from tacit.engine.votes import Votes
from tacit.errors import TacitError
from tacit.experiment.plan import Plan
from tacit.experiment.refusals import refuse_unbounded
from tacit.experiment.start import method_of
from tacit.local.flat import FlatModel
from tacit.methods import (
    BillboardMethod,
    Board,
    OnBillboard,
    Publishing,
    RelatedMethod,
    TrainedMethod,
)
from tacit.privacy import Channel, Ledger, Release, Sampler
from tacit.privacy.channel import Budget
from tacit.privacy.curator import Curator
from tacit.randomness import Randomness
from tacit.secure.jobs.curator import SecureSum
from tacit.secure.jobs.job import InProcess
from tacit.secure.net.remote import Remote
from tacit.secure.settings import Secure

Made = TypeVar("Made")


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
    crowd = tasks if privacy is None else privacy.crowd(tasks)
    refuse_unbounded(method, privacy)
    if isinstance(method, TrainedMethod):
        model = model.bounded(method.steepest)
    if privacy is not None and privacy.unit != "task" and model.buffers.numel():
        raise TacitError(
            "BatchNorm mixes the rows of several persons, so none can be bounded: use a model "
            "without it (GroupNorm, LayerNorm)"
        )
    channel = Channel(sampler, crowd, randomness)
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
        own = method.weights(votes.rounds_after(rounds), crowd)
        channel.weights = votes.weights(crowd, rounds, own)
        # A tuning books all rounds with the noise of weight one: no round may have less.
        if channel.weights is not None and max(channel.weights) > 1:
            raise TacitError(f"{type(method).__name__}.weights must be at most 1")
        replaced = 2.0 if channel.moments is None else channel.moments.replaced
        noise = privacy.noise_multiplier(
            sampler, rounds, tasks, weights=channel.weights, replaced=replaced
        )
        task_clip = privacy.task_clip(noise, rounds, tasks, channel.weights)
        channel.release = Release(sampler, noise, replaced, privacy.unit, task_clip)
        channel.share = privacy.at_most
        channel.noisy_tasks = tuple(federation.names) if privacy.noise_by == "task" else ()
        if curator is not None:
            channel.curator = _curator_of(federation, curator, randomness, channel.room)
        channel.budget = Budget.of(privacy, delta)
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


def _curator_of(
    federation: Federation, curator: Secure, randomness: Randomness, members: int
) -> Curator:
    """Servers that sum for the billboard: processes at `peers`, or simulated."""
    if curator.peers:
        names, where = tuple(federation.names), Remote.of(curator)
        return SecureSum(where, curator.servers, names, randomness, False, members)
    # Here names only tell parties apart, and a task may be called like one of the others.
    names = tuple(f"task {name}" for name in federation.names)
    return SecureSum(InProcess(), curator.servers, names, randomness, True, members)
