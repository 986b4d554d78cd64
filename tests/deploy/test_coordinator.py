"""A coordinator goes on whatever one silo sends, and publishes nothing without noise."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from scipy import stats

import tacit
from tacit.deploy.conduct import RESULT, STATUS, conduct
from tacit.deploy.messages import Broken, Reply
from tacit.errors import TacitError
from tacit.privacy import Release
from tacit.privacy.accounting import spent
from tacit.randomness import Randomness
from tests.conftest import arrays
from tests.deploy.asked import agreed, federation_of
from tests.deploy.direct import Direct, personal, silos_of
from tests.deploy.runs import BAD, bad, board, booked, log, run, same, silent
from tests.exchange.federations import headed


@pytest.fixture(scope="module")
def federation():
    return federation_of(4)


def sent(change):
    """Changes the numbers of a reply."""
    return lambda request, reply: dataclasses.replace(
        reply, tensors={"sent": change(reply.tensors["sent"])}
    )


def one(value):
    """Changes one number."""

    def change(vector):
        vector = vector.clone()
        vector[2] = value
        return vector

    return change


REPLIES = {
    "not a number": (sent(one(torch.nan)), "not finite"),
    "infinite": (sent(one(torch.inf)), "not finite"),
    "one number more": (sent(lambda v: torch.cat([v, v[:1]])), "[6] of torch.float32"),
    "another shape": (sent(lambda v: v.unsqueeze(0)), "[1, 5] of torch.float32"),
    "no numbers": (sent(lambda v: v[:0]), "[0] of torch.float32"),
    "double precision": (sent(torch.Tensor.double), "torch.float64"),
    "whole numbers": (sent(torch.Tensor.int), "torch.int32"),
    "a million times too long": (sent(lambda v: 1e6 * v / v.norm()), "longer than the clip"),
    "a little too long": (sent(lambda v: 1.0001 * v / v.norm()), "longer than the clip"),
    "more tensors": (
        lambda q, r: dataclasses.replace(r, tensors={**r.tensors, "more": torch.zeros(9)}),
        "has more, sent",
    ),
    "another name": (
        lambda q, r: dataclasses.replace(r, tensors={"more": r.tensors["sent"]}), "has more",
    ),
    "nothing": (lambda q, r: dataclasses.replace(r, tensors={}), "has nothing"),
    "another nonce": (lambda q, r: dataclasses.replace(r, nonce="0" * 32), "another request"),
    "no nonce": (lambda q, r: dataclasses.replace(r, nonce=""), "another request"),
    "garbage": (lambda q, r: Broken(nonce="", state="failed", reason="cannot be read"), "read"),
}  # fmt: skip


@pytest.fixture(scope="module")
def seeded(federation):
    return agreed(federation, seed=3, rounds=2)


@pytest.fixture(scope="module")
def without(seeded, federation, tmp_path_factory):
    """The run in which the silo never answers: its billboard, and the others' models."""
    folder = tmp_path_factory.mktemp("without")
    _, direct = run(seeded, federation, folder, answered=bad(silent))
    return board(folder), [personal(silo) for k, silo in enumerate(direct.silos) if k != BAD]


@pytest.mark.parametrize("what", REPLIES)
def test_a_reply_that_breaks_the_rules_counts_as_zero(what, seeded, federation, without, tmp_path):
    change, words = REPLIES[what]
    done, direct = run(seeded, federation, tmp_path, answered=bad(change))
    assert same(board(tmp_path), without[0])
    others = [personal(silo) for k, silo in enumerate(direct.silos) if k != BAD]
    assert all(torch.equal(one, two) for one, two in zip(others, without[1], strict=True))
    assert "task-1 is excluded: its message" in log(tmp_path)
    status = json.loads((tmp_path / "coordinator" / STATUS).read_text())
    result = json.loads((tmp_path / "coordinator" / RESULT).read_text())
    assert words in status["silos"]["task-1"]["excluded"] and status["over"]
    assert words in result["excluded"]["task-1"]
    assert set(result["excluded"]) == {"task-1"} and "task-1" not in done.finished
    asked = [request for request in direct.requests if request.kind == "train"]
    assert len(asked) == 2 * 4 - 1  # in later rounds it is not asked


@pytest.mark.parametrize("since", [0, 1])
def test_where_no_silo_answers_nothing_is_released(since, seeded, federation, tmp_path):
    """It would be nothing but noise, and paid for; a run that is begun again loses nothing."""

    def nobody(task, request, reply):
        return None if request.round >= since else reply

    with pytest.raises(TacitError, match=f"no silo answered in round {since + 1}"):
        run(seeded, federation, tmp_path / "broken", answered=nobody)
    ledger = tmp_path / "broken" / "coordinator" / "ledger.jsonl"
    assert (booked(tmp_path / "broken") if ledger.exists() else []) == [*range(since)]
    run(seeded, federation, tmp_path / "broken")
    run(seeded, federation, tmp_path / "whole")
    assert same(board(tmp_path / "broken"), board(tmp_path / "whole"))
    assert booked(tmp_path / "broken") == booked(tmp_path / "whole")


def test_an_earlier_reply_cannot_be_sent_again(seeded, federation, tmp_path):
    kept = {}

    def replayed(request, reply):
        return kept.setdefault("first", reply)

    run(seeded, federation, tmp_path / "replayed", answered=bad(replayed))
    run(seeded, federation, tmp_path / "silent", answered=bad(silent, since=1))
    assert "task-1 is excluded: its message answers another request" in log(tmp_path / "replayed")
    assert same(board(tmp_path / "replayed"), board(tmp_path / "silent"))


def test_a_silo_that_refuses_or_fails_is_not_excluded(seeded, federation, without, tmp_path):
    def refuses(request, reply):
        return Reply(nonce=request.nonce, state="refused", reason="not today\n2026  I am the log")

    done, _ = run(seeded, federation, tmp_path, answered=bad(refuses))
    assert same(board(tmp_path), without[0]) and not done.coordination.asking.excluded
    assert "task-1 refused (train, round 1): “not today 2026  I am the log”" in log(tmp_path)
    assert not any(line.startswith("2026  I am") for line in log(tmp_path).splitlines())


def test_a_silo_that_does_not_answer_is_missed_in_the_sum_and_not_in_its_divisor(
    federation, tmp_path
):
    terms = agreed(federation, seed=3, rounds=1)
    vectors = []

    def answered(task, request, reply):
        if request.kind == "train" and task != BAD:
            vectors.append(reply.tensors["sent"].double())
        return None if task == BAD else reply

    done, _ = run(terms, federation, tmp_path, answered=answered)
    noise = torch.from_numpy(Randomness(3, 3).normal("noise", 0, 5)) * 2.0
    start = done.coordination.course.method.board(done.coordination.course.model)
    mean = 0.5 * (torch.stack(vectors).sum(0) + noise) / 4  # four silos, of which three answered
    found = done.coordination.rounds.board.tensors
    expected = done.coordination.course.method.publish(tacit.methods.Board(start), mean.float())
    assert len(vectors) == 3 and torch.allclose(found["model"], expected["model"], atol=1e-6)
    assert "task-1 did not answer in time (train, round 1)" in log(tmp_path)


def test_silos_that_the_transport_blames_are_excluded(seeded, federation, without, tmp_path):
    direct = Direct(silos_of(federation, seeded, tmp_path))
    blamed = {"task-1": "speaks for another silo"}
    conduct(seeded, tmp_path / "coordinator", direct, blamed=blamed)
    assert same(board(tmp_path), without[0])
    assert "task-1 is excluded: its message speaks for another silo" in log(tmp_path)


def test_without_privacy_a_contribution_beyond_all_numbers_is_excluded(federation, tmp_path):
    terms = agreed(federation, seed=3, relaxed=True)
    change = sent(lambda v: torch.full_like(v, 3e38))
    run(terms, federation, tmp_path / "large", answered=bad(change))
    run(terms, federation, tmp_path / "silent", answered=bad(silent))
    assert same(board(tmp_path / "large"), board(tmp_path / "silent"))
    assert "too long for any sum" in log(tmp_path / "large")


@pytest.mark.parametrize(
    "change",
    [
        lambda q, r: dataclasses.replace(r, size=0),
        lambda q, r: dataclasses.replace(r, size=-5),
        lambda q, r: sent(one(torch.nan))(q, r) if q.kind == "train" else r,
        lambda q, r: sent(lambda v: torch.full_like(v, 1e30))(q, r) if q.kind == "train" else r,
    ],
)
def test_on_the_exchange_what_cannot_be_mixed_is_left_out(change, tmp_path):
    federation = headed()
    terms = agreed(federation, tacit.FedAMP(), relaxed=True, seed=3, rounds=2)
    models = []
    for name, meddled in (("bad", change), ("silent", silent)):
        _, direct = run(terms, federation, tmp_path / name, answered=bad(meddled))
        models.append([personal(silo) for k, silo in enumerate(direct.silos) if k != BAD])
    assert all(torch.equal(one, two) for one, two in zip(*models, strict=True))
    assert "task-1 is excluded" in log(tmp_path / "bad")


def test_another_run_does_not_fit_into_the_folder(seeded, federation, tmp_path):
    run(seeded, federation, tmp_path)
    with pytest.raises(tacit.TacitError, match="holds a run under other terms"):
        run(dataclasses.replace(seeded, rounds=5), federation, tmp_path)


def test_scores_are_never_asked_for_unless_agreed(seeded, federation, tmp_path):
    done, direct = run(seeded, federation, tmp_path)
    assert {request.kind for request in direct.requests} == {"train", "finish"}
    assert done.scores is None and booked(tmp_path) == [0, 1]


def test_scores_are_one_more_release_on_every_account(federation, tmp_path):
    terms = agreed(federation, metrics=True, privacy=tacit.Privacy(epsilon=8.0), seed=3)
    scores = []

    def answered(task, request, reply):
        if request.kind == "measure":
            scores.append(reply.tensors["sent"].double())
        return reply

    done, _ = run(terms, federation, tmp_path, answered=answered)
    assert booked(tmp_path) == [0, 1, 2, 3] and done.guarantee.releases == 4
    noise = done.coordination.asking.noise
    delta = done.guarantee.delta
    all_four = spent({Release(terms.sampler(), noise): 4}, delta, "add-remove").epsilon
    three = spent({Release(terms.sampler(), noise): 3}, delta, "add-remove").epsilon
    assert three < all_four <= 8.0 and done.guarantee.epsilon == pytest.approx(all_four)
    for task in range(4):
        path = next((tmp_path / f"silo-{task}").glob("runs/*/ledger.jsonl"))
        assert len(path.read_text().splitlines()) == 4
    drawn = torch.from_numpy(Randomness(3, 3).normal("noise", 3, 2)) * noise
    # Errors of regression and losses are counted up to 4.
    expected = (torch.stack(scores).sum(0) + drawn) / 4 * 2**0.5 * 4
    assert done.scores is not None
    found = list(done.scores.values())
    assert torch.allclose(torch.tensor(found[:2]).double(), expected, atol=1e-5)
    assert found[2:] == pytest.approx([noise / 4 * 2**0.5 * 4] * 2)
    assert list(done.scores) == ["nmse_pooled", "loss", "nmse_pooled noise", "loss noise"]


@pytest.mark.parametrize("seed", [3, None])
def test_what_is_published_has_the_promised_noise(seed, tmp_path):
    """Four hundred numbers and one round; without a seed, one run in 10⁹ would fail here."""
    x, y, names = arrays(3, 400, "regression", rows=(12, 20))
    options = {"scale": "none", "target_scale": "none", "kind": "regression"}
    federation = tacit.data.from_arrays(x, y, names, **options)
    terms = agreed(federation, seed=seed, rounds=1)
    exact = []

    def answered(task, request, reply):
        if request.kind == "train":
            exact.append(0.5 * reply.tensors["sent"].double() / 3)
        return reply

    done, _ = run(terms, federation, tmp_path, answered=answered)
    start = done.coordination.course.method.board(done.coordination.course.model)["model"]
    moved = board(tmp_path)["model"].double() - start.double()
    noise = (moved - torch.stack(exact).sum(0)) / (2.0 * 0.5 / 3)
    assert len(noise) == 401 and noise.unique().numel() == 401
    few = 1e-6 if seed else 1e-9
    tail = stats.chi2(401).cdf(float((noise**2).sum()))
    assert few < tail < 1 - few
    assert abs(float(noise.mean())) < stats.norm.isf(few / 2) / 401**0.5
    assert stats.kstest(noise.numpy(), "norm").pvalue > few
