"""MobileNetV2: many small layers with few weights.

Mark Sandler, Andrew Howard, Menglong Zhu, Andrey Zhmoginov, Liang-Chieh Chen. "MobileNetV2:
Inverted Residuals and Linear Bottlenecks." CVPR, 2018.

Two things differ. There is no dropout before the head: it would make a run depend on the random
numbers of a layer. And the first convolution keeps the size of images smaller than 64 x 64: with
its stride of two they would be a single pixel at the end, and the last seven blocks would convolve
little but padding. Neither changes a count: 2 223 872 shared parameters.
"""

from __future__ import annotations

from torch import Tensor, nn

CHANNELS = 1280
"""How many features a head sees."""
SMALL = 64
"""Images with a side below this keep their size in the first convolution."""

# How far a block widens, its output channels, how often it is repeated, the stride of the first.
_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """Widen, convolve every channel by itself, narrow; added to the input where shapes agree."""

    def __init__(self, channels: int, outputs: int, widen: int, stride: int) -> None:
        super().__init__()
        wide = channels * widen
        self.adds = stride == 1 and channels == outputs
        self.layers = nn.Sequential(
            *(_convolution(channels, wide, 1) if widen > 1 else ()),
            *_convolution(wide, wide, 3, stride=stride, groups=wide),
            # No activation after narrowing: it would throw away what few channels carry.
            nn.Conv2d(wide, outputs, kernel_size=1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class MeanOfPixels(nn.Module):
    """[n, channels, height, width] to [n, channels].

    PyTorch's adaptive pooling does not run for many tasks at once, except one by one, on images
    whose channels lie innermost in memory.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def mobilenet_body(channels: int = 3, size: int = 32) -> nn.Sequential:
    """The shared layers: [n, channels, height, width] to [n, 1280]; `size` is the shorter side."""
    layers = [*_convolution(channels, 32, 3, stride=1 if size < SMALL else 2)]
    width = 32
    for widen, outputs, times, stride in _BLOCKS:
        for number in range(times):
            layers.append(InvertedResidual(width, outputs, widen, 1 if number else stride))
            width = outputs
    return nn.Sequential(*layers, *_convolution(width, CHANNELS, 1), MeanOfPixels())


def _convolution(
    channels: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )
