"""What the documentation shows runs as printed."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

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
    assert run.metrics["baselines"].keys() == {"local", "global"}


def test_the_experiment_of_the_guide_is_a_valid_one(tmp_path):
    from tacit.config import check, merge, read

    tables = merge(read(ROOT / "docs" / "experiment.toml"), {"run": {"out": str(tmp_path)}})
    config = check(tables)
    assert config.promise() is not None
    federation = config.data.federation()
    assert len(federation) > 50
    assert len(federation.test.y) > len(federation.validation.y)
