"""The Gram matrix between tasks, W̃ᵀW̃: clipped, booked, then released with symmetric noise.

Not a sum over tasks, so it does not go through the channel; the order is the same. How far one task
moves it is claim 3 of `privacy.covariance`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.privacy.accounting import Release
from tacit.privacy.covariance import gram_moved, unflatten
from tacit.privacy.grid import LONGEST
from tacit.privacy.guarantee import Privacy
from tacit.privacy.ledger import Ledger
from tacit.privacy.sampling import Everyone
from tacit.randomness import Randomness

BEFORE_THE_RUN = -1
"""The round it is booked under, so that a run in the same folder goes on with round 0."""


def released_gram(
    models: Tensor, clip: float, privacy: Privacy, ledger: Ledger, randomness: Randomness
) -> tuple[Tensor, float]:
    """The noisy matrix of models [tasks, d], and the noise's standard deviation on its diagonal.

    A model that is not finite counts as zero.
    """
    tasks = len(models)
    norms = torch.linalg.vector_norm(models.double(), dim=1)
    scale = (clip * LONGEST / norms).clamp(max=1.0).unsqueeze(1)
    models = torch.where(norms.isfinite().unsqueeze(1), models.double() * scale, 0.0)
    moved = gram_moved("add-remove", tasks)
    replaced = gram_moved("replace", tasks) / moved
    noise = privacy.noise_multiplier(Everyone(), 1, tasks, replaced=replaced)
    size = tasks * (tasks + 1) // 2
    ledger.book(
        BEFORE_THE_RUN, Release(Everyone(), noise, replaced),
        repeatable=not randomness.secret, clip=clip, size=size,
    )  # fmt: skip
    spread = noise * moved * clip**2
    drawn = torch.from_numpy(randomness.normal("between", 0, size))
    return models @ models.T + unflatten(drawn * spread, tasks), spread
