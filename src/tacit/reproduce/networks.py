"""Networks of the stand-ins."""

from __future__ import annotations

from torch import nn

from tacit.federation import Federation
from tacit.local.flat import ModelFactory
from tacit.models import MODELS


def small_cnn(federation: Federation) -> nn.Module:
    """The paper's FEMNIST network with a quarter of the filters, for images of 28 x 28.

    A tenth of the parameters: noise grows with their number, and a last step that tries many
    recipes on every task takes minutes instead of an hour.
    """
    channels = federation.input_shape[0]
    return nn.Sequential(
        nn.Conv2d(channels, 8, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, federation.outputs),
    )


STROKES = "strokes"
"""A linear layer on the fixed representation of that name: a thousand shared parameters."""
NETWORKS: dict[str, ModelFactory] = {**MODELS, "small-cnn": small_cnn, STROKES: MODELS["linear"]}
"""Models by name, with those that only reproductions use."""
