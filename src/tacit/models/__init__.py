"""Models by name. Any `torch.nn.Module` will do, or a function that makes one."""

from __future__ import annotations

from torch import nn

from tacit.errors import TacitError
from tacit.federation import Federation
from tacit.models.cnn import celeba_cnn, femnist_cnn
from tacit.models.linear import linear, mlp, without_intercept
from tacit.models.words import BagOfWords, bag


def cnn(federation: Federation) -> nn.Module:
    """The PMTL paper's FEMNIST network, for square images of any size and number of channels."""
    channels, size = _square(federation, "cnn")
    return femnist_cnn(channels=channels, size=size, classes=federation.outputs)


def faces(federation: Federation) -> nn.Module:
    """LEAF's CelebA network, for square images of any size and number of channels."""
    channels, size = _square(federation, "celeba-cnn")
    return celeba_cnn(channels=channels, size=size, outputs=federation.outputs)


def _square(federation: Federation, name: str) -> tuple[int, int]:
    shape = federation.input_shape
    if len(shape) != 3 or shape[1] < 16 or shape[1] != shape[2]:
        raise TacitError(
            f"model {name!r} needs square images of at least 16 x 16 (channels, height, width), "
            f"but rows have shape {shape}; use model 'linear' or 'mlp'"
        )
    return shape[0], shape[1]


MODELS = {
    "linear": linear,
    "linear-no-intercept": without_intercept,
    "mlp": mlp,
    "cnn": cnn,
    "celeba-cnn": faces,
    "bag": bag,
}

__all__ = [
    "MODELS",
    "BagOfWords",
    "bag",
    "celeba_cnn",
    "cnn",
    "faces",
    "femnist_cnn",
    "linear",
    "mlp",
]
