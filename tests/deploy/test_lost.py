"""A disk that loses or changes something stops a run with a sentence; ε never shrinks."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import safetensors.torch
from safetensors import safe_open

import tacit
from tacit import PMTL, Privacy, TacitError
from tacit.deploy.conduct import conduct
from tacit.deploy.work import Work
from tacit.experiment.train import train
from tests.deploy.asked import Asked, agreed, federation_of, run_name, vector
from tests.deploy.direct import Direct, silos_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A private run of six rounds, and how to go on with a copy of it."""
    generator = np.random.default_rng(0)
    names = np.repeat([f"task-{k}" for k in range(8)], 10)
    x = generator.normal(size=(80, 3)).astype(np.float32)
    federation = tacit.data.from_arrays(x, x.sum(axis=1), names, scale="none", target_scale="none")
    folder = tmp_path_factory.mktemp("runs") / "whole"

    def go(out, **changes):
        settings = {"rounds": 6, "cohort": 0.5, "baselines": False, "personalise": "none"}
        privacy = Privacy(noise=4.0)
        return train(federation, PMTL(batch=4), privacy=privacy, out=out, **settings, **changes)

    return go, folder, go(folder).guarantee


@pytest.fixture
def copied(finished, tmp_path):
    go, whole, promise = finished
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    return lambda: go(folder, resume=True), folder, promise


def test_a_whole_run_can_be_gone_on_with(copied):
    again, _, promise = copied
    assert str(again().guarantee) == str(promise) and promise.releases == 6


def cut(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def empty(path):
    path.write_text("")


def lose(path):
    path.unlink()


def shorten(path):
    """The last line loses its end, as if its write had been torn: but it was released."""
    path.write_text(path.read_text()[:-20])


@pytest.mark.parametrize("fault", [cut, flip, empty, lose, shorten])
def test_a_run_whose_ledger_lost_something_does_not_go_on(copied, fault):
    again, folder, _ = copied
    fault(folder / "ledger.jsonl")
    with pytest.raises(TacitError, match=r"ledger\.jsonl.*put the whole ledger back"):
        again()
    assert json.loads((folder / "result.json").read_text())["guarantee"]["releases"] == 6


def test_a_ledger_that_lost_its_last_newline_is_whole(copied):
    again, folder, promise = copied
    path = folder / "ledger.jsonl"
    path.write_text(path.read_text().rstrip("\n"))
    assert str(again().guarantee) == str(promise)


@pytest.mark.parametrize("fault", [cut, flip, empty, lose])
@pytest.mark.parametrize("name", ["settings.json", "journal.safetensors", "states.bin"])
def test_a_damaged_checkpoint_is_a_sentence_or_costs_more(copied, name, fault):
    """Whatever is done to it: a sentence, or a guarantee with at least as many releases."""
    again, folder, promise = copied
    path = folder / "checkpoint" / name
    if fault is cut:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        fault(path)
    try:
        run = again()
    except TacitError as error:
        said = (path.name, "holds no run to resume", "was started with other")
        assert any(words in str(error) for words in said)
    else:
        assert run.guarantee.releases >= promise.releases
        assert run.guarantee.epsilon >= promise.epsilon * (1 - 1e-3)  # another grid, here


def test_a_folder_that_lost_its_settings_is_not_taken_for_a_new_one(finished, tmp_path):
    go, whole, _ = finished
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "checkpoint" / "settings.json").unlink()
    with pytest.raises(TacitError, match=r"settings\.json is gone, but .* holds a run"):
        go(folder)


def test_a_checkpoint_without_a_mark_is_of_an_older_version(copied):
    again, folder, _ = copied
    path = folder / "checkpoint" / "journal.safetensors"
    with safe_open(path, framework="pt") as file:
        notes = json.loads(file.metadata()["notes"])
    notes.pop("ledger")
    tensors = safetensors.torch.load_file(path)
    path.write_bytes(safetensors.torch.save(tensors, {"notes": json.dumps(notes)}))
    with pytest.raises(TacitError, match="does not say how long its ledger was"):
        again()


def test_a_silo_whose_finished_run_lost_its_ledger_gives_no_second_one(tmp_path):
    """It would have spent its budget twice."""
    federation = federation_of()
    asked = Asked(agreed(federation), federation, tmp_path, budget=2.5, runs=2)
    for round in range(3):
        vector(asked.ask(round=round))
    assert asked.ask(kind="finish", round=3).state == "done"
    (asked.folder / "runs" / asked.run / "ledger.jsonl").unlink()
    asked.reopened()
    for round in range(3):
        reply = asked.ask(round=round, run=run_name(2))
        assert reply.state == "failed" and not reply.tensors
    assert "holds 0 releases, but 3 were made" in asked.log
    with pytest.raises(TacitError, match="holds 0 releases, but 3 were made"):
        asked.silo.latest()


def test_a_silo_that_loses_its_ledger_while_it_works_stops(tmp_path):
    federation = federation_of()
    asked = Asked(agreed(federation), federation, tmp_path)
    vector(asked.ask(round=0))
    (asked.folder / "runs" / asked.run / "ledger.jsonl").unlink()
    assert asked.ask(round=1).state == "failed"
    assert asked.reopened().ask(round=1).state == "failed"


@pytest.mark.parametrize("name", ["run.json", "checkpoint/journal.safetensors", "ledger.jsonl"])
@pytest.mark.parametrize("fault", [flip, empty])
def test_a_silo_answers_whatever_its_disk_did(tmp_path, name, fault):
    federation = federation_of()
    asked = Asked(agreed(federation), federation, tmp_path)
    vector(asked.ask(round=0))
    fault(asked.folder / "runs" / asked.run / name)
    reply = asked.reopened().ask(round=1)
    assert reply.state in ("failed", "refused") or asked.booked() == [0, 1]


def test_a_silo_answers_when_its_disk_is_full(tmp_path):
    """`answer` never raises: not even from the log in which it would say why."""
    federation = federation_of()
    asked = Asked(agreed(federation), federation, tmp_path)
    vector(asked.ask(round=0))
    (asked.folder / "log.txt").unlink()
    (asked.folder / "log.txt").mkdir()  # nothing can be written there
    assert asked.ask(round=0, noise=1e-9).state == "refused"
    reply = asked.ask(round=1)
    assert reply.state == "failed" and not reply.tensors


@pytest.mark.parametrize("name", ["run.json", "cohort.json", "checkpoint/journal.safetensors"])
@pytest.mark.parametrize("fault", [flip, empty])
def test_a_coordinator_with_a_damaged_file_says_which(tmp_path, name, fault):
    federation = federation_of()
    terms = agreed(federation)

    class Stop(Exception):
        pass

    def stop(task, request):
        if request.round == 2:
            raise Stop
        return request

    with pytest.raises(Stop):
        conduct(
            terms, tmp_path / "coordinator",
            Direct(silos_of(federation, terms, tmp_path), asked=stop),
        )  # fmt: skip
    path = tmp_path / "coordinator" / name
    fault(path)
    try:
        done = conduct(
            terms, tmp_path / "coordinator", Direct(silos_of(federation, terms, tmp_path))
        )
    except TacitError as error:
        # A key with another digit is a key: silos see that it is not the one of this run.
        refused = fault is flip and name == "run.json" and "no silo answered" in str(error)
        assert path.name in str(error) or refused
    else:
        assert fault is flip and done.guarantee.releases >= 3


def test_a_coordinator_whose_ledger_is_gone_does_not_go_on(tmp_path):
    federation = federation_of()
    terms, place = agreed(federation), tmp_path / "coordinator"
    conduct(terms, place, Direct(silos_of(federation, terms, tmp_path)))
    (place / "ledger.jsonl").unlink()
    with pytest.raises(TacitError, match="holds 0 releases, but 3 were made"):
        conduct(terms, place, Direct(silos_of(federation, terms, tmp_path)))


@pytest.mark.parametrize("name", ["run.json", "checkpoint/journal.safetensors"])
def test_a_coordinator_that_lost_where_it_was_does_not_begin_again(tmp_path, name):
    """With a seed, other sums would go out under the entries of the first ones."""
    federation = federation_of()
    terms, place = agreed(federation, seed=3), tmp_path / "coordinator"
    conduct(terms, place, Direct(silos_of(federation, terms, tmp_path)))
    (place / name).unlink()
    with pytest.raises(TacitError, match=r"is gone, .*put the whole folder of the run back"):
        conduct(terms, place, Direct(silos_of(federation, terms, tmp_path)))


def test_a_silo_that_lost_how_a_run_began_does_not_hear_it_anew(tmp_path):
    federation = federation_of()
    asked = Asked(agreed(federation), federation, tmp_path)
    vector(asked.ask(round=0))
    (asked.folder / "runs" / asked.run / "run.json").unlink()
    assert asked.reopened().ask(round=1).state == "failed"
    assert asked.booked() == [0]


def test_a_silo_that_lost_all_but_its_ledger_answers_nothing(tmp_path):
    """It would begin the run anew, and give another vector for a round that it has paid for."""
    federation = federation_of()
    asked = Asked(agreed(federation, tacit.PMTL(clip=0.5)), federation, tmp_path)
    vector(asked.ask(round=0))
    place = asked.folder / "runs" / asked.run
    for path in place.iterdir():
        if path.name != "ledger.jsonl":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    reply = asked.reopened().ask(round=0, tensors=asked.board(7))
    assert reply.state == "failed" and not reply.tensors
    assert "has releases on its account" in asked.log and asked.booked() == [0]


@pytest.mark.parametrize("killed", [False, True])
def test_a_silo_that_lost_its_steps_and_their_number_gives_no_second_vector(
    tmp_path, monkeypatch, killed
):
    """`run.json` and the ledger are still there, and say nothing of what left."""
    federation = federation_of()
    asked = Asked(agreed(federation, tacit.PMTL(clip=0.5)), federation, tmp_path)
    if killed:  # after the first booking: nothing left, and nothing is lost
        with monkeypatch.context() as patch:
            patch.setattr(Work, "_public", lambda *_: 1 / 0)
            assert asked.ask(round=0).state == "failed"
        assert asked.booked() == [0]
        asked.reopened()
    vector(asked.ask(round=0))
    place = asked.folder / "runs" / asked.run
    shutil.rmtree(place / "checkpoint")
    (place / "answered.txt").unlink()
    for board in (0, 7):
        reply = asked.reopened().ask(round=0, tensors=asked.board(board))
        assert reply.state == "failed" and not reply.tensors
    assert "answered.txt is gone, but" in asked.log and asked.booked() == [0]


def test_steps_of_an_older_copy_beside_a_newer_ledger_answer_no_round_before_the_last(tmp_path):
    """Number and steps agree, so only the account knows that later rounds were answered."""
    federation = federation_of()
    asked = Asked(agreed(federation, tacit.PMTL(clip=0.5)), federation, tmp_path)
    vector(asked.ask(round=0))
    place = asked.folder / "runs" / asked.run
    shutil.copytree(place / "checkpoint", tmp_path / "copy")
    number = (place / "answered.txt").read_bytes()
    for round in (1, 2):
        vector(asked.ask(round=round))
    shutil.rmtree(place / "checkpoint")
    shutil.copytree(tmp_path / "copy", place / "checkpoint")
    (place / "answered.txt").write_bytes(number)
    asked.reopened().sees_refused(
        "later ones are on this silo's account", round=1, tensors=asked.board(7)
    )


def older(path):
    """Put the last step but one back, as from a copy of a single file."""
    path.write_bytes(path.with_suffix(".copy").read_bytes())


@pytest.mark.parametrize("fault", [lose, older])
@pytest.mark.parametrize("asked_for", [1, 2])
def test_a_silo_that_lost_its_answer_gives_no_other_one(tmp_path, fault, asked_for):
    """The round is booked once, so two different vectors of it would be one too many."""
    federation = federation_of()
    asked = Asked(agreed(federation, tacit.PMTL(clip=0.5)), federation, tmp_path)
    journal = asked.folder / "runs" / asked.run / "checkpoint" / "journal.safetensors"
    vector(asked.ask(round=0))
    shutil.copy(journal, journal.with_suffix(".copy"))
    vector(asked.ask(round=1))
    fault(journal)
    for _ in range(2):
        reply = asked.reopened().ask(round=asked_for, tensors=asked.board(7))
        assert reply.state == "failed" and not reply.tensors
    assert "put the whole folder of the run back" in asked.log
    assert asked.booked() == [0, 1]


def test_a_silo_that_lost_its_last_step_tells_no_other_scores(tmp_path):
    federation = federation_of()
    asked = Asked(agreed(federation, metrics=True), federation, tmp_path)
    journal = asked.folder / "runs" / asked.run / "checkpoint" / "journal.safetensors"
    vector(asked.ask(round=0))
    shutil.copy(journal, journal.with_suffix(".copy"))
    assert asked.ask(kind="finish", round=3).state == "done"
    vector(asked.ask(kind="measure", round=3))
    older(journal)
    asked.reopened()
    assert asked.ask(kind="finish", round=3, tensors=asked.board(7)).state == "failed"
    assert asked.ask(kind="measure", round=3).state == "failed"


def test_an_answer_that_was_saved_and_not_sent_is_sent(tmp_path, monkeypatch):
    """A silo that is killed before it knows that it answers still answers, and then knows."""
    federation = federation_of()
    asked = Asked(agreed(federation), federation, tmp_path)

    class Killed(BaseException):
        pass

    def killed(*given):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Work, "remember_answer", killed)
        asked.ask()
    first = vector(asked.reopened().ask())
    (asked.folder / "runs" / asked.run / "checkpoint" / "journal.safetensors").unlink()
    assert asked.reopened().ask().state == "failed" and len(first)
