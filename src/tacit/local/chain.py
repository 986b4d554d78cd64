"""Models that are a chain of linear layers: what their gradients are made of, row by row.

A row's gradient of a linear layer is the outer product of the error at its output and of its input.
Forwards, rows give the inputs; backwards, down to the outputs of layers and no further, the errors.
Nothing here mixes rows, so rows of many persons lie in one batch. That is known of the layers named
here and of no others: a model with anything else in it is no chain.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.data.federation import ONE_OUTPUT
from tacit.local.flat import FlatModel
from tacit.local.losses import weighted_loss

BETWEEN = (
    nn.ELU,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.ReLU,
    nn.SELU,
    nn.Sigmoid,
    nn.SiLU,
    nn.Softplus,
    nn.Tanh,
)
"""What may stand between linear layers: each number by itself, without parameters or chance."""


@dataclass(frozen=True)
class Chain:
    """A model's layers in their order; parameters of the linear ones come from elsewhere."""

    model: FlatModel
    layers: tuple[nn.Module, ...]

    @classmethod
    def of(cls, model: FlatModel, shape: tuple[int, ...]) -> Chain | None:
        """The model as a chain, for rows of this shape; None if it is none."""
        whole = model.training
        layers = tuple(whole) if type(whole) is nn.Sequential else (whole,)
        flat = len(shape) == 1
        for layer in layers:
            flat = flat or _flattens(layer)
            known = type(layer) in (nn.Linear, *BETWEEN) or _flattens(layer)
            if not (known and flat) or getattr(layer, "inplace", False):
                return None
        chain = cls(model, layers)
        shapes = [weights.shape for layer in chain.linear for weights in layer.parameters()]
        same = shapes == [weights.shape for weights in model.split(model.start)]
        changed = any(is_changed(layer) for layer in (whole, *layers))
        return chain if shapes and same and not changed else None

    @property
    def linear(self) -> tuple[nn.Linear, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer, nn.Linear))

    def factors(
        self, w: Tensor, x: Tensor, y: Tensor, weight: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """Inputs [n, in] and errors [n, out] of every linear layer, for rows and their weights.

        Their outer products add up to the gradient of the weighted loss at `w`.
        """
        each = iter(self.model.split(w))
        inputs, outputs = [], []
        with torch.enable_grad():
            for layer in self.layers:
                if isinstance(layer, nn.Linear):
                    inputs.append(x.detach())
                    weights, bias = next(each), None if layer.bias is None else next(each)
                    x = nn.functional.linear(x, weights, bias)
                    if len(inputs) == 1:
                        x.requires_grad_()
                    outputs.append(x)
                else:
                    x = layer(x)
            output = x.squeeze(1) if self.model.kind in ONE_OUTPUT else x
            loss = weighted_loss(self.model.kind, output, y, weight)
            errors = torch.autograd.grad(loss, outputs)
        return list(zip(inputs, errors, strict=True))


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def is_changed(layer: nn.Module) -> bool:
    """Whether somebody made this one do something else than others of its type."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" in vars(layer) or any(getattr(layer, name) for name in hooks)
