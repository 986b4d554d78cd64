"""Networks of the stand-ins."""

from __future__ import annotations

from torch import nn

from tacit.data.federation import Federation
from tacit.local.flat import ModelFactory
from tacit.models import MODELS, femnist_cnn


def small_cnn(federation: Federation) -> nn.Module:
    """The paper's FEMNIST network with a quarter of the filters.

    A tenth of the parameters: noise grows with their number, and a last step that tries many
    recipes on every task takes minutes instead of an hour.
    """
    channels, size, _ = federation.input_shape
    return femnist_cnn(channels, size, federation.outputs, filters=(8, 16))


STROKES = "strokes"
"""A linear layer on the fixed representation of that name: a thousand shared parameters."""
NETWORKS: dict[str, ModelFactory] = {**MODELS, "small-cnn": small_cnn, STROKES: MODELS["linear"]}
"""Models by name, with those that only reproductions use."""
