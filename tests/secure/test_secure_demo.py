"""`tacit demo --secure`, shortened: real processes, the same models."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from tacit.demos import secure as demo_secure


@pytest.mark.slow
def test_both_curators_end_with_the_same_models(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo_secure, "ROUNDS", 3)
    monkeypatch.setattr(demo_secure, "ROUNDS_ALONE", 2)
    demo_secure.run_secure_demo(tmp_path, as_json=True)
    found = json.loads(capsys.readouterr().out)
    _, plain, secure = found["rows"]
    assert found["models_apart"] < 1e-4
    # Answers on the edge may tip over: one of a client's is 0.0005 of the accuracy.
    assert plain["accuracy"] == pytest.approx(secure["accuracy"], abs=2e-3)
    # Words of 64 bits instead of 32, task layers twice; three servers talk to each other besides.
    assert 2 < secure["bytes from a client"] / plain["bytes from a client"] < 3
    assert secure["bytes from a server"] > plain["bytes from a server"]
    page = (tmp_path / "secure.html").read_text(encoding="utf-8")
    assert "Nobody saw who learned from whom" in page
    assert "Hidden from the servers; no privacy between clients" in page
    assert "trust: replicated" in page
    assert "best alone" in page and "tasks better than alone" in page


def test_the_table_fits_into_a_terminal_of_80_columns():
    row = {"curator": "one curator", "accuracy": 0.935, "log loss": 0.168, "seconds": 12.3}
    talks = row | {"bytes from a client": 18_000, "bytes from a server": 531_000}
    silent = row | {"bytes from a client": 0, "bytes from a server": 0}
    console = Console(width=80, force_terminal=False)
    with console.capture() as shown:
        console.print(demo_secure._table([talks, silent]))
    assert "531 kB" in shown.get() and "nothing" in shown.get()
    assert "…" not in shown.get()
