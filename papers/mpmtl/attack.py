"""Attack a covariance with noise: what an observer finds out about one task.

    python -m papers.mpmtl.attack                      # the figures of docs/privacy.md

Noise that is positive definite is found out by a test without false positives, which refutes every
ε at once; other noise is attacked along the direction in which the two neighbours differ most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from papers.common.refute import lower_bound
from papers.mpmtl.wishart import printed_scale, wishart_noise
from tacit.errors import TacitError
from tacit.privacy import Everyone, noise_for
from tacit.privacy.covariance import unflatten
from tacit.randomness import Randomness

CHUNK = 1000
"""Releases that are attacked at once."""


@dataclass(frozen=True)
class CovarianceAudit:
    """What an observer of a noisy covariance finds out about one task."""

    rate: float
    """Share of releases without the task that cannot be releases with it; 0 if there are alarms."""
    error: float
    """Standard error of the rate."""
    alarms: int
    """Releases with the task that the same test calls impossible: it only proves without them."""
    refuted: bool
    """Whether the test, without one alarm, hits more often than δ explains: no ε is left."""
    epsilon_lower: float
    """What is proved about ε by counting alone, with the confidence asked for."""


def refutation(
    noise: Callable[[int], Tensor],
    w: Tensor,
    runs: int = 10_000,
    delta: float = 0.0,
    confidence: float = 0.999,
) -> CovarianceAudit:
    """Attack Z = A + E, where the task is absent, against Z = A + wwᵀ + E, where it takes part.

    `noise(run)` draws E [d, d] of one release; it is called for 2 · `runs` different runs. The
    observer knows A and w, so A cancels. Two tests are made:

    * is Z − A − wwᵀ positive definite? If E always is, then with the task the answer is always yes,
      and each no proves its absence. For such noise `refuted` refutes every ε; for noise that is
      merely seldom indefinite, `epsilon_lower` is what was proved.
    * how large is wᵀ(Z − A)w? For Gaussian noise this is the most powerful test.

    `epsilon_lower` is the better of the two, each at half the doubt.
    """
    if runs < 2:
        raise TacitError(f"runs={runs!r}: at least two are needed, and thousands to find anything")
    w = w.double()
    outer, direction = torch.outer(w, w), w / torch.linalg.vector_norm(w)
    impossible, along = np.empty((2, runs)), np.empty((2, runs))
    for present in (0, 1):
        for start in range(0, runs, CHUNK):
            part = range(start, min(start + CHUNK, runs))
            drawn = torch.stack([noise(present * runs + run) for run in part]).double()
            seen = drawn + present * outer
            failed = torch.linalg.cholesky_ex(seen - outer).info != 0
            impossible[present, part.start : part.stop] = failed.numpy()
            along[present, part.start : part.stop] = (seen @ direction @ direction).numpy()
    hits, alarms = (int(side.sum()) for side in impossible)
    least = stats.beta.ppf(1 - confidence, hits, runs - hits + 1) if hits else 0.0
    rate = 0.0 if alarms else hits / runs
    doubt = (1 + confidence) / 2
    proved = (lower_bound(side[1], side[0], delta, doubt) for side in (impossible, along))
    return CovarianceAudit(
        rate,
        math.sqrt(rate * (1 - rate) / runs),
        alarms,
        alarms == 0 and bool(least > delta),
        max(proved),
    )


def main(runs: int = 10_000, seed: int = 0) -> None:
    """The Wishart mechanism as published, and the Gaussian one, under attack."""
    randomness = Randomness.of(seed)  # reproducible: nothing private is attacked here
    print(f"Wishart noise for a promised ε, {runs} releases without the task")
    for epsilon in (0.1, 1.0):
        scale = printed_scale(1.0, epsilon, "K2")
        for d in (1, 5, 30):
            found = refutation(
                lambda run, d=d, scale=scale: wishart_noise(d, scale, randomness, run),
                torch.ones(d) / math.sqrt(d),
                runs,
            )
            print(
                f"  ε = {epsilon:<4g} d = {d:<3d} proved absent in {found.rate:.4f} ± "
                f"{found.error:.4f} (predicted {1 - math.exp(-epsilon):.4f}), "
                f"{found.alarms} false alarms"
            )
    d, epsilon, delta = 5, 1.0, 1e-3
    needed = noise_for(epsilon, delta, Everyone(), 1, "add-remove")
    print(f"Gaussian noise for ε = {epsilon:g} at δ = {delta:g}, d = {d}, {4 * runs} releases")
    for part, words in ((needed, "as needed"), (needed / 2, "half of it")):

        def gaussian(run: int, spread: float = part) -> Tensor:
            return unflatten(torch.from_numpy(randomness.normal("noise", run, 15)) * spread, d)

        found = refutation(gaussian, torch.ones(d) / math.sqrt(d), 4 * runs, delta)
        verdict = "broken" if found.epsilon_lower > epsilon else "not refuted"
        print(f"  {words:<10}  ε ≥ {found.epsilon_lower:.3f}: the promise is {verdict}")


if __name__ == "__main__":
    main()
