"""A task's choice is guarded against luck, and is its own."""

from __future__ import annotations

import math

import torch

from tacit.local.choose import NEGLIGIBLE, RESAMPLES, _poisson, choose, likely
from tacit.randomness import scramble


def federation(tasks: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(tasks + 1) * rows, torch.arange(tasks)


def only(candidates: int, tasks: int, *which: int) -> torch.Tensor:
    """These candidates are safe for everyone."""
    safe = torch.zeros(candidates, tasks, dtype=torch.bool)
    safe[list(which)] = True
    return safe


def test_a_clearly_better_candidate_is_taken_and_a_clearly_worse_one_left():
    offsets, tasks = federation(20, 10)
    noise = torch.randn(1, 200, generator=torch.Generator().manual_seed(0)).abs()
    safe = only(2, 20, 0)
    better = torch.cat([1 + noise, 0.5 + noise])
    assert choose(better, offsets, safe, tasks + 7000).tolist() == [1] * 20
    assert choose(1.5 - better, offsets, safe, tasks + 7000).tolist() == [0] * 20


def test_luck_among_many_equals_is_not_followed_as_often_as_the_plain_best():
    """Thirty candidates as good as the safe one: the plain best is nearly never the safe one."""
    offsets, tasks = federation(400, 8)
    losses = torch.rand(31, 3200, generator=torch.Generator().manual_seed(0))
    chosen = choose(losses, offsets, only(31, 400, 0), tasks + 7000)
    plain = choose(losses, offsets, only(31, 400), tasks + 7000)
    assert (plain == 0).float().mean() < 0.1
    assert (chosen == 0).float().mean() > 0.4


def test_what_a_task_chooses_does_not_depend_on_who_else_is_there():
    offsets, tasks = federation(30, 7)
    losses = torch.rand(5, 210, generator=torch.Generator().manual_seed(3))
    safe = only(5, 30, 0, 4)
    together = choose(losses, offsets, safe, tasks + 7000)
    for k in (0, 13, 29):
        own = losses[:, 7 * k : 7 * k + 7]
        alone = choose(own, torch.tensor([0, 7]), safe[:, :1], torch.tensor([k + 7000]))
        assert alone.item() == together[k]


def test_losses_that_are_not_finite_never_win():
    offsets, tasks = federation(3, 4)
    losses = torch.stack(
        [torch.ones(12), torch.full((12,), torch.nan), -torch.full((12,), torch.inf)]
    )
    safe = only(3, 3, 0)
    assert choose(losses, offsets, safe, tasks + 7000).tolist() == [0, 0, 0]


def test_resamples_are_poisson_of_mean_one():
    uniform = torch.cat(
        [(scramble(k, torch.arange(4000), 5) >> 11).double() / 2.0**53 + 0.5 for k in range(8)]
    )
    assert uniform.min() >= 0 and uniform.max() < 1
    drawn = _poisson(uniform)
    assert abs(drawn.mean() - 1) < 0.03
    assert abs(drawn.var() - 1) < 0.06
    assert RESAMPLES >= 32


def test_few_rows_keep_the_safe_candidate():
    losses = torch.stack([torch.ones(4), torch.zeros(4)])
    offsets, tasks = torch.tensor([0, 1, 4]), torch.arange(2)
    assert choose(losses, offsets, only(2, 2, 0), tasks + 7000).tolist() == [0, 1]
    assert choose(losses, offsets, only(2, 2, 0), tasks + 7000, least_rows=4).tolist() == [0, 0]


def test_weights_are_what_candidates_foresaw():
    """Of log losses the posterior; of squared errors that of a bell, in whatever unit."""
    offsets = torch.tensor([0, 2, 5])
    losses = torch.tensor([[0.5, 0.3, 1.0, 1.0, 1.0], [0.2, 0.1, 3.0, 3.0, 3.0]])
    found = likely(losses, offsets, squared=False)
    chances = torch.tensor([[0.8, 3.0], [0.3, 9.0]]).double().neg().exp()
    expected = chances / chances.sum(0)
    assert torch.allclose(found[:, 0], expected[:, 0], atol=NEGLIGIBLE)
    assert (
        found[1, 1] == 0 and expected[1, 1] < NEGLIGIBLE / 2
    )  # hopeless ones are not trained again
    one, other = (likely(unit * losses, offsets, squared=True) for unit in (1.0, 1e3))
    assert torch.allclose(one, other)
    odds = math.exp(-(0.8 - 0.3) / (2 * 0.15))
    assert abs(float(one[0, 0]) - odds / (1 + odds)) < NEGLIGIBLE


def test_what_diverged_has_no_weight_and_luck_is_shared():
    offsets, _ = federation(400, 6)
    losses = torch.rand(20, 2400, generator=torch.Generator().manual_seed(0))
    losses[3], losses[4] = torch.nan, torch.inf
    weights = likely(losses, offsets, squared=False)
    assert not weights[3:5].any() and torch.allclose(weights.sum(0), torch.ones(400).double())
    assert float(weights.max(dim=0).values.median()) < 0.4
    assert likely(losses[:, :0], torch.zeros(2, dtype=torch.int64), squared=True).isfinite().all()
