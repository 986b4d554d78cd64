"""A coordinator that is cut off anywhere goes on, and pays for no more than the round in flight."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

import tacit
from tacit.deploy.conduct import RESULT
from tacit.privacy.channel import Collection
from tests.deploy.asked import agreed, federation_of
from tests.deploy.direct import personal
from tests.deploy.runs import bad, board, booked, run, same, silent
from tests.exchange.federations import headed


@pytest.fixture(scope="module")
def federation():
    return federation_of(4)


class Stop(Exception):
    """The coordinator's machine loses its power."""


def cut_off(kind, round, task):
    """The coordinator stops when it is about to ask this silo, once."""
    left = [True]

    def asked(now, request):
        if left and (request.kind, request.round, now) == (kind, round, task):
            left.clear()
            raise Stop
        return request

    return asked


POINTS = [("train", 0, 0), ("train", 1, 2), ("train", 2, 3), ("finish", 3, 2)]


METHODS = {"fixed": None, "adaptive": tacit.PMTL(clip_quantile=0.5)}


@pytest.fixture(scope="module", params=METHODS)
def calm(request, federation, tmp_path_factory):
    """Terms with a seed, and the billboard of their run without a crash."""
    terms = agreed(federation, METHODS[request.param], seed=3)
    folder = tmp_path_factory.mktemp("calm")
    run(terms, federation, folder)
    return terms, board(folder)


@pytest.mark.parametrize("point", POINTS)
def test_a_seeded_run_that_is_cut_off_ends_as_if_it_were_not(point, calm, federation, tmp_path):
    terms, expected = calm
    with pytest.raises(Stop):
        run(terms, federation, tmp_path, asked=cut_off(*point))
    done, _ = run(terms, federation, tmp_path)
    assert same(board(tmp_path), expected)
    assert booked(tmp_path) == [0, 1, 2] and done.guarantee.releases == 3


def test_an_exchange_that_is_cut_off_ends_as_if_it_were_not(tmp_path):
    federation = headed()
    terms = agreed(federation, tacit.FedFomo(), relaxed=True, seed=3, rounds=2)
    _, calm = run(terms, federation, tmp_path / "calm")
    for point in (("train", 1, 2), ("receive", 1, 3)):
        with pytest.raises(Stop):
            run(terms, federation, tmp_path / point[0], asked=cut_off(*point))
        _, cut = run(terms, federation, tmp_path / point[0])
        for one, two in zip(calm.silos, cut.silos, strict=True):
            assert torch.equal(personal(one), personal(two))


def after_booking(monkeypatch, round):
    """The coordinator stops when a release is booked, and before anybody has seen it."""
    publishable = Collection.publishable

    def stopped(self, size):
        mean = publishable(self, size)
        if self._Collection__round == round:
            raise Stop
        return mean

    monkeypatch.setattr(Collection, "publishable", stopped)


@pytest.mark.parametrize("seed", [3, None])
def test_a_round_that_was_booked_and_lost_is_booked_again_where_its_noise_is_new(
    seed, federation, tmp_path, monkeypatch
):
    terms = agreed(federation, seed=seed)
    with monkeypatch.context() as patch:
        after_booking(patch, 1)
        with pytest.raises(Stop):
            run(terms, federation, tmp_path)
    done, direct = run(terms, federation, tmp_path)
    assert booked(tmp_path) == ([0, 1, 2] if seed else [0, 1, 1, 2])
    assert done.guarantee.releases == len(booked(tmp_path))
    for task in range(4):  # silos gave the same numbers again, and paid for them once
        path = next((tmp_path / f"silo-{task}").glob("runs/*/ledger.jsonl"))
        assert len(path.read_text().splitlines()) == 3
    assert not direct.silos[0].latest().last.round < 3


def late_in(round):
    """The first silo is not heard in this round."""
    return lambda task, asked, reply: None if (task, asked.round) == (0, round) else reply


def test_another_sum_with_the_same_noise_is_booked_again(federation, tmp_path, monkeypatch):
    """A silo that answers only after the crash makes another sum; with a seed, the noise is old."""
    terms = agreed(federation, seed=3)
    with monkeypatch.context() as patch:
        after_booking(patch, 1)
        with pytest.raises(Stop):
            run(terms, federation, tmp_path, answered=late_in(1))
    done, _ = run(terms, federation, tmp_path)
    assert booked(tmp_path) == [0, 1, 1, 2] and done.guarantee.releases == 4


def test_another_sum_with_the_same_noise_never_passes_the_agreed_epsilon(
    federation, tmp_path, monkeypatch
):
    terms = agreed(federation, privacy=tacit.Privacy(epsilon=3.0), seed=3)
    with monkeypatch.context() as patch:
        after_booking(patch, 2)
        with pytest.raises(Stop):
            run(terms, federation, tmp_path, answered=late_in(2))
    done, _ = run(terms, federation, tmp_path)
    assert (
        booked(tmp_path) == [0, 1, 2]
        and "would pass the budget" in done.coordination.rounds.stopped
    )
    assert done.guarantee.epsilon <= 3.0 and len(done.finished) == 4


def test_a_lost_round_never_passes_the_agreed_epsilon(federation, tmp_path, monkeypatch):
    terms = agreed(federation, privacy=tacit.Privacy(epsilon=3.0))
    with monkeypatch.context() as patch:
        after_booking(patch, 1)
        with pytest.raises(Stop):
            run(terms, federation, tmp_path)
    done, _ = run(terms, federation, tmp_path)
    assert (
        booked(tmp_path) == [0, 1, 1]
        and "would pass the budget" in done.coordination.rounds.stopped
    )
    assert done.guarantee.epsilon <= 3.0 and len(done.finished) == 4


def test_an_interrupted_cohort_is_asked_again_and_not_drawn_again(federation, tmp_path):
    terms = agreed(federation, cohort=0.5, rounds=8)
    seen: dict[int, set[int]] = {}
    later: dict[int, set[int]] = {}

    def asked(task, request):
        if request.kind == "train":
            if request.takes_part:
                seen.setdefault(request.round, set()).add(task)
            if request.round >= 1 and not later:
                cohort = json.loads((tmp_path / "coordinator" / "cohort.json").read_text())
                later[request.round] = set(cohort["tasks"])
                raise Stop
        return request

    with pytest.raises(Stop):
        run(terms, federation, tmp_path, asked=asked)
    round, cohort = later.popitem()
    later[round] = cohort
    seen.clear()
    run(terms, federation, tmp_path, asked=asked)
    assert seen.get(round, set()) == cohort
    assert booked(tmp_path) == list(range(8))


def test_an_exclusion_survives_a_restart(federation, tmp_path):
    seeded = agreed(federation, seed=3)
    run(seeded, federation, tmp_path / "silent", answered=bad(silent))
    change = bad(lambda request, reply: dataclasses.replace(reply, tensors={}))
    with pytest.raises(Stop):
        run(seeded, federation, tmp_path, asked=cut_off("train", 2, 2), answered=change)
    _, direct = run(seeded, federation, tmp_path)
    assert len([q for q in direct.requests if q.kind == "train"]) == 3
    result = json.loads((tmp_path / "coordinator" / RESULT).read_text())
    assert "has nothing" in result["excluded"]["task-1"]
    assert same(board(tmp_path), board(tmp_path / "silent"))


def test_a_run_that_is_over_asks_nobody_and_releases_nothing_again(federation, tmp_path):
    terms = agreed(federation, metrics=True)
    first, _ = run(terms, federation, tmp_path)
    before = booked(tmp_path)
    again, direct = run(terms, federation, tmp_path)
    assert not direct.requests
    assert booked(tmp_path) == before
    assert again.scores == first.scores is not None
    assert again.finished == first.finished == terms.silos


def test_a_silo_that_missed_the_end_gets_the_last_billboard_when_it_is_asked_again(
    federation, tmp_path
):
    terms = agreed(federation)
    asleep = {
        "answered": lambda task, asked, reply: reply if asked.kind != "finish" or task else None
    }
    first, _ = run(terms, federation, tmp_path, **asleep)
    assert first.finished == terms.silos[1:]
    again, direct = run(terms, federation, tmp_path)
    assert again.finished == terms.silos
    assert [request.kind for request in direct.requests] == ["finish"]
