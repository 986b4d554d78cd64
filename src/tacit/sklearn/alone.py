"""One task, and nobody to learn from."""

from __future__ import annotations

from dataclasses import fields
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.experiment.auto import Intended
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.local.batches import all_rows
from tacit.local.flat import FlatModel
from tacit.methods import Board, Local, SharedShapes, TrainedMethod
from tacit.methods.linear import LinearMethod, fitted_alone
from tacit.privacy import Everyone
from tacit.randomness import Randomness


def alone_model(
    federation: Federation, found: Intended, model: FlatModel, seed: int | None
) -> tuple[Tensor, Tensor]:
    """The model of the only task, by what the method does for a task that nobody talks to."""
    method, rounds, rows = found.method, found.rounds, federation.train
    batches = all_rows(rows, torch.arange(1), int(rows.counts[0]))
    if isinstance(method, SharedShapes):
        board = Board(method.board(model))
        state = method.state(model, board)
        settled = vmap(lambda own: method.settle(model, board, state, own)["w"])
        return settled(batches), model.buffers[None]
    if isinstance(method, LinearMethod):
        method.size(model)  # refuses models that are not linear
        fit = partial(fitted_alone, model, outputs=federation.outputs)
        return vmap(fit)(batches), model.buffers[None]
    if not isinstance(method, TrainedMethod):
        raise TacitError(f"{method.called} cannot train one task alone: name at least two tasks")
    if not isinstance(method, Local):
        method = Local(**{one.name: getattr(method, one.name) for one in fields(TrainedMethod)})
    plan, here = Plan(method=method, rounds=rounds), model.start.device
    simulation = simulation_of(plan, federation, model, Everyone(), Randomness.of(seed), here)
    simulation.run()
    return simulation.personal(torch.arange(1))
