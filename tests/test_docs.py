"""What the documentation shows runs as printed."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch

import tacit

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
def test_the_first_example_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without a seed the run makes a folder for its ledger
    (code,) = blocks("README.md")
    code = code.replace("rounds=200", "rounds=4")
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    run = names["run"]
    assert run.guarantee.private
    assert run.guarantee.epsilon <= 2.0
    assert (tmp_path / "report.html").exists()
    assert {"constant", "local", "global"} <= run.metrics["baselines"].keys()
    assert names["network"].metrics["baselines"].keys() == {"constant", "local", "global"}


def test_the_schema_of_the_guide_reads_the_table_of_the_guide():
    text = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    schema = tacit.data.Schema.from_json(shown)
    assert schema.to_json() + "\n" == shown.replace("[50, 20]", "[50.0, 20.0]")
    rows = {"hospital": ["north", "south"] * 3, "outcome": [1, 0, 0] * 2, "age": range(6)}
    rows |= {"sex": ["f"] * 6, "smoker": [0] * 6, "pressure": [142, None] * 3}
    assert len(tacit.data.from_table(rows, schema=schema).features) == 5


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
