"""What a model cannot read, said before it is built."""

from __future__ import annotations

from tacit.data.federation import Federation
from tacit.errors import TacitError


def refuse_words(federation: Federation, model: str) -> None:
    """An id is a name, not an amount: models that would multiply it say so."""
    if federation.words is not None:
        raise TacitError(
            f"rows are lists of word ids, so model {model!r} cannot read them; use model 'bag'"
        )


def refuse_pixels(federation: Federation, model: str) -> None:
    """Classes of pixels need a model that keeps the image's shape to its end."""
    if federation.kind == "segmentation":
        raise TacitError(
            f"model {model!r} predicts labels of a row, but here every pixel has a class; use "
            "model 'segnet'"
        )


def image_shape(federation: Federation, model: str, square: bool = True) -> tuple[int, int, int]:
    """Channels, height and width of images that are large enough to be pooled."""
    shape = federation.input_shape
    if len(shape) != 3 or min(shape[1:]) < 16 or (square and shape[1] != shape[2]):
        raise TacitError(
            f"model {model!r} needs {'square ' if square else ''}images of at least 16 x 16 "
            f"(channels, height, width), but rows have shape {shape}; use model 'linear' or 'mlp'"
        )
    return shape[0], shape[1], shape[2]
