"""Small networks of every sort of layer that could carry something from task to task."""

from __future__ import annotations

import torch
from torch import nn

IMAGE = (1, 14, 14)
NUMBERS = (13,)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(13, 17), nn.Tanh(), nn.Linear(17, 3))


def _curved() -> nn.Module:
    """Activations whose vectorised code differs from what is used for the last few numbers."""
    parts = [nn.Linear(13, 19), nn.GELU("tanh"), nn.LayerNorm(19), nn.Mish(), nn.Linear(19, 7)]
    return nn.Sequential(*parts, nn.SELU(), nn.Softplus(), nn.Linear(7, 3))


def _dropout() -> nn.Module:
    parts = [nn.Linear(13, 19), nn.SELU(), nn.AlphaDropout(0.2), nn.Dropout(0.3)]
    return nn.Sequential(*parts, nn.Linear(19, 3))


def _cnn() -> nn.Module:
    parts = [nn.Conv2d(1, 5, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 9, 3), nn.ReLU()]
    return nn.Sequential(*parts, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9, 3))


def _statistics() -> nn.Module:
    parts = [nn.Conv2d(1, 5, 5), nn.BatchNorm2d(5), nn.ReLU(), nn.Dropout2d(0.2), nn.MaxPool2d(2)]
    return nn.Sequential(
        *parts, nn.Flatten(), nn.Linear(125, 9), nn.BatchNorm1d(9), nn.Linear(9, 3)
    )


NETWORKS = {
    "mlp": (_mlp, NUMBERS),
    "curved": (_curved, NUMBERS),
    "dropout": (_dropout, NUMBERS),
    "cnn": (_cnn, IMAGE),
    "statistics": (_statistics, IMAGE),
}


def made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The network, with the same weights in every test, and the shape of its rows."""
    make, shape = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return make(), shape
