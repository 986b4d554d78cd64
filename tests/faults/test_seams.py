"""Each thing that is kept, with a fault at each of its steps, and then a loss of power."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest
import torch

from tacit import TacitError, files
from tacit.engine.store import Store
from tacit.experiment.models import _write_stacked
from tacit.methods import Board
from tacit.privacy import Ledger, Poisson, Release
from tacit.secure.net.memory import Begun, keep_secret
from tests.faults.disk import Disk, Killed
from tests.faults.schedule import REFUSALS, STOPS, Fault, Schedule

ONE = Release(Poisson(0.5), 4.0)


class Machine:
    """A disk on which one fault happens, in which a sentence or the end of the process follows."""

    def __init__(self, folder, kind: str, at: int) -> None:
        self.place = folder / "party"
        self.place.mkdir(parents=True)
        self.schedule = Schedule("one", (Fault("party", "disk", at, kind),))
        self.disk = Disk(folder, self.schedule)
        self.disk.keep(self.place.resolve())

    def tries(self, act: Callable[[], object]) -> bool:
        """Whether it was done."""
        try:
            with self.disk.watched():
                act()
        except Killed:
            self.disk.revive("party")
        except TacitError:
            pass
        else:
            return True
        return False

    def loses_power(self) -> None:
        with contextlib.suppress(Killed):
            self.disk.die("party", "power")
        self.disk.revive("party")


@pytest.fixture
def machines(tmp_path):
    """One for each kind of fault and each step, until there are no more steps."""

    def made(kinds=STOPS + REFUSALS):
        for kind in kinds:
            for at in itertools.count():
                machine = Machine(tmp_path / f"{kind}-{at}", kind, at)
                yield machine
                if not machine.schedule.happened:
                    assert at > 2
                    break

    return made


def test_a_release_that_was_booked_stays_booked(machines):
    for machine in machines():
        path, booked = machine.place / "ledger.jsonl", 0
        for round in range(2):
            booked += machine.tries(
                lambda path=path, round=round: Ledger.at(path).book(round, ONE, repeatable=False)
            )
        machine.loses_power()
        assert booked <= len(Ledger.at(path)) <= booked + 1, machine.schedule.faults


def test_a_release_that_is_made_again_is_on_disk_although_its_writer_died(machines):
    for machine in machines(("kill", "after")):
        path, booked = machine.place / "ledger.jsonl", set()
        for round in (0, 0, 1, 1):
            if machine.tries(
                lambda path=path, round=round: Ledger.at(path).book(round, ONE, repeatable=True)
            ):
                booked.add(round)
        machine.loses_power()
        assert booked == {0, 1} and len(Ledger.at(path)) == 2, machine.schedule.faults


def test_a_file_stays_in_the_folder_that_was_made_for_it(machines):
    for machine in machines():
        path = machine.place / "above" / "folder" / "file"

        def keep(path=path):
            files.make_folder(path.parent)
            files.replace(path, b"content")

        machine.tries(keep)
        if machine.tries(keep):
            machine.loses_power()
            assert path.read_bytes() == b"content", machine.schedule.faults


def test_a_secret_that_was_used_stays_the_same(machines):
    """Also after a crash of a process with the same number: in a container all have."""
    for machine in machines():
        used = []
        for _ in range(3):
            machine.tries(
                lambda used=used, place=machine.place: used.append(keep_secret(place, "s"))
            )
        machine.loses_power()
        assert len(used) > 1 and {*used, keep_secret(machine.place, "s")} == {used[0]}


def test_a_job_is_counted_once_however_often_it_was_cut_short(machines):
    for machine in machines():
        kept, place = [], machine.place

        def begin(digest, kept=kept, place=place):
            if not kept:
                kept.append(Begun(place, "s"))
            if digest not in kept[0]:
                kept[0].add(digest)

        for digest in ("a" * 64, "b" * 64):
            while not machine.tries(lambda digest=digest, begin=begin: begin(digest)):
                if machine.schedule.had(STOPS):
                    kept.clear()
        machine.loses_power()
        found = Begun(place, "s")
        assert len(found) == 2 and "a" * 64 in found and "b" * 64 in found


def test_a_lock_on_a_full_disk_is_a_sentence_or_nothing(machines):
    for machine in machines(REFUSALS):

        def take(place=machine.place):
            with files.hold(place):
                pass

        machine.tries(take)
        assert machine.tries(take) or machine.tries(take)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_states_on_a_full_disk_are_a_sentence(machines, place):
    for machine in machines(REFUSALS):

        def save(folder=machine.place):
            store = Store(2, {"w": torch.zeros(3)}, place=place, folder=folder)
            store.put(torch.tensor([1]), {"w": torch.ones(1, 3)})
            store.settle(Board({"mean": torch.zeros(3)}, 1), {}, save=True)

        machine.tries(save)
        assert machine.tries(save) or machine.tries(save)


def test_models_on_a_full_disk_are_a_sentence(machines):
    for machine in machines(REFUSALS):

        def save(path=machine.place / "models"):
            _write_stacked(path, 2, iter([{"w": torch.ones(1, 3)}, {"w": torch.ones(1, 3)}]))

        machine.tries(save)
        assert machine.tries(save) or machine.tries(save)
