"""tacit as an app of a Flower federation that is there already."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from typer.testing import CliRunner

import tacit
from tacit.cli import app
from tacit.deploy.flower import app as apps
from tacit.deploy.flower import asking, hosted, records
from tacit.deploy.flower.hosted import Roll, coordinator_app, silo_app
from tacit.deploy.flower.records import pack, unpack
from tacit.deploy.messages import Reply, Request
from tacit.deploy.project import write_project
from tacit.deploy.site import Site
from tacit.errors import TacitError
from tacit.files import hold
from tests.deploy.direct import personal
from tests.deploy.flower.federation import Federation

CONSORTIUM = """\
[consortium]
name = "heart"
silos = ["north", "south"]
[data]
target = "y"
kind = "regression"
range = [-10, 10]
[data.columns]
age = { range = [0, 120] }
dose = { range = [0, 5] }
[method]
name = "pmtl"
[privacy]
noise = 1.0
[run]
rounds = 2
cohort = 1.0
seed = 3
"""


def cli(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def agreed(folder: Path) -> Path:
    path = folder / "consortium.toml"
    path.write_text(CONSORTIUM)
    return path


def silo(folder: Path, name: str, consortium: Path) -> Path:
    draw = torch.Generator().manual_seed(len(name) + ord(name[0]))
    lines = ["age,dose,y"]
    for _ in range(40):
        age, dose, other = torch.rand(3, generator=draw).tolist()
        lines.append(f"{20 + 60 * age:.2f},{5 * dose:.2f},{3 * age - 2 * dose + other:.3f}")
    table = folder / f"{name}.csv"
    table.write_text("\n".join(lines) + "\n")
    place = folder / name
    cli("silo", "init", place, "--consortium", consortium, "--name", name, "--data", table)
    return place


@pytest.mark.slow
def test_an_unmodified_federation_ends_in_the_models_of_the_simulation(tmp_path):
    consortium = agreed(tmp_path)
    folders = {name: silo(tmp_path, name, consortium) for name in ("north", "south")}
    cli("deploy", "flower-app", tmp_path / "app", "--consortium", consortium)
    with Federation(tmp_path, folders) as federation:
        place = federation.home / "tacit-heart"
        (place / "keys").mkdir(parents=True)
        for name in folders:  # a SuperNode that has another key is nobody
            key = federation.keys / name / "node.pub"
            (place / "keys" / key.with_stem(name).name).write_bytes(key.read_bytes())
        federation.run(tmp_path / "app", until=place / "result.json")
        said = federation.said("north") + federation.said("south")
    done = json.loads((place / "result.json").read_text())
    assert done["finished"] == ["north", "south"] and done["excluded"] == {}
    assert "Traceback" not in said

    sites = [Site.open(folder) for folder in folders.values()]
    terms = sites[0].terms
    rows = terms.federation({task: site.silo.own for task, site in enumerate(sites)})
    settings = {"rounds": terms.rounds, "cohort": 1.0, "seed": terms.seed, "model": terms.model}
    run = tacit.train(
        rows, terms.make_method(), privacy=terms.make_privacy(), personalise="none",
        baselines=False, **settings,
    )  # fmt: skip
    found = torch.stack([personal(site.silo) for site in sites])
    assert torch.allclose(found, run.models(torch.arange(2))[0], atol=2e-5)
    assert found.abs().max() > 0.1 and not torch.equal(found[0], found[1])
    assert done["guarantee"]["epsilon"] == run.guarantee.epsilon

    cli("silo", "personalise", folders["north"])
    new = tmp_path / "new.csv"
    cli("silo", "predict", folders["north"], "--data", tmp_path / "north.csv", "--out", new)
    assert len(new.read_text().splitlines()) == 41


@pytest.mark.parametrize("module", [hosted, apps, asking, records], ids=lambda m: m.__name__)
def test_only_public_interfaces_of_flower_are_used(module):
    tree = ast.parse(inspect.getsource(module))
    used = {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("flwr")
    }
    assert used and used <= {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
    for name in used:
        public = set(sys.modules[name].__all__)
        taken = {
            one.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == name
            for one in node.names
        }
        assert taken <= public
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import) and "flwr" in
                ast.unparse(node)]  # fmt: skip


def test_a_project_is_a_few_lines(tmp_path):
    consortium = agreed(tmp_path)
    consortium.write_text(CONSORTIUM.replace('"heart"', "'He said \"x\" {y}'"))
    files = write_project(tmp_path / "app", consortium)
    assert {path.relative_to(tmp_path / "app").as_posix() for path in files} == {
        "pyproject.toml", "README.md", "tacit_app/__init__.py", "tacit_app/client_app.py",
        "tacit_app/server_app.py", "tacit_app/consortium.toml",
    }  # fmt: skip
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert project["project"]["name"] == "tacit-he-said-x-y"
    assert project["project"]["dependencies"] == []
    assert sum(len(path.read_text().splitlines()) for path in files if path.suffix == ".py") < 20
    with pytest.raises(TacitError, match="has a project already"):
        write_project(tmp_path / "app", consortium)
    consortium.write_text(CONSORTIUM + "[curator]\nservers = 3\n")
    with pytest.raises(TacitError, match="servers that work on shares"):
        write_project(tmp_path / "other", consortium)


@pytest.fixture
def as_an_app(monkeypatch):
    """Flower tells its processes which task they are; messages carry it."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def asked(node_config, request, kind="train") -> Message:
    content = pack(request.to_bytes()) if request else RecordDict()
    message = Message(content, 1, kind)
    return silo_app()(message, Context(1, 1, node_config, RecordDict(), {}))


def test_what_goes_wrong_at_a_silo_stays_there(as_an_app, tmp_path, capsys):
    request = Request(kind="train", run="0" * 32, round=0, terms={})
    consortium = agreed(tmp_path)
    folder = silo(tmp_path, "north", consortium)
    (tmp_path / "north.csv").write_text("age,dose,y\n30,1,4711\n")
    for given in ({}, {"tacit-silo": str(tmp_path / "nowhere")}, {"tacit-silo": str(folder)}):
        reply = Reply.from_bytes(unpack(asked(given, request).content))
        assert (reply.state, reply.nonce) == ("failed", request.nonce)
        assert reply.reason == "the silo could not do it; its own log says why"
    said = capsys.readouterr().err
    assert "--node-config" in said and "4711" in said
    named = asked({"tacit-silo": str(tmp_path / "nowhere")}, None, "query")
    assert named.content["tacit-silo"]["tacit-silo"] == ""
    named = asked({"tacit-silo": str(folder)}, None, "query")
    assert named.content["tacit-silo"]["tacit-silo"] == "north"


def test_a_silo_that_is_at_work_gives_no_answer_that_counts(as_an_app, tmp_path):
    request = Request(kind="train", run="0" * 32, round=0, terms={})
    folder = silo(tmp_path, "north", agreed(tmp_path))
    with hold(folder), ThreadPoolExecutor(1) as elsewhere:  # a folder is held by one thread
        answer = elsewhere.submit(asked, {"tacit-silo": str(folder)}, request)
        with pytest.raises(RuntimeError, match="still at work"):
            answer.result()


def test_such_a_silo_is_told_how_it_is_reached(tmp_path):
    folder = silo(tmp_path, "north", agreed(tmp_path))
    assert f"--node-config 'tacit-silo=\"{folder}\"'" in cli("silo", "check", folder)
    result = CliRunner().invoke(app, ["silo", "run", str(folder)])
    assert isinstance(result.exception, TacitError) and "names no coordinator" in str(
        result.exception
    )


def test_a_coordinator_without_a_place_is_refused(tmp_path):
    for config in ({"folder": "here", "patience": 1}, {"folder": "/tmp/x", "patience": 0}):
        context = Context(1, 1, {}, RecordDict(), config)
        with pytest.raises(TacitError, match="a whole path at the SuperLink"):
            coordinator_app(agreed(tmp_path))(SimpleNamespace(), context)


class Nodes:
    """A grid whose nodes say who they are, one look later."""

    def __init__(self, said, keys=None):
        self.said, self.keys, self.online, self.waiting = said, keys or {}, set(said), {}
        self.since = "then"

    def get_nodes(self):
        return [
            SimpleNamespace(node_id=n, last_activated_at=self.since, public_key=self.keys.get(n))
            for n in sorted(self.online)
        ]

    def push_messages(self, messages):
        fresh = {f"{len(self.waiting) + k}": m for k, m in enumerate(messages)}
        self.waiting |= fresh
        return list(fresh)

    def pull_messages(self, numbers):
        return [self.reply(number) for number in numbers if self.waiting[number] is not None]

    def reply(self, number):
        message, self.waiting[number] = self.waiting[number], None
        said = self.said[message.metadata.dst_node_id]
        about = SimpleNamespace(reply_to_message_id=number)
        content = RecordDict({"tacit-silo": ConfigRecord({"tacit-silo": said})})
        return SimpleNamespace(metadata=about, content=content, has_error=lambda: said is None)


def tasks(roll):
    roll.nodes()
    return {task: there.node for task, there in roll.nodes().items()}


def test_nodes_say_who_they_are_and_the_first_of_two_counts(as_an_app, capsys):
    grid = Nodes({7: "south", 8: "north", 9: "north", 10: "nobody\x1b[2J", 11: 5})
    roll = Roll(grid, ("north", "south"), {})
    assert tasks(roll) == {0: 8, 1: 7}
    assert "\x1b" not in capsys.readouterr().out
    grid.online.remove(8)
    assert tasks(roll) == {0: 9, 1: 7}
    sent = len(grid.waiting)
    roll.nodes()
    assert len(grid.waiting) == sent == 5  # each is asked once
    grid.since, before = "later", roll.nodes()
    assert tasks(roll) == {0: 9, 1: 7} and roll.nodes() != before  # started anew: asked again


def test_a_node_without_the_key_of_a_silo_is_not_that_silo(as_an_app, capsys):
    grid = Nodes({8: "north", 9: "north", 7: "south"}, {8: b"other", 9: b"norths"})
    roll = Roll(grid, ("north", "south"), {"north": b"norths"})
    assert tasks(roll) == {0: 9, 1: 7}
    assert "a stranger says to be north" in capsys.readouterr().out
    grid.online.remove(9)
    assert tasks(roll) == {1: 7}
