"""Models by name. Any `torch.nn.Module` will do, or a function that makes one."""

from __future__ import annotations

from torch import nn

from tacit.errors import TacitError
from tacit.federation import Federation
from tacit.models.cnn import femnist_cnn
from tacit.models.linear import linear, mlp


def cnn(federation: Federation) -> nn.Module:
    """The PMTL paper's FEMNIST network, for square images of any size and number of channels."""
    if len(federation.input_shape) != 3 or federation.input_shape[1] < 16:
        raise TacitError(
            f"model 'cnn' needs images of at least 16 x 16 (channels, height, width), but rows "
            f"have shape {federation.input_shape}; use model 'linear' or 'mlp'"
        )
    channels, size, _ = federation.input_shape
    return femnist_cnn(channels=channels, size=size, classes=federation.outputs)


MODELS = {"linear": linear, "mlp": mlp, "cnn": cnn}

__all__ = ["MODELS", "cnn", "femnist_cnn", "linear", "mlp"]
