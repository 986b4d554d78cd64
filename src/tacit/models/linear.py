"""Linear and logistic regression: one linear layer, started at zero."""

from __future__ import annotations

import math

from torch import nn

from tacit.federation import Federation
from tacit.models.words import refuse_words


def linear(federation: Federation) -> nn.Module:
    """As many outputs as the target needs; zeros, so that all runs start from the same point."""
    refuse_words(federation, "linear")
    inputs = math.prod(federation.input_shape)
    layer = nn.Linear(inputs, federation.outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer if len(federation.input_shape) == 1 else nn.Sequential(nn.Flatten(), layer)


def without_intercept(federation: Federation) -> nn.Module:
    """Linear through the origin: for rows and targets that are centred, or made that way."""
    refuse_words(federation, "linear-no-intercept")
    layer = nn.Linear(math.prod(federation.input_shape), federation.outputs, bias=False)
    nn.init.zeros_(layer.weight)
    return layer if len(federation.input_shape) == 1 else nn.Sequential(nn.Flatten(), layer)


def mlp(federation: Federation) -> nn.Module:
    """One hidden layer of 32 units."""
    refuse_words(federation, "mlp")
    inputs = math.prod(federation.input_shape)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, federation.outputs)
    )
