"""LeNet with batch normalisation, as FedMTL trains it on faces.

Yann LeCun et al. "Gradient-Based Learning Applied to Document Recognition." 1998 (the idea).
Sergey Ioffe, Christian Szegedy. "Batch Normalization." 2015.

FedMTL's paper publishes no layout, only how many parameters are shared and how many a task layer
has; for RGB images of 32 x 32 this layout has exactly those: 1 628 210 and, for five labels, 2 505.
"""

from torch import nn

UNITS = 500
"""How many features a head sees."""


def lenet_body(channels: int = 3, size: int = 32) -> nn.Sequential:
    """The shared layers: [n, channels, size, size] to [n, 500]."""
    side = size // 2 // 2
    return nn.Sequential(
        nn.Conv2d(channels, 20, kernel_size=5, padding=2),
        nn.BatchNorm2d(20),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, kernel_size=5, padding=2),
        nn.BatchNorm2d(50),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * side * side, UNITS),
        nn.BatchNorm1d(UNITS),
        nn.ReLU(),
    )
