"""`tacit mixed`: a formula on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.cli.mixed import _show
from tests.test_cli import fail, succeed


@pytest.fixture
def wages(tmp_path):
    generator = np.random.default_rng(0)
    path = tmp_path / "wages.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", "wage", "exper", "union"])
        for person in range(40):
            for year in range(6):
                union = generator.choice(["no", "yes"])
                wage = 1000 + 50 * year + 100 * (union == "yes") + 30 * generator.normal()
                writer.writerow([f"p{person}", wage, year, union])
    return path


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


def test_a_summary_is_shown_as_it_is(capsys):
    lines = "union[T.yes] " + 30 * "wide "
    _show(SimpleNamespace(summary=lambda: lines, guarantee="ε"), Path("run"))  # type: ignore[arg-type]
    assert lines in capsys.readouterr().out
