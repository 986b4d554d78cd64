"""Groups: their models, which are public, and as tasks see them in a simulation.

Shares and models of groups are on the billboard (`models_of_groups`). Who is where, and how well
each group's model serves the others, is known in a simulation only, and no ε covers it
(`groups_of`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.data.common import RawUnits
from tacit.data.federation import ONE_OUTPUT, Part
from tacit.engine.simulate import Simulation
from tacit.inference.summary import label_of
from tacit.methods.grouping import Grouped
from tacit.privacy import Guarantee

MOST_COLUMNS = 30
"""Coefficients of models with more columns are not told: nobody would read them."""


def groups_of(simulation: Simulation, part: Part) -> dict[str, Any] | None:
    """For each group its published share, its members, and their loss with every group's model.

    None for a method without groups. Whose group is which is not told, not even here.
    """
    tasks = simulation.tasks
    if not isinstance(simulation.method, Grouped):
        return None
    everyone = torch.arange(len(tasks.federation), device=tasks.device)
    board, states = tasks.shown, tasks.states(everyone)
    there = board["share"] > 0
    took_part = states["joined"].sum(dim=1) > 0
    joined = states["joined"][:, there].argmax(dim=1).cpu().numpy()
    joined = np.where((took_part & (states["joined"][:, there].sum(dim=1) > 0)).cpu(), joined, -1)
    losses = []
    for model in board["models"][there]:

        def of_group(some: Tensor, model: Tensor = model) -> tuple[Tensor, Tensor]:
            return model.expand(len(some), -1), states["buffers"][some]

        losses.append(tasks.measure(part, personal=of_group).per_task["loss"])
    groups = range(len(losses))
    return {
        "share": board["share"][there].tolist(),
        "members": [int((joined == group).sum()) for group in groups],
        "losses": [[_mean(loss[joined == group]) for loss in losses] for group in groups],
    }


def models_of_groups(simulation: Simulation, promise: Guarantee) -> dict[str, Any] | None:
    """Coefficients of each group's model [groups, names], the intercept first.

    Which groups there are is read off their published shares, and not off their members: so all of
    it is a function of releases, like the models. None where models are not linear with one output
    and few columns.
    """
    federation, model = simulation.tasks.federation, simulation.model
    columns = math.prod(federation.input_shape)
    linear = model.size - columns in (0, 1) and len(model.layers) == 1 and not model.buffers.numel()
    if not linear or federation.kind not in ONE_OUTPUT or columns > MOST_COLUMNS:
        return None
    board, back = simulation.tasks.shown, RawUnits.of(federation, columns + 1)
    there = board["share"] > 0
    found = board["models"][there].double().cpu().numpy()
    if model.size == columns:  # an intercept of zero, where rows are as the model sees them
        found = np.column_stack([found, np.zeros(len(found))])
    return {
        "label": label_of(promise),
        "units": back.words,
        "names": list(back.names),
        "share": board["share"][there].tolist(),
        "coefficients": [[_known(v) for v in back.coefficients(w)] for w in found],
    }


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
