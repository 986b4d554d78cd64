"""Where a run begins: at the model that fits public rows best, if there are any.

All that a method learns is then the difference between this model and its tasks. Nothing is asked
of any task for it, so it costs no ε (`data.public` says what that takes).

    one linear layer, not too large   the exact solution, averaged over strengths by their evidence
    everything else                   gradient descent on all public rows, which cannot diverge
"""

from __future__ import annotations

import torch

from tacit.data.federation import Federation
from tacit.engine.alone import descend
from tacit.local.batches import Batches, all_rows
from tacit.local.flat import FlatModel
from tacit.local.own import linear_alone
from tacit.methods.linear import as_parameters
from tacit.methods.mixed import Mixed

MOST = 1000
"""Coefficients of an exact solution, of all outputs together: its matrices are of their square."""


def begun(model: FlatModel, federation: Federation) -> FlatModel:
    """The model with a start from public rows; as it is where there are none."""
    if federation.public is None:
        return model
    rows, outputs = federation.public.rows, federation.outputs
    batches = all_rows(rows, torch.zeros(1, dtype=torch.int64), len(rows.y))
    size = outputs * (rows.x.flatten(1).shape[1] + 1)
    linear = len(model.layers) == 1 and model.size == size and not model.buffers.numel()
    if linear and model.kind in Mixed.kinds and size <= MOST:
        found = linear_alone(model.kind, Batches(*(side[0] for side in batches)), outputs)
        return model.begun_at(as_parameters(found.flatten(), outputs), model.buffers)
    w, buffers = descend(model, batches)
    return model.begun_at(w[0], buffers[0])
