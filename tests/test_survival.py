"""Scores of outcomes over time: against plain loops over rows and pairs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import metrics, survival
from tacit.data.survival import cells

CUTS = (2.0, 3.0, 5.0, 9.0)


def drawn(seed: int, rows: int, ties: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Whole times tie with each other and lie on the ends of intervals."""
    rng = np.random.default_rng(seed)
    time = rng.exponential(4.0, rows)
    return np.ceil(time) if ties else time, rng.random(rows) < 0.6


def plain_concordance(risk, time, event) -> tuple[float, int]:
    right, pairs = 0.0, 0
    for i in range(len(risk)):
        for j in range(len(risk)):
            outlived = time[j] > time[i] or (time[j] == time[i] and not event[j])
            if i == j or not event[i] or not outlived:
                continue
            pairs += 1
            right += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    return right, pairs


def plain_brier(survives, time, event, ends) -> float:
    """Graf and others' formula, word by word; time is in any unit that the ends have."""

    def not_lost_before(when: float) -> float:
        kept = 1.0
        for lost in sorted({t for t, e in zip(time, event, strict=True) if not e and t < when}):
            there = sum(
                t >= lost and not (e and t == lost) for t, e in zip(time, event, strict=True)
            )
            gone = sum(t == lost and not e for t, e in zip(time, event, strict=True))
            kept *= 1 - gone / there
        return kept

    found = [0.0]
    for k, end in enumerate(ends):
        total, outlived = 0.0, 0
        for said, t, e in zip(survives[:, k], time, event, strict=True):
            if e and t <= end:
                total += said**2 / not_lost_before(t)
            elif t >= end:
                outlived += 1
                total += (1 - said) ** 2 / not_lost_before(end)
        if not outlived:
            break
        found.append(total / len(time))
    if len(found) == 1:
        return math.nan
    return sum((a + b) / 2 for a, b in itertools.pairwise(found)) / (len(found) - 1)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 25), ties=st.booleans())
def test_scores_are_those_of_plain_loops(seed, rows, ties):
    time, event = drawn(seed, rows, ties)
    y = cells(time, event, CUTS)
    out = np.random.default_rng(seed + 1).normal(-1, 1, size=(rows, len(CUTS))).round(1)
    out[: rows // 3] = out[0]  # equal risks
    per_task, overall, _ = survival.scores(out, y, np.array([0, rows]), np.zeros(rows, bool))
    # What comes after the last end is not looked at.
    event, time = event & (time <= CUTS[-1]), np.minimum(time, CUTS[-1])
    hazard = np.exp(out)
    right, pairs = plain_concordance(hazard.sum(axis=1), time, event)
    wanted = right / pairs if pairs else math.nan
    assert per_task["concordance"][0] == pytest.approx(wanted, nan_ok=True)
    assert overall["concordance"] == pytest.approx(wanted, nan_ok=True)
    brier = plain_brier(np.exp(-hazard.cumsum(axis=1)), time, event, CUTS)
    assert per_task["brier"][0] == pytest.approx(brier, nan_ok=True)


def test_many_pairs_are_counted_in_parts(monkeypatch):
    time, event = drawn(0, 200)
    risk, seen = np.random.default_rng(1).normal(size=200), survival.Ends(time, event)
    found = survival.concordant(risk, seen)
    monkeypatch.setattr(survival, "PAIRS_AT_ONCE", 300)
    assert survival.concordant(risk, seen) == found == plain_concordance(risk, time, event)


def test_log_loss_is_that_of_the_interval():
    """By the exponential distribution, for a row of each sort."""
    out = np.log(np.array([[0.1, 0.4, 0.2, 0.3]]))
    rows = [(2.5, True), (2.5, False), (20.0, True), (3.0, True)]
    wanted = [
        0.1 - math.log(1 - math.exp(-0.4)),
        0.1 + 0.5 * 0.4,
        1.0,
        0.1 - math.log(1 - math.exp(-0.4)),
    ]
    for (time, event), loss in zip(rows, wanted, strict=True):
        y = cells(np.array([time]), np.array([event]), CUTS)
        assert survival.row_losses(out, y)[0] == pytest.approx(loss)
    y = cells(np.array([1.0]), np.array([True]), CUTS)
    assert survival.row_losses(np.full((1, 4), -900.0), y)[0] == pytest.approx(900.0)


def test_curves_are_kaplan_and_meiers():
    """Freireich's children with leukaemia, treated: survival and its error as textbooks have it."""
    ended = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    lost = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    time = np.array([*ended, *lost], dtype=float)
    event = np.arange(len(time)) < len(ended)
    found = survival.curve(survival.Ends(time, event), np.full((21, 4), 0.5))
    assert found.time.tolist() == [6, 7, 10, 13, 16, 22, 23]
    wanted = [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    np.testing.assert_allclose(found.survival, wanted, atol=5e-4)
    errors = np.array([0.076, 0.087, 0.096, 0.107, 0.114, 0.128, 0.135])
    reach = 1.959964 * errors / (found.survival * np.log(found.survival))
    np.testing.assert_allclose(found.low, found.survival ** np.exp(-reach), atol=3e-3)
    np.testing.assert_allclose(found.high, found.survival ** np.exp(reach), atol=3e-3)
    assert (found.low < found.survival).all() and (found.survival < found.high).all()
    plain = found.to_json([10.0, 20.0, 30.0, 40.0])
    assert plain["last"] == 40.0 and plain["predicted"] == [0.5] * 4


def test_evaluate_scores_inside_tasks_and_not_across_them():
    """A task whose rows all have higher risks must not win pairs against another."""
    time, event = np.array([1.0, 4.0, 1.0, 4.0]), np.ones(4, dtype=bool)
    y = cells(time, event, CUTS)
    out = np.repeat(np.array([[5.0], [4.0], [1.0], [2.0]]), 4, axis=1)
    found = metrics.evaluate("survival", out, y, np.array([0, 2, 4]))
    assert found.per_task["concordance"].tolist() == [1.0, 0.0]
    assert found.overall["concordance"] == found.overall["concordance_per_task"] == 0.5
    assert metrics.main_score("survival") == metrics.task_score("survival") == ("concordance", True)
    out[0, 0] = np.nan
    broken = metrics.evaluate("survival", out, y, np.array([0, 2, 4]))
    assert np.isnan(broken.per_task["concordance"][0]) and math.isinf(broken.per_task["loss"][0])
    assert broken.overall["concordance"] is None
