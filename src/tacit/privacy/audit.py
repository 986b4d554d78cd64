"""Attack a mechanism: what an observer's success proves about its ε, from below.

A promise of (ε, δ) bounds every test between two neighbours: true positives ≤ e^ε · false positives
+ δ. A test that does better refutes the promise. `lower_bound` turns an observer's scores into the
largest ε they refute with confidence; a correct mechanism stays above it.

`refutation` attacks a covariance with noise. Noise that is positive definite is found out by a test
without false positives, which refutes every ε at once; other noise is attacked along the direction
in which the two neighbours differ most. `python -m tacit.privacy.audit` prints the figures of
docs/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tacit.errors import TacitError

CHUNK = 1000
"""Releases that are attacked at once."""


def lower_bound(
    present: np.ndarray, absent: np.ndarray, delta: float, confidence: float = 0.999
) -> float:
    """A lower bound on ε, valid with the given confidence.

    `present` and `absent` are an observer's scores in repeated runs on two neighbours. The first
    half of each chooses the threshold, the second half is counted, with Clopper-Pearson intervals.
    Both tails and both roles are tried when choosing; only one test is counted, so the confidence
    is not diluted.
    """
    half_present, half_absent = len(present) // 2, len(absent) // 2
    pilot = (present[:half_present], absent[:half_absent])
    count = (present[half_present:], absent[half_absent:])
    best = max(
        (
            (_refuted(*_counts(pilot, threshold, sign, swap), delta, 0.9), threshold, sign, swap)
            for threshold in np.quantile(np.concatenate(pilot), np.linspace(0.001, 0.999, 200))
            for sign in (1, -1)
            for swap in (False, True)
        ),
        key=lambda found: found[0],
    )
    return max(0.0, _refuted(*_counts(count, *best[1:]), delta, confidence))


def _counts(
    scores: tuple[np.ndarray, np.ndarray], threshold: float, sign: int, swap: bool
) -> tuple[int, int, int, int]:
    one, other = scores[::-1] if swap else scores
    hits, alarms = (int((sign * (side - threshold) > 0).sum()) for side in (one, other))
    return hits, len(one), alarms, len(other)


def _refuted(
    hits: int, runs: int, alarms: int, others: int, delta: float, confidence: float
) -> float:
    side = (1 - confidence) / 2
    least = stats.beta.ppf(side, hits, runs - hits + 1) if hits else 0.0
    most = stats.beta.ppf(1 - side, alarms + 1, others - alarms) if alarms < others else 1.0
    return math.log((least - delta) / most) if least > delta else -math.inf


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
    from tacit.privacy.calibration import noise_for
    from tacit.privacy.covariance import printed_scale, unflatten, wishart_noise
    from tacit.privacy.sampling import Everyone
    from tacit.randomness import Randomness

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
