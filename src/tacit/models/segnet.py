"""SegNet: a class for every pixel.

Vijay Badrinarayanan, Alex Kendall, Roberto Cipolla. "SegNet: A Deep Convolutional Encoder-Decoder
Architecture for Image Segmentation." TPAMI, 2017.

The shared layers are the encoder of VGG16 and a decoder that puts every value back to where the
encoder's pooling took it from. FedMTL's paper publishes how many parameters are shared, 24 943 296,
and how many a head of three classes has, 37 123; the number of convolutions per stage of the
decoder, and the two convolutions of a head, are the ones that have exactly those.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import TacitError

FEATURES = 64

# How many channels each convolution makes, by stage; the decoder from the deepest upward.
_ENCODER = (
    (64, 64),
    (128, 128),
    (256, 256, 256),
    (512, 512, 512),
    (512, 512, 512),
)
_DECODER = (
    (512, 512, 512),
    (256, 256, 256),
    (128, 128, 128),
    (64, 64),
    (64, 64),
)
SHRINKS = 2 ** len(_ENCODER)
"""Sides of images must be divisible by this: the encoder halves them five times."""


class SegNet(nn.Module):
    """The shared layers: [n, channels, height, width] to [n, 64, height, width]."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.encoder = _stages(channels, _ENCODER)
        self.decoder = _stages(_ENCODER[-1][-1], _DECODER)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] % SHRINKS or x.shape[3] % SHRINKS:
            raise TacitError(
                f"SegNet halves images five times, but they are {x.shape[2]} x {x.shape[3]}: crop "
                f"or scale them to sides divisible by {SHRINKS}"
            )
        taken = []
        for stage in self.encoder:
            x, places = functional.max_pool2d(stage(x), 2, return_indices=True)
            taken.append(places)
        for stage, places in zip(self.decoder, reversed(taken), strict=True):
            x = stage(unpool(x, places))
        return x


def pixel_head(classes: int) -> nn.Sequential:
    """A head: the classes of every pixel, from the shared layers' 64 channels.

    Nothing lies between its two convolutions; multi-task SegNets have it so.
    """
    return nn.Sequential(
        nn.Conv2d(FEATURES, FEATURES, kernel_size=3, padding=1), nn.Conv2d(FEATURES, classes, 1)
    )


def unpool(x: Tensor, places: Tensor) -> Tensor:
    """The reverse of pooling 2 x 2: each value where pooling found the largest, zeros elsewhere.

    PyTorch's own `max_unpool2d` does not run for many tasks at once except one by one.
    """
    high, wide = 2 * x.shape[2], 2 * x.shape[3]
    blank = x.new_zeros(*x.shape[:2], high * wide)
    return blank.scatter(2, places.flatten(2), x.flatten(2)).unflatten(2, (high, wide))


def _stages(channels: int, widths: tuple[tuple[int, ...], ...]) -> nn.ModuleList:
    stages = nn.ModuleList()
    for stage in widths:
        layers: list[nn.Module] = []
        for width in stage:
            layers += [
                nn.Conv2d(channels, width, kernel_size=3, padding=1),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        stages.append(nn.Sequential(*layers))
    return stages
