"""Groups as tasks see them: who is where, and how well each group's model serves the others.

Shares and models of groups are on the billboard. All else here is known in a simulation only, and
no ε covers it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.data.federation import Part
from tacit.engine.simulate import Simulation
from tacit.methods.grouping import Grouped


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


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
