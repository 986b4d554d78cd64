"""`tacit mixed`: a formula on the command line."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from tacit.cli import app
from tacit.engine.rounds import Rounds
from tests.test_cli import fail, runner, succeed


@pytest.fixture
def wages(tmp_path):
    generator = np.random.default_rng(0)
    path = tmp_path / "wages.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", "wage", "exper", "union"])
        for person in range(40):
            level = 1000 + 200 * generator.random()
            for year in range(6):
                union = generator.choice(["no", "yes"])
                wage = level + 50 * year + 100 * (union == "yes") + 30 * generator.normal()
                writer.writerow([f"p{person}", wage, year, union])
    return path


@pytest.mark.slow
def test_a_mixed_model_by_formula(wages, tmp_path):
    out = tmp_path / "mixed"
    text = "wage ~ exper + union + (1 + exper | person)"
    words = ["mixed", str(wages), "--formula", text, "--seed", "0"]
    shown = succeed([*words, "--epsilon", "20", "--delta", "0.001", "--out", str(out)])
    assert "exper" in shown and "union[T.yes]" in shown
    assert "Guarantee ε=20.00 at δ=0.001" in " ".join(shown.split())
    result = json.loads((out / "result.json").read_text())
    assert result["guarantee"]["epsilon"] <= 20
    assert result["config"]["formula"] == text
    assert result["config"]["slopes"] == "0"
    assert any("categories" in said for said in result["guarantee"]["assumptions"])
    assert (out / "report.html").exists()
    plain = [*words, "--out"]
    assert json.loads(succeed([*plain, str(tmp_path / "a"), "--json"]))["config"]["seed"] == 0
    quiet = succeed([*plain, str(tmp_path / "b"), "--quiet"])
    assert quiet.split() == [str(tmp_path / "b" / "result.json")]


@pytest.mark.parametrize(
    ("formula", "more", "words"),
    [
        ("wage ~ exper", [], "which column names the task"),
        ("wage ~ scale(exper) + (1 | person)", [], "rows of all tasks"),
        ("wage ~ expr + (1 | person)", [], "did you mean 'exper'"),
        ("wage ~ exper + (1 | person)", ["--kind", "count"], "whole numbers, 0 or more"),
        ("wage ~ exper + (1 | person)", ["--epsilon", "-1"], "epsilon"),
        ("wage ~ exper + (1 | person)", ["--delta", "0.1"], "delta without epsilon"),
    ],
)
def test_mistakes_in_a_mixed_model_get_one_sentence(wages, tmp_path, formula, more, words):
    out = tmp_path / "run"
    sentence = fail(["mixed", str(wages), "--formula", formula, "--out", str(out), *more])
    assert words in sentence
    assert "\n" not in sentence.strip()
    assert not out.exists()


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(wages, tmp_path, monkeypatch):
    """With the settings of its folder, to the end that it would have had."""
    text, whole = "wage ~ exper + union + (1 | person)", tmp_path / "whole"
    words = ["mixed", str(wages), "--formula", text, "--epsilon", "20", "--seed", "0", "--json"]
    before = json.loads(succeed([*words, "--out", str(whole)]))
    do = Rounds.next_board

    def stop(self):
        if self.board.round == 4:
            raise KeyboardInterrupt
        return do(self)

    monkeypatch.setattr(Rounds, "next_board", stop)
    part = tmp_path / "part"
    stopped = runner.invoke(app, [*words, "--out", str(part)])
    assert stopped.exit_code == 130 and f"tacit mixed --resume {part}" in stopped.stderr
    monkeypatch.setattr(Rounds, "next_board", do)
    after = json.loads(succeed(["mixed", "--resume", str(part), "--json"]))
    for key in ("summary", "guarantee", "config"):
        assert after[key] == before[key]
    assert "leave the others out" in fail(["mixed", str(wages), "--resume", str(part)])
    assert "tacit mixed --resume" in fail(["train", "--resume", str(part)])
    assert "holds no run" in fail(["mixed", "--resume", str(tmp_path)])
    assert "--formula are needed" in fail(["mixed", str(wages)])


def test_new_rows_are_predicted_by_the_formula(wages, tmp_path):
    """Those of persons who took part, of nobody, and of somebody with a few years of their own."""
    out, new, known, found = (tmp_path / name for name in ("run", "new.csv", "known.csv", "found"))
    text = "log(wage) ~ log(1 + exper) + union + (1 | person)"
    succeed(["mixed", str(wages), "--formula", text, "--out", str(out), "--quiet"])
    new.write_text("person,exper,union\np3,2,no\nguest,2,no\nheir,2,no\n")
    known.write_text("person,exper,union,wage\n" + "heir,2,no,9000\n" * 20)
    words = ["predict", str(out), "--data", str(new), "--out", str(found)]
    assert "2 of the tasks did not take part" in succeed(words)
    first = list(csv.DictReader(found.read_text().splitlines()))
    assert [row["person"] for row in first] == ["p3", "guest", "heir"]
    one, guest, heir = (float(row["predicted log(wage)"]) for row in first)
    assert heir == guest and abs(one - np.log(1200)) < 0.15
    succeed([*words, "--join", str(known)])
    again = list(csv.DictReader(found.read_text().splitlines()))
    *same, learned = (float(row["predicted log(wage)"]) for row in again)
    assert same == [one, guest] and guest + 0.1 < learned < np.log(9000)
