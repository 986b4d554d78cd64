"""`engine="flower"` makes the run of `engine="simulate"`, with Ray's workers in the place of tasks.

Ray takes seconds to start, so one test goes through it; the others put a grid in its place that
calls the ClientApp in this process, as two workers would that take turns.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import ipaddress
import itertools
import json
import os
import threading
from functools import lru_cache
from pathlib import Path

import pytest
import ray
import torch
from flwr.server.superlink.fleet import vce
from flwr.supercore.task_identity import TaskIdentity
from ray._private import ray_constants

import tacit
from tacit.deploy.flower import simulation as flower
from tacit.deploy.flower import virtual
from tacit.engine.attendance import Attendance
from tacit.errors import TacitError
from tests.exchange.federations import headed

PLAIN = {"personalise": "none", "baselines": False}


def both(federation, method, out=None, **settings):
    """The same run by both engines."""
    expected = tacit.train(federation, method, **PLAIN, **settings)
    found = tacit.train(federation, method, engine="flower", out=out, **PLAIN, **settings)
    every = torch.arange(len(federation))
    for mine, theirs in zip(found.models(every), expected.models(every), strict=True):
        assert torch.allclose(mine, theirs, atol=2e-5)
    assert str(found.guarantee) == str(expected.guarantee)
    assert found.guarantee.releases == expected.guarantee.releases
    (point,) = found.curve
    assert point["loss"] > 0
    assert all(point[name] == expected.curve[-1][name] for name in ("round", "epsilon"))
    return found, expected


class HereGrid:
    """Flower's grid, as far as it is used, with nodes in this process."""

    def __init__(self, app, count):
        self._app, self._replies, self._numbers = app, {}, itertools.count(1)
        self._nodes = {1000 + number: number for number in reversed(range(count))}

    def get_node_ids(self):
        return list(self._nodes)

    def push_messages(self, messages):
        for message in messages:
            name = message.metadata.__dict__["_message_id"] = str(next(self._numbers))
            partition = self._nodes[message.metadata.dst_node_id]
            context = flower.Context(
                1, message.metadata.dst_node_id, {"partition-id": partition}, {}, {}
            )
            self._replies[name] = self._app(message, context)
            yield name

    def pull_messages(self, names):
        return [self._replies.pop(name) for name in list(names) if name in self._replies]


@pytest.fixture
def here(monkeypatch):
    """Runs in this process; two workers, each with its own memory, answer in turn."""

    def run(server_app, client_app, count, backend_config):
        thread = threading.Thread(target=server_app, args=(HereGrid(client_app, count), None))
        thread.start()
        thread.join()

    workers, turns = [lru_cache(virtual.open_silo.__wrapped__) for _ in range(2)], itertools.count()

    def open_silo(place, task):
        return workers[next(turns) % 2](place, task)

    monkeypatch.setattr(flower, "run_simulation", run)
    monkeypatch.setattr(virtual, "open_silo", open_silo)
    for name in ("_run_id", "_task_id", "_node_id"):  # messages carry them
        monkeypatch.setattr(TaskIdentity, name, 1)


def descendants(process: int) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(processes: set[int]) -> list:
    """The addresses on which these processes wait for connections."""
    links = [link for number in processes for link in Path(f"/proc/{number}/fd").glob("*")]
    sockets = set()
    for link in links:
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(link))
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                words = bytes.fromhex(local.partition(":")[0])  # in the order of this processor
                raw = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                address = ipaddress.ip_address(raw)
                found.append(getattr(address, "ipv4_mapped", None) or address)
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file <_io.*/dev/null:ResourceWarning")  # Ray's own
@pytest.mark.filterwarnings(r"ignore:subprocess \d+ is still running:ResourceWarning")
def test_the_same_models_and_guarantee_on_ray(make_federation, tmp_path, monkeypatch, capfd):
    with monkeypatch.context() as once:  # Flower stops Ray after each run: here, after the last
        once.setattr(ray, "shutdown", lambda: None)
        try:
            both(
                make_federation(tasks=4), tacit.PMTL(clip_quantile=0.5), tmp_path / "run",
                rounds=3, seed=3, privacy=tacit.Privacy(noise=1.5), cohort=0.8,
            )  # fmt: skip
            addresses = listening(descendants(os.getpid()))
            assert len(addresses) > 3
            assert all(address.is_loopback for address in addresses)
        finally:
            once.undo()
            ray.shutdown()
            gc.collect()  # while Ray's warnings are expected
    result = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    assert result["config"]["engine"] == "flower"
    assert capfd.readouterr() == ("", "")


def test_an_error_inside_the_server_app_comes_out_as_it_is(make_federation, monkeypatch):
    """Through Flower's own thread, with nothing behind it."""

    def fails(*given, **named):
        raise KeyError("inside the ServerApp")

    monkeypatch.setattr(flower, "VirtualSilos", fails)
    monkeypatch.setattr(vce, "start_vce", lambda f_stop, **settings: f_stop.wait())
    with pytest.raises(KeyError, match="inside the ServerApp"):
        tacit.train(make_federation(tasks=2), tacit.FedAvg(), rounds=1, engine="flower")


@pytest.mark.slow
def test_a_private_run_without_a_seed_books_each_round_once(here, make_federation, tmp_path):
    run = tacit.train(
        make_federation(tasks=3), tacit.PMTL(), privacy=tacit.Privacy(epsilon=4.0), rounds=4,
        engine="flower", out=tmp_path,
    )  # fmt: skip
    assert run.guarantee.private
    assert run.guarantee.releases == 4
    assert run.baselines.keys() == {"constant", "local", "global"}
    paths = [tmp_path / "ledger.jsonl", *tmp_path.glob("flower/silos/*/runs/*/ledger.jsonl")]
    assert len(paths) == 4
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["round"] for line in lines] == [0, 1, 2, 3]
    assert (tmp_path / "report.html").exists()
    begun = [tmp_path / "checkpoint" / "settings.json", tmp_path / "flower/coordinator/run.json"]
    first, second = (json.loads(path.read_text(encoding="utf-8"))["key"] for path in begun)
    assert first == second


def test_a_secret_cohort_is_asked_alone_where_all_rows_are_one_owners(
    here, make_federation, tmp_path
):
    both(
        make_federation(tasks=4), tacit.PMTL(), tmp_path, rounds=4, seed=3, cohort=0.4,
        privacy=tacit.Privacy(noise=1.5),
    )  # fmt: skip
    logs = [path.read_text(encoding="utf-8") for path in tmp_path.glob("flower/silos/*/log.txt")]
    assert len(logs) == 4 and not any("not in this cohort" in log for log in logs)
    assert sum(log.count("sent to the coordinator") for log in logs) < 16


def test_methods_whose_tasks_settle_by_themselves(here, make_federation):
    method, privacy = tacit.MPMTL(clip=2.0), tacit.Privacy(noise=1.5)
    both(make_federation(tasks=3), method, rounds=2, seed=3, privacy=privacy)


def test_tasks_that_were_never_drawn_and_the_record_of_an_exchange(here, tmp_path):
    found, expected = both(headed(), tacit.FedMTL(), tmp_path, rounds=2, seed=5, cohort=0.4)
    assert found.exchange == expected.exchange
    assert found.exchange["answers"] < 2 * len(found.federation)


def test_a_run_goes_on_where_a_worker_failed(here, make_federation, tmp_path, monkeypatch):
    federation, method, settings = make_federation(tasks=3), tacit.PMTL(), {"rounds": 4, "seed": 1}
    settings |= PLAIN | {"privacy": tacit.Privacy(noise=2.0), "engine": "flower", "out": tmp_path}
    answer = virtual.Silo.answer

    def fails(silo, request):
        if request.round == 2 and silo.task == 1:
            raise OSError("no such folder")
        return answer(silo, request)

    monkeypatch.setattr(virtual.Silo, "answer", fails)
    with pytest.raises(TacitError, match="'task-1' failed: no such folder; do all machines"):
        tacit.train(federation, method, **settings)
    monkeypatch.setattr(virtual.Silo, "answer", answer)
    with pytest.raises(TacitError, match="other engine"):
        tacit.train(federation, method, resume=True, **settings | {"engine": "simulate"})
    resumed = tacit.train(federation, method, resume=True, **settings)
    whole = tacit.train(federation, method, **settings | {"out": None, "engine": "simulate"})
    every = torch.arange(3)
    assert torch.allclose(resumed.models(every)[0], whole.models(every)[0], atol=2e-5)
    assert str(resumed.guarantee) == str(whole.guarantee)


def test_a_silo_that_fails_says_why(here, make_federation, monkeypatch):
    from tacit.deploy.work import Work

    def fails(work, request):
        raise ValueError("the reason")

    monkeypatch.setattr(Work, "train", fails)
    with pytest.raises(TacitError, match=r"silo 'task-\d' failed: ValueError: the reason"):
        tacit.train(make_federation(tasks=2), tacit.FedAvg(), rounds=1, engine="flower")


def test_workers_that_are_silent_are_an_error(here, make_federation, monkeypatch):
    monkeypatch.setattr(flower, "SILENCE", 0.1)
    monkeypatch.setattr(HereGrid, "pull_messages", lambda grid, names: [])
    with pytest.raises(TacitError, match=r"no silo answered for 0\.1 seconds"):
        tacit.train(make_federation(tasks=2), tacit.FedAvg(), rounds=1, engine="flower")


def test_a_worker_that_dies_is_an_error(here, make_federation, monkeypatch):
    from flwr.app import Error, Message

    def dies(grid, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = "1"
            grid._replies["1"] = Message(Error(0, "actor died\nat length"), reply_to=message)
        return ["1"]

    monkeypatch.setattr(HereGrid, "push_messages", dies)
    with pytest.raises(TacitError, match=r"a worker of Ray failed \(actor died\)"):
        tacit.train(make_federation(tasks=2), tacit.FedAvg(), rounds=1, engine="flower")


def test_ray_that_does_not_start_is_an_error_and_leaves_no_thread(make_federation, monkeypatch):
    def run(server_app, client_app, count, backend_config):
        threading.Thread(target=server_app, args=(HereGrid(client_app, 0), None)).start()
        try:
            raise ValueError("no shared memory")
        except ValueError as error:
            raise RuntimeError("ending simulation") from error

    monkeypatch.setattr(flower, "run_simulation", run)
    before = threading.active_count()
    with pytest.raises(TacitError, match=r"did not run the silos \(no shared memory\)"):
        tacit.train(make_federation(tasks=2), tacit.FedAvg(), rounds=1, engine="flower")
    assert threading.active_count() == before


def test_ray_is_told_to_stay_on_this_machine(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = ray_constants.ENABLE_RAY_CLUSTER
    with flower._within_reach():
        assert ray.util.get_node_ip_address() == "127.0.0.1"
    assert before == ray_constants.ENABLE_RAY_CLUSTER


@pytest.mark.parametrize("named", [True, False], ids=["a cluster", "started before"])
def test_a_ray_that_others_may_reach_is_warned_of(named, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if named:
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    else:
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with pytest.warns(UserWarning, match="whoever reaches its ports"), flower._within_reach():
        pass


@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_a_cluster_is_used_where_there_is_one(address, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    assert flower._backend()["init_args"].get("address") == (None if address else "local")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "spark"}, "choose one of simulate, flower"),
        ({"model": torch.nn.Linear(4, 1)}, "by name"),
        ({"patience": 3}, "patience= is not for engine='flower'"),
        ({"method": tacit.FedMTL(), "attendance": Attendance()}, "attendance= is not"),
        ({"curator": tacit.Secure(), "privacy": tacit.Privacy(noise=1.0)}, "curator= is not"),
        ({"method": tacit.Local()}, "nothing leaves a task with Local"),
        ({"method": tacit.FedAvg(clip=float("inf"))}, "clip=inf cannot be sent"),
    ],
)
def test_what_it_cannot_do_is_refused(given, words, make_federation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"method": tacit.FedAvg(), "engine": "flower"} | given
    with pytest.raises(TacitError, match=words):
        tacit.train(make_federation(tasks=2), rounds=2, **settings)
    assert not list(tmp_path.iterdir())


def test_a_method_of_somebodys_own_is_refused(make_federation):
    class Mine(tacit.FedAvg):
        pass

    with pytest.raises(TacitError, match="Mine is not among"):
        tacit.train(make_federation(tasks=2), Mine(), rounds=2, engine="flower")


@pytest.mark.parametrize("missing", ["flwr", "ray"])
def test_without_flower_or_ray_it_says_what_to_install(missing, make_federation, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    with pytest.raises(TacitError, match=r"pip install 'tacit\[ray\]'"):
        tacit.train(make_federation(tasks=2), tacit.FedAvg(), rounds=2, engine="flower")
