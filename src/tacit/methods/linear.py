"""What the linear methods have in common: exact solves instead of gradient descent.

They are for one linear layer with one output (linear and logistic regression). A task's weights are
[w, bias]; the bias, where the model has one, is one more feature whose value is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tacit.data.federation import ONE_OUTPUT, Federation, Kind
from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.local.bayes import average, design, grid, posterior
from tacit.local.flat import FlatModel
from tacit.methods.base import OnBillboard

CENTRE: dict[Kind, float] = {
    "regression": 1.0,
    "count": 0.0,
    "binary": 0.0,
    "multiclass": 0.0,
    "survival": 0.0,
}
"""Where a task that knows nothing looks for the strength of its prior (see `local.bayes`)."""
REACH = 2.0
"""… and how far to either side, in powers of ten."""
POINTS = 5


@dataclass(frozen=True, kw_only=True)
class LinearMethod(OnBillboard):
    """A method on the billboard whose tasks solve linear or logistic regressions exactly."""

    kinds: ClassVar[tuple[Kind, ...]] = (*ONE_OUTPUT, "survival")

    @property
    def gradients(self) -> int:
        """Exact solves need none."""
        return 0

    def workspace(self, rows: int, size: int) -> int:
        """Systems of every strength and their factors, in double precision."""
        smaller = min(rows, size)
        return 6 * POINTS * smaller**2 + 4 * (rows + POINTS) * size

    def size(self, model: FlatModel) -> int:
        """How many weights a task has; refuses models that are not linear with one output."""
        layers = [name for name, _ in model.layers]
        if len(layers) != 1 or model.buffers.numel() or model.kind not in self.kinds:
            raise TacitError(
                f"{self.called} is for linear models of a target of kind "
                f"{', '.join(self.kinds)}: use model='linear' with such a target, or another method"
            )
        return model.size


def shape_of(federation: Federation) -> tuple[int, int]:
    """How many scores a linear model has for a row, and the coefficients of each.

    An outcome over time has one score, with a level for each interval.
    """
    columns = math.prod(federation.input_shape)
    if federation.kind == "multiclass":
        return federation.outputs, columns + 1
    return 1, columns + (federation.outputs if federation.kind == "survival" else 1)


def alone(
    kind: Kind, rows: tuple[Tensor, Tensor, Tensor], mean: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What a task finds around `mean` by itself.

    Weights averaged over strengths, the strength that it expects (in units of `REACH` from
    `CENTRE`, so in [−1, 1]), and the weights of every strength on the way.
    """
    strengths = grid(CENTRE[kind], REACH / 2, POINTS).to(mean)
    weights, evidence = posterior(kind, rows, mean, None, strengths)
    expected = torch.softmax(evidence, dim=0) @ strengths
    return average(weights, evidence), (expected - CENTRE[kind]) / REACH, weights


def fitted_alone(model: FlatModel, batches: Batches, outputs: int = 1) -> Tensor:
    """The parameters of what a task finds by itself, from all of its rows."""
    rows = design(batches, model.size // outputs)
    found = alone(model.kind, rows, rows[0].new_zeros(model.size))[0]
    return as_parameters(found, outputs).to(model.start.dtype)


def as_parameters(w: Tensor, outputs: int) -> Tensor:
    """Weights [.., outputs · d], output by output, in a layer's order: all biases come last."""
    each = w.unflatten(-1, (outputs, -1))
    return torch.cat([each[..., :-1].flatten(-2), each[..., -1]], dim=-1)


def from_parameters(parameters: Tensor, outputs: int) -> Tensor:
    """The reverse of `as_parameters`."""
    slopes, biases = parameters[..., :-outputs], parameters[..., -outputs:]
    each = slopes.unflatten(-1, (outputs, -1))
    return torch.cat([each, biases.unsqueeze(-1)], dim=-1).flatten(-2)


def differences(outputs: int, size: int) -> Tensor:
    """Takes the mean over several outputs off weights [outputs · size]; one output stays."""
    between = torch.eye(outputs, dtype=torch.float64) - (1 / outputs if outputs > 1 else 0.0)
    return torch.kron(between, torch.eye(size, dtype=torch.float64))


def ridge(kind: Kind, batches: Batches, size: int) -> Tensor:
    """Single-task ridge (or logistic) regression of middling strength: somewhere to begin."""
    rows = design(batches, size)
    strength = torch.full((1,), CENTRE[kind], dtype=torch.float64, device=rows[0].device)
    return posterior(kind, rows, rows[0].new_zeros(size), None, strength)[0][0]
