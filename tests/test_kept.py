"""Figures of benchmarks are kept, and stand beside those of the last time."""

import json

from benchmarks import kept


def test_figures_stand_beside_those_of_the_last_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kept, "RESULTS", tmp_path / "results")
    kept.report("speed", {"over the loop": 2.0}, turns=3)
    assert "nothing is kept" in capsys.readouterr().out
    kept.report("speed", {"over the loop": 3.0, "new": 1.0})
    said = capsys.readouterr().out
    assert "2 before, +50%" in said and "turns 3" in said
    found = json.loads((tmp_path / "results" / "speed.json").read_text())
    assert found["figures"] == {"over the loop": 3.0, "new": 1.0}
    assert {"machine", "torch", "date", "commit"} <= found["measured"].keys()
