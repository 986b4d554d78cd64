"""What the documentation shows runs as printed."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.fx.experimental import proxy_tensor

import tacit
from tacit.deploy.agreement import ColumnSection
from tacit.deploy.site import ServersSection
from tacit.errors import TacitError
from tacit.experiment.toml import PrivacySection, PublishingSection, TuneSection
from tests.conftest import described

ROOT = Path(__file__).parents[1]


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def test_the_method_of_the_guide_trains_privately(make_federation, tmp_path, monkeypatch):
    (code,) = blocks("docs/methods.md")
    (tmp_path / "guide.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    method = importlib.import_module("guide").Proximal(clip=0.5)
    run = tacit.train(
        make_federation(), method, privacy=tacit.Privacy(noise=5.0),
        rounds=2, seed=0, baselines=False, personalise="none",
    )  # fmt: skip
    assert run.guarantee.releases == 2


@pytest.mark.slow
def test_the_examples_of_the_ways_to_use_it_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without a seed the run makes a folder for its ledger
    code, _ = blocks("docs/ways.md")
    code = code.replace("rounds=200", "rounds=4")
    names: dict = {}
    exec(compile(code, "docs/ways.md", "exec"), names)
    run = names["run"]
    assert run.guarantee.private
    assert run.guarantee.epsilon <= 2.0
    assert (tmp_path / "report.html").exists()
    assert {"constant", "local", "global"} <= run.metrics["baselines"].keys()
    assert names["network"].metrics["baselines"].keys() == {"constant", "local", "global"}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of what TensorBoard imports
def test_the_notebook_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(proxy_tensor, "extract_val", described)
    (code,) = blocks("docs/notebook.md")
    names: dict = {}
    exec(compile(code, "docs/notebook.md", "exec"), names)
    assert names["run"].guarantee.private and names["again"].guarantee.private
    assert len(names["gain"]) == len(names["schools"])
    for name in ("gains.png", "school-12.onnx", "summary.html", "logs"):
        assert (tmp_path / name).exists()


def test_the_example_in_the_shape_of_scikit_learn_runs():
    _, code = blocks("docs/ways.md")
    names: dict = {}
    exec(compile(code, "docs/ways.md", "exec"), names)
    assert names["accuracy"] > 0.6
    assert names["clf"].guarantee_.epsilon <= 1.0


def test_the_schema_of_the_guide_reads_the_table_of_the_guide():
    text = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    schema = tacit.data.Schema.from_json(shown)
    assert schema.to_json() + "\n" == shown.replace("[50, 20]", "[50.0, 20.0]")
    rows = {"hospital": ["north", "south"] * 3, "outcome": [1, 0, 0] * 2, "age": range(6)}
    rows |= {"sex": ["f"] * 6, "smoker": [0] * 6, "pressure": [142, None] * 3}
    assert len(tacit.data.from_table(rows, schema=schema).features) == 5


def test_the_examples_of_the_data_guide_run(tmp_path, monkeypatch):
    """The first reads files of others, which are not here."""
    files, *made = blocks("docs/data.md")
    monkeypatch.chdir(tmp_path)
    calls = ast.parse(files).body
    for call, place in zip(calls, ("femnist", "celeba", "notes.csv"), strict=True):
        with pytest.raises(TacitError, match=place):  # no TypeError: it takes these options
            exec(ast.unparse(call), {"tacit": tacit})
    draw = np.random.default_rng(0)
    tasks = np.repeat(["north", "south"], 20)
    names = {
        "tacit": tacit,
        "table": {"site": tasks, "age": draw.normal(size=40), "days": draw.uniform(1, 2000, 40),
                  "died": np.arange(40) % 2},
        "x": draw.normal(size=(40, 3, 8, 8)).astype("float32"),
        "y": np.where(draw.uniform(size=(40, 3)) < 0.5, 1.0, 0.0),
        "masks": draw.integers(0, 4, size=(40, 8, 8)),
        "tasks": tasks,
    }  # fmt: skip
    exec(compile(made[0], "docs/data.md", "exec"), names)
    assert names["made"].kind == "survival" and names["made"].outputs == 3
    rows = names | {"x": names["x"][:, 0, 0, :3]}
    first, second = made[1].split("rooms =")
    exec(compile(first, "docs/data.md", "exec"), rows)
    assert rows["made"].heads.of(0) == ("brain",)
    exec(compile("rooms =" + second, "docs/data.md", "exec"), names)
    assert names["rooms"].heads.of(1) == ("big", "small")


SECTIONS = {
    "publishing": PublishingSection,
    "privacy": PrivacySection,
    "tune": TuneSection,
    "servers": ServersSection,
}


def test_every_fragment_of_a_file_on_a_page_is_read():
    """Whole files are read by others: tests/docs/test_schemas.py and the test above."""
    seen = set()
    for page in (ROOT / "docs").glob("**/*.md"):
        for text in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            tables = tomllib.loads(text)
            if "consortium" in tables:
                continue
            for column in tables.pop("data", {}).get("columns", {}).values():
                ColumnSection.model_validate(column)
            for name, table in tables.items():
                SECTIONS[name].model_validate(table)
                seen.add(name)
    assert seen == SECTIONS.keys()


HEART = ROOT.parent / "shared" / "data" / "heart"


@pytest.mark.skipif(not HEART.is_dir(), reason="needs the heart disease data of four hospitals")
def test_the_four_hospitals_of_the_guide_exchange_models(tmp_path, monkeypatch):
    """The curator finds the two that predict the same; only they are mixed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_DATA", str(HEART.parent))
    (code,) = blocks("docs/exchange.md")
    names: dict = {}
    code = code.replace("rounds=40", "rounds=40, seed=0, baselines=False, personalise='none'")
    exec(compile(code, "docs/exchange.md", "exec"), names)
    run, hospitals = names["run"], names["hospitals"]
    assert str(run.guarantee).startswith("exchange (no ε): protects nothing between clients")
    same = [k for k in range(4) if hospitals.heads.of(k) == ("disease",)]
    similarity = run.simulation.exchange.record.similarity
    assert len(same) == 2 and similarity[same[0], same[1]] > 0.95
    others = similarity[~torch.eye(4, dtype=torch.bool)].sort().values
    assert others[-3] < 0.9  # the pair counts twice, and nobody else comes near
    pair = [hospitals.names[k] for k in same]
    plainest = [[*pair, 40], [*reversed(pair), 40]]  # in every round, and nobody else so often
    revealed = run.exchange["revealed"]["examples"]
    assert sorted(revealed[:2]) == sorted(plainest) and all(one[2] < 10 for one in revealed[2:])
    assert "could work out" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_experiment_of_the_guide_is_a_valid_one(tmp_path):
    from tacit.experiment.toml import check, merge, read

    tables = merge(read(ROOT / "docs" / "experiment.toml"), {"run": {"out": str(tmp_path)}})
    config = check(tables)
    assert config.plan().privacy is not None
    federation = config.data.federation()
    assert len(federation) > 50
    assert len(federation.test.y) > len(federation.validation.y)
