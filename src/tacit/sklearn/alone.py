"""One task, and nobody to learn from."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap

from tacit.errors import TacitError
from tacit.federation import Federation
from tacit.local.batches import Batches, all_rows
from tacit.local.bayes import design
from tacit.local.flat import FlatModel
from tacit.methods import Local, TrainedMethod
from tacit.methods.linear import LinearMethod, alone, as_parameters
from tacit.privacy import Everyone
from tacit.randomness import Randomness
from tacit.runtime.auto import Intended
from tacit.runtime.prepare import prepare


def alone_model(
    federation: Federation, plan: Intended, model: FlatModel, seed: int | None
) -> tuple[Tensor, Tensor]:
    """The model of the only task, by what the method does for a task that nobody talks to."""
    method, rounds = plan.method, plan.rounds
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
        raise TacitError(
            f"{type(method).__name__} cannot train one task alone: name at least two tasks"
        )
    if not isinstance(method, Local):
        names = ("lr", "local_steps", "batch", "halve_every", "steepest")
        method = Local(**{name: getattr(method, name) for name in names})
    how = rounds, Randomness.of(seed), model.start.device
    simulation = prepare(federation, method, model, None, Everyone(), *how)
    simulation.run()
    return simulation.personal(torch.arange(1))
