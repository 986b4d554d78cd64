"""An observer of a covariance refutes Wishart noise, leaves Gaussian noise, and catches half of it.

Everything is seeded: an attack that succeeds does so in every run of the tests.
"""

from __future__ import annotations

import math

import pytest
import torch

from papers.mpmtl import attack
from papers.mpmtl.attack import CovarianceAudit, refutation
from papers.mpmtl.wishart import printed_scale, wishart_noise
from tacit.errors import TacitError
from tacit.privacy import Everyone, noise_for
from tacit.privacy.covariance import moved, unflatten
from tacit.randomness import Randomness

DELTA = 1e-3


def model(d: int, norm: float = 1.0) -> torch.Tensor:
    direction = torch.arange(1.0, d + 1, dtype=torch.double)
    return norm * direction / direction.norm()


def wishart(d: int, scale: float, seed: int = 0):
    randomness = Randomness.of(seed)
    return lambda run: wishart_noise(d, scale, randomness, run)


def gaussian(d: int, spread: float, runs: int, seed: int = 0):
    """Noise for 2 · `runs` releases, drawn at once."""
    size = d * (d + 1) // 2
    normal = Randomness.of(seed).normal("noise", 0, 2 * runs * size).reshape(2 * runs, size)
    return unflatten(torch.from_numpy(normal) * spread, d).__getitem__


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("d", [1, 5, 30])
def test_wishart_noise_is_refuted_as_often_as_proved_in_every_dimension(d, epsilon):
    found = refutation(wishart(d, printed_scale(1.0, epsilon, "K2")), model(d), runs=6000)
    expected = 1 - math.exp(-epsilon)
    assert found.refuted
    assert found.alarms == 0
    assert found.error == pytest.approx(math.sqrt(expected * (1 - expected) / 6000), rel=0.1)
    assert abs(found.rate - expected) <= 3 * found.error
    assert found.epsilon_lower > epsilon  # even by counting alone


def test_the_rate_follows_the_norm_of_the_model_and_the_printed_sensitivity():
    clip, norm, epsilon = 3.0, 2.0, 0.4
    found = refutation(wishart(4, printed_scale(clip, epsilon, "2K")), model(4, norm), runs=6000)
    assert abs(found.rate - (1 - math.exp(-epsilon * norm**2 / (2 * clip)))) <= 3 * found.error


def test_a_delta_above_the_rate_is_not_refuted():
    attacked = wishart(3, printed_scale(1.0, 0.1, "K2"))
    assert refutation(attacked, model(3), runs=3000, delta=0.05).refuted
    generous = refutation(attacked, model(3), runs=3000, delta=0.15)
    assert not generous.refuted
    assert generous.rate > 0
    assert generous.epsilon_lower <= 0.1  # (ε, 1 − e^{−ε}) is what one release really keeps


@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_gaussian_noise_as_calibrated_is_not_refuted(d, epsilon):
    runs, needed = 40_000, noise_for(epsilon, DELTA, Everyone(), 1, "add-remove")
    found = refutation(gaussian(d, needed, runs), model(d), runs, DELTA)
    assert found.rate == found.error == 0
    assert found.alarms > 0  # the test that refutes Wishart noise proves nothing here
    assert not found.refuted
    assert found.epsilon_lower <= epsilon
    if epsilon == 1:
        assert found.epsilon_lower > 0.3 * epsilon  # strong enough to be worth failing


@pytest.mark.parametrize(
    ("d", "epsilon", "runs"), [(1, 0.1, 800_000), (1, 1, 100_000), (5, 1, 100_000)]
)
def test_half_the_noise_is_caught(d, epsilon, runs):
    needed = noise_for(epsilon, DELTA, Everyone(), 1, "add-remove")
    found = refutation(gaussian(d, needed / 2, runs), model(d), runs, DELTA)
    assert found.epsilon_lower > epsilon
    assert not found.refuted  # too little, but not none


def test_replacing_a_task_needs_noise_for_the_larger_move():
    """Orthogonal models are the worst pair; noise for add-remove does not hide their difference.

    The attack is that of one model whose covariance moves as far: only the distance counts.
    """
    runs, needed = 40_000, noise_for(1.0, DELTA, Everyone(), 1, "add-remove")
    far = model(2, math.sqrt(moved("replace")))
    too_little = refutation(gaussian(2, needed, 10 * runs), far, 10 * runs, DELTA)
    enough = refutation(gaussian(2, needed * moved("replace"), runs), far, runs, DELTA)
    assert too_little.epsilon_lower > 1.0 >= enough.epsilon_lower


def test_noise_must_be_drawn_anew_for_every_release():
    seen: list[int] = []

    def noise(run: int) -> torch.Tensor:
        seen.append(run)
        return torch.eye(2) * (1 + run)

    found = refutation(noise, model(2), runs=2500)
    assert sorted(seen) == list(range(5000))
    assert isinstance(found, CovarianceAudit)
    with pytest.raises(TacitError, match="runs=1"):
        refutation(noise, model(2), runs=1)


def test_constant_noise_hides_nothing_whether_or_not_the_support_shows_it():
    small = refutation(lambda run: torch.eye(3) / 2, model(3), runs=500)
    assert (small.rate, small.refuted) == (1.0, True)
    large = refutation(lambda run: torch.eye(3) * 2, model(3), runs=500)
    assert (large.rate, large.refuted) == (0.0, False)
    assert large.epsilon_lower > 3


def test_the_attack_prints_what_it_found(capsys):
    attack.main(runs=400)
    printed = capsys.readouterr().out
    assert printed.count(" 0 false alarms") == 6
    assert "not refuted" in printed
