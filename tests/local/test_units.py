"""Common units: right without noise, bounded, blind to powers of ten, silent in much noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.func import vmap

from tacit.local import units


def chosen(known: np.ndarray, noise: float = 0.0, seed: int = 0) -> dict[str, torch.Tensor]:
    """Common units of tasks with these centres and spreads [m, columns, 2]."""
    rows = torch.from_numpy(known)
    generator, board = torch.Generator().manual_seed(seed), units.blank(rows.shape[1], rows)
    for stage in units.STAGES:
        votes = vmap(lambda own, stage=stage, board=board: units.votes(stage, own, board))(rows)
        assert float(votes.norm(dim=1).max()) <= 1 + 1e-12
        blur = noise / len(rows)
        mean = votes.mean(0) + blur * torch.randn(votes.shape[1], generator=generator).double()
        board = units.read(stage, mean, torch.tensor(blur).double(), board)
    return board


def column(middle: float, between: float, inside: float, tasks: int = 500, seed: int = 0):
    """Centres and spreads that tasks of six rows see [m, 2]."""
    rng = np.random.default_rng(seed)
    centre = middle + between * rng.normal(size=tasks)
    centre += inside * rng.normal(size=tasks) / math.sqrt(6)
    spread = inside * np.sqrt(rng.chisquare(5, size=tasks) / 6)
    return np.stack([centre, spread], axis=1)


COLUMNS = {
    "a year": (1979.0, 0.0, 2.0),
    "far from zero": (1e4, 0.4, 0.15),
    "further": (-2e4, 0.2, 0.2),
    "years at school": (12.8, 2.8, 0.0),
    "a logarithm": (6.7, 0.4, 0.15),
    "standardised": (0.0, 0.6, 0.8),
    "between sites only, around zero": (0.0, 1.0, 0.0),
    "money": (1e6, 3e5, 1e5),
    "below zero": (-5.0, 2.0, 1.0),
    "year of birth": (1950.0, 15.0, 0.0),
}


@pytest.mark.parametrize("noise", [0.0, 8.0])
@pytest.mark.parametrize("name", COLUMNS)
def test_centre_and_spread_are_about_right(name, noise):
    middle, between, inside = COLUMNS[name]
    known = np.stack([column(*COLUMNS[name]), column(0.0, 0.6, 0.8, seed=1)], axis=1)
    board = chosen(known, noise)
    total = math.hypot(between, inside)
    assert abs(float(board["centre"][0]) - middle) < 2.5 * max(total, float(board["spread"][0]))
    assert 0.3 < float(board["spread"][0]) / total < 5.0


@pytest.mark.parametrize(("factor", "shift"), [(1, 1e4), (1, -1e4), (7, 0), (0.3, 2e4)])
def test_units_go_along_with_those_that_a_table_came_in(factor, shift):
    """Dollars or cents, years since 1900, or degrees above freezing: with the same noise, units are
    nearly the same in parts of themselves."""
    own = np.stack([column(6.7, 0.4, 0.15), column(40.0, 8.0, 3.0, seed=1)], axis=1)
    moved = own * factor + np.array([shift, 0.0])
    pairs = [(chosen(own, 8.0, seed), chosen(moved, 8.0, seed)) for seed in range(20)]
    wide = torch.stack([other["spread"] / (factor * one["spread"]) for one, other in pairs]).log()
    far = [(other["centre"] - shift) / factor - one["centre"] for one, other in pairs]
    away = torch.stack(far) / torch.stack([one["spread"] for one, _ in pairs])
    assert float(wide.abs().median()) < 0.01 and float(wide.square().mean().sqrt()) < 0.03
    assert float(away.abs().median()) < 0.01 and float(away.square().mean().sqrt()) < 0.03


@pytest.mark.parametrize("power", [-6, -3, 3, 6])
def test_powers_of_ten_change_nothing_but_the_unit(power):
    known = np.stack([column(6.7, 0.4, 0.15)], axis=1)
    one, other = chosen(known), chosen(known * 10.0**power)
    for name in ("centre", "spread"):
        assert float(other[name][0]) == pytest.approx(float(one[name][0]) * 10.0**power, rel=1e-9)


def test_without_values_or_sense_a_task_abstains():
    known = np.full((3, 2, 2), np.nan)
    known[0, 0] = [5.0, 1.0]
    board = units.blank(2, torch.zeros(1))
    votes = [units.votes("units", torch.from_numpy(own), board) for own in known]
    assert float(votes[0].norm()) == pytest.approx(math.sqrt(0.5))
    assert not votes[1].any() and not votes[2].any()


def test_votes_that_drown_in_noise_give_no_unit():
    known = np.stack([column(6.7, 0.4, 0.15, tasks=20)], axis=1)
    unknown = [bool(chosen(known, 30.0, seed)["spread"].isnan()) for seed in range(20)]
    assert sum(unknown) >= 17


def test_a_spread_that_is_tiny_beside_the_numbers_has_no_unit():
    known = np.stack([column(1e4, 1e-6, 1e-6), column(0.0, 0.6, 0.8, seed=1)], axis=1)
    board = chosen(known)
    assert board["spread"][0].isnan() and not board["spread"][1].isnan()


def test_columns_far_from_zero_are_found_as_well_as_others():
    near = chosen(column(0.0, 0.4, 0.3)[:, None])
    far = chosen(column(0.0, 0.4, 0.3)[:, None] + [[[12345.0, 0.0]]])
    assert 0.5 < float(far["spread"]) / float(near["spread"]) < 2.0
    away = float(far["centre"]) - 12345.0 - float(near["centre"])
    assert abs(away) < 0.5 * float(near["spread"])


def test_nothing_is_left_out_with_the_circles_that_nobody_uses():
    known = torch.from_numpy(np.stack([column(1e4, 0.4, 0.15), column(0.0, 0.6, 0.8)], axis=1))
    board = units.blank(2, known) | {
        "reach": torch.tensor([1e5, 3.0]).double(),
        "step": torch.tensor([0.2, math.nan]).double(),
    }
    turns = units._turns(board)
    assert turns[:, 9:].isnan().all() and not turns[0, :9].isnan().any()
    points = turns * known[3, :, :1]
    wanted = torch.stack([points.cos(), points.sin()], dim=2).nan_to_num(0.0).flatten()
    found = units.votes("places", known[3], board)
    assert torch.allclose(found, wanted / math.sqrt(9), atol=1e-12)
    nobody = board | {"step": torch.full((2,), math.nan).double()}
    assert not units.votes("places", known[3], nobody).any()


def test_all_that_a_task_tells_is_one_long_at_most_and_may_be_that_long():
    """A search over tasks of all sizes and boards that tasks were never in; and the worst of them:
    a sphere has no point beyond its edge."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return 10 ** (6 * torch.randn(*shape, generator=generator).double())

    def signed(*shape: int) -> torch.Tensor:
        return draw(*shape) * torch.randn(*shape, generator=generator).sign()

    for columns in (1, 4, 30):
        longest = dict.fromkeys(units.STAGES, 0.0)
        for _ in range(30):
            board = {name: draw(columns) for name in units.NAMES} | {"centre": signed(columns)}
            near = board["centre"] + board["deviation"] * torch.randn(50, columns).double()
            centre = torch.cat([signed(50, columns), near, board["centre"].expand(50, -1)])
            spread = draw(150, columns) * (torch.rand(150, columns, generator=generator) < 0.7)
            unknown = torch.rand(150, columns, generator=generator) < 0.1
            known = torch.stack([centre, spread.masked_fill(unknown, math.nan)], dim=2)
            for stage in units.STAGES:
                told = vmap(lambda own, s=stage, b=board: units.votes(s, own, b))(known)
                assert told.isfinite().all() and told.norm(dim=1).max() <= 1 + 1e-9
                longest[stage] = max(longest[stage], float(told.norm(dim=1).max()))
        assert min(longest["closer"], longest["closest"]) > 0.7
    board = {name: torch.ones(3).double() for name in units.NAMES}
    known = torch.tensor([[5.0, 0.0], [1.0, 3.0], [-1e9, 2.0]]).double()
    for stage in ("closer", "closest"):
        assert float(units.votes(stage, known, board).norm()) == pytest.approx(1.0, abs=1e-12)
    assert float(units.votes("units", known[1:], board).norm()) == pytest.approx(1.0, abs=1e-12)


def test_a_bell_is_found_again_from_its_mean_point():
    generator = torch.Generator().manual_seed(1)
    low, high = torch.tensor([[-1.0, -1.2, 0.1], [1.0, 0.4, 0.9]]).double()
    bells = low + (high - low) * torch.rand(200, 3, generator=generator).double()
    board = {name: torch.ones(200).double() for name in units.NAMES}
    told = units._of_bell(bells)
    found = units.read("closer", told.flatten() / math.sqrt(200), torch.zeros(1).double(), board)
    right = told.norm(dim=1) < units.FARTHEST
    centre, deviation = 1 + units.WIDE * bells[:, 0], units.WIDE * bells[:, 1].exp()
    assert right.sum() > 150
    assert torch.allclose(found["centre"][right], centre[right], atol=0.02)
    assert torch.allclose(found["deviation"][right], deviation[right], rtol=0.03)


def test_a_bad_draw_on_one_circle_does_not_hide_the_shorter_ones():
    turns = 2 * math.pi / torch.tensor([[10.0, 40.0, 200.0, 800.0]]).double()
    angle = turns * 33.0
    points = torch.stack([angle.cos(), angle.sin()], dim=2)
    points[:, 2] *= 0.4
    found = units._read(points, turns, torch.tensor(0.02).double(), units.TOGETHER["places"])
    assert float(found.middle) == pytest.approx(33.0, abs=0.01) and bool(found.sure)
