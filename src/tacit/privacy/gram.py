"""The Gram matrix between tasks, W̃ᵀW̃: clipped, booked, then released with symmetric noise.

Not a sum over tasks, so it does not go through the channel; the order is the same. How far one task
moves it is claim 3 of `privacy.covariance`. Models are integers on a grid first (`privacy.grid`),
so their products are exact, and rounded noise on them is as private as the Gaussian mechanism.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.privacy.accounting import Release
from tacit.privacy.asked import Privacy
from tacit.privacy.covariance import gram_moved, unflatten
from tacit.privacy.grid import LOUDEST, TAILS, Grid
from tacit.privacy.ledger import Ledger
from tacit.privacy.sampling import Everyone
from tacit.randomness import Randomness

FINEST = 20
"""Bits of a clip that a model has, at most."""
BEFORE_THE_RUN = -1
"""The round it is booked under, so that a run in the same folder goes on with round 0."""


def release_gram(
    models: Tensor, clip: float, privacy: Privacy, ledger: Ledger, randomness: Randomness
) -> tuple[Tensor, float]:
    """The noisy matrix of models [tasks, d], and the noise's standard deviation on its diagonal.

    A model that is not finite counts as zero.
    """
    tasks = len(models)
    moved = gram_moved("add-remove", tasks)
    replaced = gram_moved("replace", tasks) / moved
    noise = privacy.noise_multiplier(Everyone(), 1, tasks, replaced=replaced)
    size = tasks * (tasks + 1) // 2
    release, repeatable = Release(Everyone(), noise, replaced), not randomness.secret
    ledger.book(BEFORE_THE_RUN, release, repeatable=repeatable, clip=clip, size=size)
    grid = _grid(noise * moved)
    integers = torch.from_numpy(grid.integers((models.double() / clip).numpy())).double()
    products = integers @ integers.T  # at most 2⁵²: doubles hold such integers exactly
    drawn = unflatten(torch.from_numpy(randomness.normal("between", 0, size)), tasks)
    noisy = products + torch.round(drawn * (noise * moved * grid.steps**2))
    return noisy * (clip / grid.steps) ** 2, noise * moved * clip**2


def _grid(noise: float) -> Grid:
    """The finest grid of models on whose products noise of so many clips² is still far finer."""
    quiet = (f for f in range(FINEST, 0, -1) if TAILS * noise * 4**f < LOUDEST)
    fraction = next(quiet, None)
    if fraction is None:
        raise TacitError(f"noise {noise:.3g} is beyond all precision: ask for a larger epsilon")
    return Grid(64, fraction)
