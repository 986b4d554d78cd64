"""The channel keeps its bound whatever is thrown at it; an attacker finds out if it does not."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.common.refute import lower_bound
from tacit.data.relation import Relation
from tacit.privacy import Everyone, Ledger, Poisson, Release, bounds, spent
from tacit.privacy import channel as channel_module
from tacit.privacy.bounds import Bounded, Place, lengths
from tacit.privacy.channel import Budget, BudgetSpent, Channel, Collection
from tacit.privacy.grid import Grid
from tacit.privacy.moments import Moments
from tacit.randomness import Randomness


def channel(tasks=4, noise=0.0, clip=1.0, sampler=None, seed=0, **more) -> Channel:
    sampler = sampler or Everyone()
    release = Release(sampler, noise)
    return Channel(sampler, tasks, Randomness.of(seed), clip=clip, release=release, **more)


def total(contributions: torch.Tensor, **settings) -> torch.Tensor:
    tasks = len(contributions)
    collection = channel(tasks=tasks, **settings).open(0, 1)
    collection.add(contributions)
    return collection.publishable(contributions.shape[1]) * tasks


numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=6))
def test_no_contribution_moves_the_sum_by_more_than_the_clip(rows):
    contributions = torch.tensor(rows)
    whole = total(contributions, clip=0.5)
    without = total(torch.cat([contributions[1:], torch.zeros(1, 3)]), clip=0.5)
    assert whole.isfinite().all()
    assert float((whole - without).norm()) <= 0.5


def test_small_contributions_pass_unchanged_and_large_ones_keep_their_direction():
    small, large = torch.tensor([[0.3, 0.4]]), torch.tensor([[30.0, 40.0]])
    assert torch.equal(total(small), small[0])
    assert torch.allclose(total(large), torch.tensor([0.6, 0.8]), atol=1e-4)
    free = Channel(Everyone(), 1, Randomness.of(0)).open(0, 1)  # no privacy asked: no clip
    free.add(large)
    assert torch.equal(free.publishable(2), large[0])


def test_non_finite_contributions_count_as_zero_and_are_counted():
    one = channel()
    collection = one.open(0, 1)
    collection.add(torch.tensor([[math.nan, 1.0], [math.inf, 0.0], [-math.inf, 0.0], [0.0, 0.0]]))
    assert torch.equal(collection.publishable(2), torch.zeros(2))
    assert one.dropped == 3


@pytest.mark.parametrize("private", [True, False])
def test_vectors_that_tasks_bounded_themselves_are_not_trusted(private):
    """What is not finite counts as zero, and is counted; what is too long is shortened."""
    one = channel() if private else Channel(Everyone(), 4, Randomness.of(0))
    collection = one.open(0, 1)
    collection.add_bounded(torch.tensor([[0.3, 0.4], [math.nan, 0.0]]))
    collection.add_bounded(torch.tensor([[0.0, math.inf], [30.0, 40.0]]))
    long = torch.tensor([0.6, 0.8]) if private else torch.tensor([30.0, 40.0])
    found = collection.publishable(2) * 4
    assert torch.allclose(found, torch.tensor([0.3, 0.4]) + long, atol=1e-5)
    assert one.dropped == 2


def test_a_length_beyond_single_precision_is_clipped_like_any_other():
    found = total(torch.tensor([[3e38, 3e38]]))
    assert torch.allclose(found, torch.full((2,), math.sqrt(0.5)), atol=1e-5)


LOADINGS = torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.5, -0.5], [1.0, 0.0, 0.0], [-0.6, 0.0, 0.8]])
SPREAD = Relation(LOADINGS, LOADINGS, torch.ones(3), torch.ones(3), "three sums")


@pytest.mark.parametrize("clip", [0.5, 10.0])
@pytest.mark.parametrize(
    "place",
    [
        Place(),
        Place(with_bits=True),
        Place(relation=SPREAD),
        Place(relation=SPREAD, with_bits=True),
        Place(moments=Moments(0.5, 0.5), with_bits=True),
    ],
)
def test_however_it_is_summed_a_task_adds_one_vector_of_at_most_a_clip(place, clip):
    """Both ways of summing, with all that a vector can hold: sums, moments, and the bit."""
    rows, tasks = torch.randn(4, 5, generator=torch.manual_seed(0)), torch.arange(4)
    bounded = Bounded.of(rows, clip, place.moments)
    vectors = bounded.vectors(place, tasks)
    assert vectors.shape == (4, place.size(5))
    assert float(vectors.norm(dim=1).max()) <= 1
    assert torch.allclose(bounded.summed(place, tasks, None), vectors.sum(dim=0))
    for k in range(4):  # alone, a task adds its own
        alone = Bounded.of(rows[k : k + 1], clip, place.moments)
        assert torch.allclose(alone.summed(place, tasks[k : k + 1], None), vectors[k])
    if place.moments is None:  # and what is read is the sum of what was clipped
        read, bits = place.apart(vectors.sum(dim=0))
        clipped = rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1) / clip
        loadings = torch.ones(4, 1) if place.relation is None else LOADINGS
        assert torch.allclose(read.float(), (loadings.T @ clipped).reshape(-1), atol=1e-5)
        within = (rows.norm(dim=1) <= clip).double().sum() - 2
        assert bits == pytest.approx(float(within) if place.with_bits else 0.0)


@pytest.mark.parametrize("place", [Place(), Place(relation=SPREAD)])
def test_no_more_numbers_than_stated_are_made_at_a_time_and_the_sum_is_the_same(place, monkeypatch):
    rows, tasks = torch.randn(4, 5, generator=torch.manual_seed(0)), torch.arange(4)
    bounded = Bounded.of(rows, 1.0, None)
    grid = Grid(64, 30)
    whole, seen, steps = bounded.summed(place, tasks, grid), [], bounds._steps
    monkeypatch.setattr(bounds, "AT_ONCE", {"cpu": 10})
    monkeypatch.setattr(bounds, "ABREAST", 2)
    monkeypatch.setattr(
        bounds, "_steps", lambda values, grid: (seen.append(values.numel()), steps(values, grid))[1]
    )
    assert torch.equal(bounded.summed(place, tasks, grid), whole)
    made = seen if place.relation is None else seen[1:]  # the first are the sums themselves
    assert made[:2] == [10, 10] and max(made) == 10


def test_a_contribution_as_long_as_the_clip_is_within_it():
    rows = torch.tensor([[3.0, 4.0], [3.0, 4.1], [0.0, 0.0], [math.nan, 0.0]])
    assert Bounded.of(rows, 5.0, None).bits.tolist() == [0.5, -0.5, 0.5, 0.0]


@pytest.mark.parametrize("length", [1, 15, 16, 17])
def test_lengths_are_taken_of_rows_filled_up_to_whole_vectors(length, monkeypatch):
    """So that every row begins at the same place of a vector, whoever comes before it."""
    seen, norm = [], torch.linalg.vector_norm
    monkeypatch.setattr(
        torch.linalg, "vector_norm", lambda x, **how: (seen.append(x), norm(x, **how))[1]
    )
    rows = torch.ones(3, length)
    assert Bounded.of(rows, 1.0, None).scale[0] <= 1 / math.sqrt(length)
    (filled,) = seen
    assert filled.shape == (3, 16 if length <= 16 else 32)
    assert torch.equal(filled[:, :length].float(), rows) and not filled[:, length:].any()


@pytest.mark.parametrize("length", [31, 1000, 16_384, 70_001])
def test_a_length_is_the_same_whoever_else_is_measured(length):
    """Also where a vector is measured in pieces, and where several pieces are."""
    rows = torch.randn(20, length, generator=torch.Generator().manual_seed(0))
    every = lengths(rows)
    exact = rows.double().square().sum(dim=1).sqrt()
    assert torch.allclose(every, exact, rtol=1e-13, atol=0)
    for first, last in [(0, 1), (3, 5), (7, 16), (11, 20)]:
        assert torch.equal(lengths(rows[first:last].clone()), every[first:last])


@pytest.mark.parametrize("seed", [0, None], ids=["seeded", "secret"])
def test_noise_that_is_drawn_ahead_is_drawn_once_and_for_one_release(seed, monkeypatch):
    drawn, normal = [], Randomness.normal
    monkeypatch.setattr(
        Randomness, "normal", lambda *given: (drawn.append(normal(*given)), drawn[-1])[1]
    )
    one, size = channel(noise=2.0, seed=seed), channel_module.LONG
    released = []
    for round in range(2):
        collection = one.open(round, 2)
        collection.expect(size)
        collection.add(torch.zeros(1, size))
        released.append(collection.publishable(size).double() * one.tasks)
    assert len(drawn) == 2 and not torch.equal(*released)
    for noise, sums in zip(drawn, released, strict=True):
        assert torch.allclose(sums, torch.from_numpy(noise) * 2.0, atol=1e-5)


def test_noise_that_a_thread_could_not_draw_is_drawn_at_the_release(monkeypatch):
    here, normal = threading.get_ident(), Randomness.normal

    def elsewhere_fails(*given):
        if threading.get_ident() != here:
            raise MemoryError
        return normal(*given)

    size = channel_module.LONG
    expected = channel(noise=2.0).open(0, 1).publishable(size)
    monkeypatch.setattr(Randomness, "normal", elsewhere_fails)
    collection = channel(noise=2.0).open(0, 1)
    collection.expect(size)
    assert torch.equal(collection.publishable(size), expected)


def test_the_divisor_is_the_expected_cohort_not_the_realised_one():
    collection = channel(tasks=10, sampler=Poisson(0.5)).open(0, 1)
    collection.add(torch.full((1, 1), 0.5))
    assert float(collection.publishable(1)) == pytest.approx(0.5 / 5)


def test_noise_has_the_standard_deviation_the_accountant_was_told():
    noise, clip, tasks = 3.0, 0.7, 50
    collection = channel(tasks=tasks, noise=noise, clip=clip, seed=None).open(0, 1)
    drawn = collection.publishable(200_000) * tasks
    assert float(drawn.std()) == pytest.approx(noise * clip, rel=0.02)
    assert abs(float(drawn.mean())) < 0.05


def test_an_empty_cohort_is_still_a_booked_noisy_release():
    one = channel(noise=1.0)
    drawn = one.open(0, 1).publishable(5)
    (entry,) = one.ledger.entries
    assert (entry["clip"], entry["size"], entry["grid"]) == (1.0, 5, 2.0**-30)
    assert (drawn != 0).all()


def test_the_ledger_is_written_before_the_noise_is_drawn(tmp_path, monkeypatch):
    path, seen = tmp_path / "ledger.jsonl", []
    one = channel(noise=1.0, seed=None, ledger=Ledger.at(path))
    draw = Randomness.normal

    def spy(self, *args):
        seen.append(len(path.read_text().splitlines()))
        return draw(self, *args)

    monkeypatch.setattr(Randomness, "normal", spy)
    for round in range(3):
        one.open(round, 3).publishable(2)
    assert seen == [1, 2, 3]


def test_a_collection_releases_once_and_its_sum_cannot_be_read():
    collection = channel(noise=0.0).open(0, 1)
    collection.add(torch.ones(4, 2) / 2)
    assert float(collection.publishable(2)[0]) == 0.5
    assert float(collection.publishable(2)[0]) == 0  # booked again, and empty
    assert not [name for name in vars(collection) if not name.startswith("_Collection__")]


def test_the_budget_stops_the_run_before_it_is_passed():
    sampler = Poisson(0.5)
    one = channel(sampler=sampler, noise=5.0, seed=None)
    one.budget = Budget(1.0, 1e-3, "add-remove")
    done = 0
    with pytest.raises(BudgetSpent, match="would pass the budget"):
        for round in range(1000):
            one.open(round, 1000).publishable(1)
            done += 1
    within = spent({Release(sampler, 5.0): done}, 1e-3, "add-remove").epsilon
    beyond = spent({Release(sampler, 5.0): done + 1}, 1e-3, "add-remove").epsilon
    assert within <= 1.0 < beyond


RUNS = 8_000


def scores(sampler: Poisson, noise: float, worst: torch.Tensor, present: bool) -> np.ndarray:
    """What an observer of one release sees along the direction of the task under attack.

    Seeded, so that an attack that succeeds does so in every run of the tests.
    """
    one = channel(tasks=4, sampler=sampler, noise=noise, seed=int(present))
    direction = worst / worst.norm()
    found = np.empty(RUNS)
    others = torch.full((3, len(worst)), 0.1)
    everyone = torch.cat([others, worst.unsqueeze(0)])
    for run in range(RUNS):
        members = torch.from_numpy(one.cohort(run))
        rows = everyone[members] if present else everyone[members[members < 3]]
        collection = one.open(run, RUNS)
        collection.add(rows)
        found[run] = float(collection.publishable(len(worst)) @ direction)
    return found


def attack(noise: float) -> tuple[float, float]:
    """The promised ε of one release, and the ε that an attacker proves."""
    sampler, delta = Poisson(0.8), 1e-3
    worst = torch.tensor([1e4, -1e4, 1e4])
    seen = [scores(sampler, noise, worst, present) for present in (True, False)]
    proved = lower_bound(*seen, delta)
    return spent({Release(sampler, noise): 1}, delta, "add-remove").epsilon, proved


@pytest.mark.slow
def test_attack_the_release_with_the_worst_task():
    promised, proved = attack(noise=1.0)
    assert 0.3 * promised < proved <= promised  # strong enough to be worth failing


@pytest.mark.slow
def test_attack_succeeds_when_clipping_is_removed(monkeypatch):
    def unclipped(self, contributions):
        self._Collection__sum = (contributions.sum(dim=0).double() * 2**30).long()

    monkeypatch.setattr(Collection, "add", unclipped)
    promised, proved = attack(noise=1.0)
    assert proved > promised


@pytest.mark.slow
def test_attack_succeeds_when_the_noise_is_halved(monkeypatch):
    draw = Randomness.normal
    monkeypatch.setattr(Randomness, "normal", lambda self, *args: draw(self, *args) / 2)
    promised, proved = attack(noise=1.0)
    assert proved > promised


def test_a_seeded_run_may_repeat_paid_rounds_when_its_budget_is_used_up():
    """After a crash near the end the ledger is full, but the last rounds must be run again."""
    sampler = Poisson(0.5)
    one = channel(sampler=sampler, noise=5.0, seed=1)
    epsilon = spent({Release(sampler, 5.0): 10}, 1e-3, "add-remove").epsilon
    one.budget = Budget(epsilon, 1e-3, "add-remove")
    first = [one.open(round, 10).publishable(3) for round in range(10)]
    again = channel(sampler=sampler, noise=5.0, seed=1, budget=one.budget, ledger=one.ledger)
    for round in range(7, 10):
        assert torch.equal(again.open(round, 10).publishable(3), first[round])
    assert len(one.ledger) == 10
    with pytest.raises(BudgetSpent):
        again.open(10, 11)


def test_without_a_release_there_is_no_noise():
    channel = Channel(Everyone(), 10, Randomness.of(0))
    assert channel.noise_at(0) == 0.0


@pytest.mark.parametrize("clip", [1e-310, 5e-324])
def test_a_clip_below_all_numbers_moves_nobody_further(clip):
    """A coordinator may ask for any smaller clip where it adapts. Nothing times infinity was no
    number, and as an integer the largest that there is: whoever had nothing to say was seen."""
    nothing, something = torch.zeros(1, 3), torch.full((1, 3), 1e-20)
    for sent in (nothing, something):
        bounded, grid = Bounded.of(sent, clip, None), Grid.of(4, 1, 1.0)
        vector = bounded.summed(Place(), None, grid).double() / grid.steps
        assert float(torch.linalg.vector_norm(vector)) <= 1.0
        assert bool(bounded.vectors(Place(), None).isfinite().all()) and bounded.dropped == 0
