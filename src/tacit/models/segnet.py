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

WIDTH = 64

# Channels that each convolution makes, by stage, in units of the first stage's; the decoder's from
# the deepest stage upward.
_ENCODER = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))
_DECODER = ((8, 8, 8), (4, 4, 4), (2, 2, 2), (1, 1), (1, 1))
SHRINKS = 2 ** len(_ENCODER)
"""Sides of images must be divisible by this: the encoder halves them five times."""


class SegNet(nn.Module):
    """The shared layers: [n, channels, height, width] to [n, 64, height, width].

    `width` is how many channels the first stage and the result have, in place of 64; those of all
    other stages are multiples of it. `stages` is how often images are halved, in place of 5: what
    small images and few steps need is the top of the network.
    """

    def __init__(self, channels: int = 3, width: int = WIDTH, stages: int = len(_ENCODER)) -> None:
        super().__init__()
        if not 1 <= stages <= len(_ENCODER):
            raise TacitError(f"SegNet(stages={stages}): from 1 to {len(_ENCODER)} are possible")
        self.encoder = _stages(channels, width, _ENCODER[:stages])
        self.decoder = _stages(_ENCODER[stages - 1][-1] * width, width, _DECODER[-stages:])

    def forward(self, x: Tensor) -> Tensor:
        shrinks = 2 ** len(self.encoder)
        if x.shape[2] % shrinks or x.shape[3] % shrinks:
            raise TacitError(
                f"SegNet halves images {len(self.encoder)} times, but they are {x.shape[2]} x "
                f"{x.shape[3]}: crop or scale them to sides divisible by {shrinks}"
            )
        taken = []
        for stage in self.encoder:
            x, places = functional.max_pool2d(stage(x), 2, return_indices=True)
            taken.append(places)
        for stage, places in zip(self.decoder, reversed(taken), strict=True):
            x = stage(unpool(x, places))
        return x


def pixel_head(classes: int, width: int = WIDTH) -> nn.Sequential:
    """A head: the classes of every pixel, from what the shared layers make of it.

    Nothing lies between its two convolutions; multi-task SegNets have it so.
    """
    return nn.Sequential(
        nn.Conv2d(width, width, kernel_size=3, padding=1), nn.Conv2d(width, classes, 1)
    )


def unpool(x: Tensor, places: Tensor) -> Tensor:
    """The reverse of pooling 2 x 2: each value where pooling found the largest, zeros elsewhere.

    PyTorch's own `max_unpool2d` does not run for many tasks at once except one by one.
    """
    high, wide = 2 * x.shape[2], 2 * x.shape[3]
    blank = x.new_zeros(*x.shape[:2], high * wide)
    return blank.scatter(2, places.flatten(2), x.flatten(2)).unflatten(2, (high, wide))


def _stages(channels: int, width: int, times: tuple[tuple[int, ...], ...]) -> nn.ModuleList:
    stages = nn.ModuleList()
    for stage in times:
        layers: list[nn.Module] = []
        for factor in stage:
            made = factor * width
            layers += [
                nn.Conv2d(channels, made, kernel_size=3, padding=1),
                nn.BatchNorm2d(made),
                nn.ReLU(),
            ]
            channels = made
        stages.append(nn.Sequential(*layers))
    return stages
