"""One task, and nobody to learn from."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor
from torch.func import vmap

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.experiment.auto import Intended
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.local.batches import Batches, all_rows
from tacit.local.bayes import design
from tacit.local.flat import FlatModel
from tacit.methods import Board, Local, SharedShapes, TrainedMethod
from tacit.methods.linear import LinearMethod, alone, as_parameters
from tacit.privacy import Everyone
from tacit.randomness import Randomness


def alone_model(
    federation: Federation, found: Intended, model: FlatModel, seed: int | None
) -> tuple[Tensor, Tensor]:
    """The model of the only task, by what the method does for a task that nobody talks to."""
    method, rounds = found.method, found.rounds
    if isinstance(method, SharedShapes):
        board, rows = Board(method.board(model)), federation.train
        state = method.state(model, board)
        batches = all_rows(rows, torch.arange(1), int(rows.counts[0]))
        settled = vmap(lambda own: method.settle(model, board, state, own)["w"])
        return settled(batches), model.buffers[None]
    if isinstance(method, LinearMethod):
        size, outputs = method.size(model), federation.outputs

        def one(batches: Batches) -> Tensor:
            rows = design(batches, size // outputs)
            found = alone(model.kind, rows, rows[0].new_zeros(size))[0]
            return as_parameters(found, outputs).float()

        rows = federation.train
        batches = all_rows(rows, torch.arange(1), int(rows.counts[0]))
        return vmap(one)(batches), model.buffers[None]
    if not isinstance(method, TrainedMethod):
        raise TacitError(f"{method.called} cannot train one task alone: name at least two tasks")
    if not isinstance(method, Local):
        method = Local(**{one.name: getattr(method, one.name) for one in fields(TrainedMethod)})
    plan, here = Plan(method=method, rounds=rounds), model.start.device
    simulation = simulation_of(plan, federation, model, Everyone(), Randomness.of(seed), here)
    simulation.run()
    return simulation.personal(torch.arange(1))
