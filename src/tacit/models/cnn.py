"""The small convolutional networks commonly trained on FEMNIST, CelebA and FedMTL's faces."""

from torch import Tensor, nn


def femnist_cnn(
    channels: int = 1, size: int = 28, classes: int = 62, filters: tuple[int, int] = (32, 64)
) -> nn.Sequential:
    """Two 5x5 convolutions with pooling, then one linear layer: [B, channels, size, size] in."""
    first, second = filters
    side = ((size - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, first, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * side * side, classes),
    )


class GroupNorm(nn.GroupNorm):
    """`nn.GroupNorm` on images whose channels lie innermost in memory, as the engine's do."""

    def forward(self, input: Tensor) -> Tensor:
        # Mapped over tasks, PyTorch's own refuses every other layout.
        return super().forward(input.contiguous())


def celeba_cnn(channels: int = 3, size: int = 84, outputs: int = 1) -> nn.Sequential:
    """LEAF's network for CelebA: four times a 3x3 convolution, 32 filters, pooling; then linear.

    Two things differ from LEAF. It normalises each batch (BatchNorm); here the filters of each
    image are normalised in groups of four (GroupNorm), which keeps no statistics of a task's rows
    beside the model. And its two outputs with softmax are one output with a sigmoid where the
    target is binary, which is the same model with one of two redundant rows.
    """
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [
            nn.Conv2d(channels, 32, kernel_size=3, padding=1),
            GroupNorm(8, 32),
            nn.MaxPool2d(2),
            nn.ReLU(),
        ]
        channels, size = 32, size // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * size * size, outputs))


UNITS = 500
"""How many features a head sees."""


def lenet_body(channels: int = 3, size: int = 32) -> nn.Sequential:
    """LeNet's shared layers, with batch normalisation: [n, channels, size, size] to [n, 500].

    Yann LeCun et al. "Gradient-Based Learning Applied to Document Recognition." 1998 (the idea).
    Sergey Ioffe, Christian Szegedy. "Batch Normalization." 2015.

    FedMTL's paper publishes no layout, only how many parameters are shared and how many a task
    layer has; for RGB images of 32 x 32 this layout has exactly those: 1 628 210 and, for five
    labels, 2 505.
    """
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
