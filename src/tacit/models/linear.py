"""Linear, logistic and proportional hazards regression: one linear layer, started at zero."""

from __future__ import annotations

import math
import warnings
from functools import partial

from torch import nn

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.models.hazards import Hazards
from tacit.models.multihead import headed, with_heads
from tacit.models.refuse import refuse_pixels, refuse_words


def zeros(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A linear layer of zeros, so that all runs start from the same point."""
    with warnings.catch_warnings():  # torch warns of a layer without inputs: an intercept alone
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        layer = nn.Linear(inputs, outputs, bias=bias)
    for parameter in layer.parameters():
        parameter.data.zero_()
    return layer


def linear(federation: Federation) -> nn.Module:
    """As many outputs as the target needs; zeros, so that all runs start from the same point.

    An outcome over time has proportional hazards: the same slopes for all intervals.
    """
    if federation.kind == "survival":
        refuse_words(federation, "linear")
        return Hazards(math.prod(federation.input_shape), federation.outputs)
    return _linear(federation, "linear", bias=True)


def without_intercept(federation: Federation) -> nn.Module:
    """Linear through the origin: for rows and targets that are centred, or made that way."""
    if federation.kind == "survival":
        raise TacitError("hazards need a level of each interval: use model 'linear'")
    return _linear(federation, "linear-no-intercept", bias=False)


def _linear(federation: Federation, name: str, bias: bool) -> nn.Module:
    refuse_words(federation, name)
    refuse_pixels(federation, name)
    make = partial(zeros, math.prod(federation.input_shape), bias=bias)
    flat = len(federation.input_shape) == 1
    if federation.heads is not None:
        return with_heads(nn.Identity() if flat else nn.Flatten(), make, federation)
    layer = make(federation.outputs)
    return layer if flat else nn.Sequential(nn.Flatten(), layer)


def mlp(federation: Federation) -> nn.Module:
    """One hidden layer of 32 units."""
    refuse_words(federation, "mlp")
    refuse_pixels(federation, "mlp")
    inputs, make = math.prod(federation.input_shape), partial(nn.Linear, 32)
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 32), nn.ReLU(), make(federation.outputs)
    )
    return headed(network, make, federation)
