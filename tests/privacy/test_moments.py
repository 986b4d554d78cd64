"""Mean and covariance as one release: its length, its noise, its price."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from tacit.errors import TacitError
from tacit.privacy import Everyone, Ledger, Poisson, Release, noise_for, spent
from tacit.privacy.bounds import Bounded, Place
from tacit.privacy.channel import Channel
from tacit.privacy.covariance import unflatten
from tacit.privacy.grid import Grid
from tacit.privacy.moments import Moments
from tacit.randomness import Randomness

SHARES = [Moments(), Moments(0.0, 1.0), Moments(0.5, 0.4, 0.1), Moments(0.7, 0.0, 0.3)]


def lifted(moments: Moments, rows: torch.Tensor, clip: float = 2.0, **more) -> torch.Tensor:
    """What the channel sums of these contributions, in its own units."""
    one = Channel(Everyone(), len(rows), Randomness.of(0), clip=clip,
                  release=Release(Everyone(), 0.0), moments=moments, **more)  # fmt: skip
    collection = one.open(0, 1)
    collection.add(rows)
    return collection._Collection__sum.double() / 2**30  # type: ignore[attr-defined]


numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("moments", SHARES)
@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=2, max_size=2))
def test_one_task_moves_a_release_by_one_and_replacing_it_by_no_more_than_stated(moments, rows):
    both = torch.tensor(rows)
    one, other = (lifted(moments, both[k : k + 1]) for k in (0, 1))
    assert one.isfinite().all()
    assert float(one.double().norm()) <= 1.0
    assert float((one - other).double().norm()) <= moments.replaced
    together = lifted(moments, both)
    assert torch.allclose(together, one + other, atol=1e-5)


def test_the_bound_for_a_covariance_is_reached_and_is_the_square_root_of_two():
    rows = torch.eye(3)[:2] * 100
    one, other = (lifted(Moments(), rows[k : k + 1]) for k in (0, 1))
    assert Moments().replaced == pytest.approx(math.sqrt(2))
    assert float((one - other).norm()) == pytest.approx(math.sqrt(2), abs=1e-4)


def test_without_noise_the_release_is_mean_extra_and_covariance():
    rng = torch.Generator().manual_seed(0)
    v, u = torch.randn(50, 3, generator=rng) * 0.1, torch.rand(50, 1, generator=rng)
    one = Channel(Everyone(), 50, Randomness.of(0), clip=2.0, release=Release(Everyone(), 0.0),
                  moments=Moments(0.5, 0.4, 0.1))  # fmt: skip
    collection = one.open(0, 1)
    collection.add(torch.cat([v, u], dim=1))
    found = collection.publishable(4)
    assert torch.allclose(found[:3], v.mean(0), atol=1e-5)
    assert float(found[3]) == pytest.approx(float(u.mean()), rel=1e-4)
    assert torch.allclose(unflatten(found[4:], 3), v.T @ v / 50, atol=1e-5)


def test_long_vectors_are_clipped_to_the_ball_and_extras_to_the_interval():
    rows = torch.tensor([[30.0, 40.0, 7.0]])
    one = Channel(Everyone(), 1, Randomness.of(0), clip=2.0, release=Release(Everyone(), 0.0),
                  moments=Moments(0.5, 0.4, 0.1))  # fmt: skip
    collection = one.open(0, 1)
    collection.add(rows)
    found = collection.publishable(3)
    w = torch.tensor([1.2, 1.6])
    assert torch.allclose(found[:2], w, atol=1e-4)
    assert float(found[2]) == pytest.approx(1.0)
    assert torch.allclose(unflatten(found[3:], 2), w.outer(w), atol=1e-3)


def test_noise_is_symmetric_and_isometric_in_the_units_of_the_clip():
    z, clip, runs = 3.0, 2.0, 4000
    one = Channel(Everyone(), 1, Randomness.of(0), clip=clip, release=Release(Everyone(), z),
                  moments=Moments())  # fmt: skip
    draws = torch.stack([unflatten(one.open(k, runs).publishable(3), 3) for k in range(runs)])
    assert torch.equal(draws, draws.mT)
    on = draws.diagonal(dim1=1, dim2=2).std()
    beside = draws[:, 0, 1].std()
    assert float(on) == pytest.approx(z * clip**2, rel=0.05)
    assert float(beside) == pytest.approx(z * clip**2 / math.sqrt(2), rel=0.05)


def test_a_covariance_is_cheaper_than_a_sum_when_a_task_is_replaced():
    plain = spent({Release(Everyone(), 5.0): 1}, 1e-3, "replace").epsilon
    moved = spent({Release(Everyone(), 5.0, math.sqrt(2)): 1}, 1e-3, "replace").epsilon
    same = spent({Release(Everyone(), 5.0 * math.sqrt(2)): 1}, 1e-3, "replace").epsilon
    assert moved == pytest.approx(same)
    assert moved < plain
    add = [spent({Release(Everyone(), 5.0, r): 1}, 1e-3, "add-remove").epsilon for r in (1.5, 2.0)]
    assert add[0] == add[1]


def test_after_sampling_the_smaller_move_is_not_claimed():
    both = [spent({Release(Poisson(0.5), 5.0, r): 3}, 1e-3, "replace").epsilon for r in (1.5, 2.0)]
    assert both[0] == both[1]


def test_the_ledger_remembers_how_far_a_task_moves_a_release(tmp_path):
    ledger = Ledger.at(tmp_path / "ledger.jsonl")
    release = Release(Everyone(), 5.0, math.sqrt(2))
    ledger.book(0, release, repeatable=False)
    assert dict(Ledger.at(tmp_path / "ledger.jsonl").releases()) == {release: 1}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_releases_over_everybody_compose_to_one_gaussian(neighbours):
    """Against the closed form of the Gaussian mechanism (Balle & Wang 2018)."""
    noises, delta = (3.0, 4.0, 12.0), 1e-3
    found = spent({Release(Everyone(), z): 1 for z in noises}, delta, neighbours).epsilon
    moved = (1 if neighbours == "add-remove" else 2) * sum(z**-2 for z in noises) ** 0.5

    def excess(epsilon: float) -> float:
        high, low = (stats.norm.cdf(sign * moved / 2 - epsilon / moved) for sign in (1, -1))
        return high - math.exp(epsilon) * low - delta

    assert found == pytest.approx(optimize.brentq(excess, 1e-6, 50), rel=1e-3)


def test_weights_of_rounds_are_booked_and_together_cost_the_budget():
    weights = (0.25, 0.5, 1.0)
    noise = noise_for(1.0, 1e-3, Everyone(), 3, "add-remove", weights=weights)
    one = Channel(Everyone(), 4, Randomness.of(0), clip=1.0, release=Release(Everyone(), noise),
                  weights=weights)  # fmt: skip
    for round in range(3):
        one.open(round, 3).publishable(2)
    booked = sorted(entry["noise_multiplier"] for entry in one.ledger.entries)
    assert booked == pytest.approx(sorted(noise / w for w in weights))
    found = spent(one.ledger.releases(), 1e-3, "add-remove").epsilon
    assert 0.999 < found <= 1.0
    assert np.isclose(one.noise_at(0), noise / 0.25 / 4)


@pytest.mark.parametrize("shares", [(1.0, 1.0, 0.0), (1.5, -0.5, 0.0), (0.5, 0.0, 0.0)])
def test_shares_that_would_break_the_bound_are_refused(shares):
    with pytest.raises(TacitError, match="add up to 1"):
        Moments(*shares)


@pytest.mark.parametrize("moments", SHARES)
def test_who_is_at_several_tasks_moves_all_their_sums_together_by_one(moments):
    """The extra number was sent whole at each of them, so that it moved the sum as often."""
    places, rows = 4, torch.full((4, 5), 100.0)
    bounded = Bounded.of(rows, 2.0, moments).over(places)
    total = bounded.vectors(Place(moments), None).sum(dim=0)
    once = Bounded.of(rows[:1], 2.0, moments).vectors(Place(moments), None)[0]
    assert float(torch.linalg.vector_norm(total)) <= 1
    assert torch.allclose(total, once)  # and is read as what one task would have sent
    grid = Grid.of(4, 1, 1.0)
    summed = bounded.summed(Place(moments), None, grid).double() / grid.steps
    assert torch.allclose(summed, once, atol=1e-8)
