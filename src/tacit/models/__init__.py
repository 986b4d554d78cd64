"""Models by name. Any `torch.nn.Module` will do, or a function that makes one.

Where tasks hold heads, every one of them is a body that is shared and a layer for each head
(`tacit.models.multihead`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.models.additive import AdditiveModel, additive
from tacit.models.cnn import UNITS, celeba_cnn, femnist_cnn, lenet_body
from tacit.models.linear import linear, mlp, without_intercept
from tacit.models.mobilenet import CHANNELS, mobilenet_body
from tacit.models.multihead import MultiHead, headed, with_heads
from tacit.models.refuse import image_shape, refuse_pixels
from tacit.models.segnet import SHRINKS, SegNet, pixel_head
from tacit.models.words import BagOfWords, bag


def cnn(federation: Federation) -> nn.Module:
    """The PMTL paper's FEMNIST network, for square images of any size and number of channels."""
    refuse_pixels(federation, "cnn")
    channels, size, _ = image_shape(federation, "cnn")
    network = femnist_cnn(channels=channels, size=size, classes=federation.outputs)
    return _topped(network, federation)


def faces(federation: Federation) -> nn.Module:
    """LEAF's CelebA network, for square images of any size and number of channels."""
    refuse_pixels(federation, "celeba-cnn")
    channels, size, _ = image_shape(federation, "celeba-cnn")
    network = celeba_cnn(channels=channels, size=size, outputs=federation.outputs)
    return _topped(network, federation)


def lenet(federation: Federation) -> MultiHead:
    """FedMTL's LeNet, for square images of any size and number of channels."""
    refuse_pixels(federation, "lenet")
    channels, size, _ = image_shape(federation, "lenet")
    return with_heads(lenet_body(channels, size), partial(nn.Linear, UNITS), federation)


def mobilenet(federation: Federation) -> MultiHead:
    """MobileNetV2, for images of any size and number of channels."""
    refuse_pixels(federation, "mobilenet")
    channels, *sides = image_shape(federation, "mobilenet", square=False)
    body = mobilenet_body(channels, min(sides))
    return with_heads(body, partial(nn.Linear, CHANNELS), federation)


def segnet(federation: Federation) -> MultiHead:
    """SegNet, for images with classes of pixels and sides divisible by 32."""
    if federation.kind != "segmentation":
        raise TacitError(
            f"model 'segnet' predicts classes of pixels, but the target is {federation.kind}; use "
            "model 'lenet' or 'mobilenet'"
        )
    shape = federation.input_shape
    if len(shape) != 3 or shape[1] % SHRINKS or shape[2] % SHRINKS:
        raise TacitError(
            f"model 'segnet' needs images (channels, height, width) with sides divisible by "
            f"{SHRINKS}, but rows have shape {shape}: crop or scale them"
        )
    return with_heads(SegNet(shape[0]), pixel_head, federation)


def _topped(network: nn.Sequential, federation: Federation) -> nn.Module:
    """As it is or, where tasks hold heads, with a linear layer for each in place of the last."""
    last = network[-1]
    assert isinstance(last, nn.Linear)
    return headed(network, partial(nn.Linear, last.in_features), federation)


MODELS: dict[str, Callable[[Federation], nn.Module]] = {
    "linear": linear,
    "linear-no-intercept": without_intercept,
    "mlp": mlp,
    "additive": additive,
    "cnn": cnn,
    "celeba-cnn": faces,
    "bag": bag,
    "lenet": lenet,
    "mobilenet": mobilenet,
    "segnet": segnet,
}

__all__ = [
    "MODELS",
    "AdditiveModel",
    "BagOfWords",
    "MultiHead",
    "additive",
    "bag",
    "celeba_cnn",
    "cnn",
    "faces",
    "femnist_cnn",
    "lenet",
    "linear",
    "mlp",
    "mobilenet",
    "segnet",
    "with_heads",
]
