"""scikit-learn's handwritten digits, dealt to simulated writers.

The data set does not say who wrote which digit, so the writers here are *simulated*: each has its
own mix of the ten classes, drawn from a Dirichlet distribution, and no two share an image. Results
on it say something about uneven classes, nothing about handwriting styles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.checks import check_whole
from tacit.data.arrays import from_arrays
from tacit.data.federation import Federation
from tacit.errors import TacitError


def digits(
    writers: int = 40,
    concentration: float = 1.0,
    seed: int = 0,
    *,
    flat: bool = False,
    **split: Any,
) -> Federation:
    """1797 images of 8 x 8 points in [0, 1], ten classes, x [N, 1, 8, 8] or flat [N, 64].

    A small `concentration` gives each writer few classes; a large one gives all the same mix.
    """
    check_whole("writers", writers, 2, 500)
    if not concentration > 0:
        raise TacitError(f"concentration is {concentration}, expected a number above 0")
    check_whole("seed", seed, 0)
    from sklearn.datasets import load_digits  # slow to import, and most runs do not need it

    points, classes = (np.asarray(side) for side in load_digits(return_X_y=True))
    images = (points / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)  # 16 is the public maximum
    rng = np.random.default_rng(seed)
    mixes = rng.dirichlet(np.full(10, float(concentration)), size=writers)
    # Each image goes to a writer with a chance proportional to how much the writer likes its class.
    # A tiny floor keeps a class that no writer drew from being impossible to deal.
    chances = np.cumsum(mixes[:, classes].T + 1e-12, axis=1)
    draws = rng.random(len(classes)) * chances[:, -1]
    writer = np.minimum((chances < draws[:, None]).sum(axis=1), writers - 1)
    in_order = np.argsort(writer, kind="stable")  # so that writer-0 is the first task
    names = np.array([f"writer-{k}" for k in range(writers)])[writer[in_order]]
    x = images.reshape(-1, 64) if flat else images
    usual: Any = {"min_rows": 3} | split
    return from_arrays(
        x[in_order],
        classes[in_order],
        names,
        kind="multiclass",
        **usual,
        scale="none",
        source="scikit-learn digits, simulated writers",
    )
