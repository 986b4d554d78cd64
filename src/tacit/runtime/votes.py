"""Rounds in which units are chosen: what tasks vote from, and their votes.

A vote is a vector of thousands of numbers, nearly all of them zero. Spelled out for every task, two
rounds of votes would be most of the work and most of the memory of a run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import vmap

from tacit.federation import Federation
from tacit.local import units
from tacit.local.batches import Batches
from tacit.local.threads import threads_for
from tacit.privacy.bounds import Place
from tacit.privacy.channel import Channel, Collection

if TYPE_CHECKING:
    from tacit.runtime.simulate import Public, Simulation


def known_units(federation: Federation, tasks: Tensor) -> Batches:
    """While units are being chosen, a task's rows are its columns: their centre and spread."""
    own = federation.units
    assert own is not None
    x = torch.stack([own.centre[tasks], own.spread[tasks]], dim=2).unsqueeze(1)
    return Batches(x, x[..., 0], torch.ones_like(x[..., 0]))


def by_places(channel: Channel) -> bool:
    """Whether votes may be added by their places: where vectors are summed as they are, here."""
    return channel.place == Place() and channel.curator is None


def collect_votes(
    simulation: Simulation, round: int, public: Public, cohort: Tensor, collection: Collection
) -> None:
    """The votes of a cohort, as what is not zero in them."""
    federation, size = simulation.federation, simulation.size_at(round)
    marks = vmap(partial(units.marks, simulation.stage_at(round)), in_dims=(0, None))
    for chunk in simulation.chunks(cohort, federation.train, 1):
        known = known_units(federation, chunk.filled).x[:, 0]
        with threads_for(known.numel(), len(chunk.filled)):
            collection.add_marks(*marks(known, public[0]), size, len(chunk.tasks))
