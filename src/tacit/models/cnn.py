"""The small convolutional network commonly trained on FEMNIST."""

from torch import nn


def femnist_cnn(channels: int = 1, size: int = 28, classes: int = 62) -> nn.Sequential:
    """Two 5x5 convolutions with pooling, then one linear layer: [B, channels, size, size] in."""
    side = ((size - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 32, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * side * side, classes),
    )
