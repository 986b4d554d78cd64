"""The command line and a table that is not as tidy as those of tutorials."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest

import tacit
from tests.test_cli import arguments, fail, succeed, table  # noqa: F401


@pytest.fixture
def run(table, tmp_path):  # noqa: F811
    succeed([*arguments(table, tmp_path / "run", rounds=1), "--no-baselines"])
    return tmp_path / "run"


def predicted(run, rows: pd.DataFrame, *more: str) -> tuple[list[dict[str, str]], str]:
    new, out = run.parent / "new.csv", run.parent / "predictions.csv"
    rows.to_csv(new, index=False)
    shown = succeed(["predict", str(run), "--data", str(new), "--out", str(out), *more])
    return list(csv.DictReader(out.read_text().splitlines())), shown


def test_predictions_keep_columns_and_say_what_is_new(run):
    new = pd.DataFrame(
        {
            "hospital": ["h1", "h1", "h2"],
            "patient": ["007", "=1+1", "P 3"],
            "seen": ["2024-01-31", "", "2024-03-01"],
            "age": [40, 41, 42],
            "sex": ["f", "d", "m"],
        }
    )
    rows, shown = predicted(run, new, "--keep", "patient,seen")
    assert list(rows[0]) == ["hospital", "patient", "seen", "probability of 1"]
    assert [row["patient"] for row in rows] == ["007", "'=1+1", "P 3"]
    assert [row["seen"] for row in rows] == ["2024-01-31", "", "2024-03-01"]
    assert shown.count("'d', unknown in training") == 1 and "3 predictions" in shown
    rows, shown = predicted(run, new.drop(columns="age").replace("d", "m"))
    assert "there is no column 'age'" in shown.replace("\n", " ") and len(rows) == 3
    plain, shown = predicted(run, new.replace("d", "m"))
    assert "missing" not in shown
    commas = new.replace("d", "m").assign(age=["40,0", "41,0", "42,0"])
    assert predicted(run, commas, "--decimal", ",")[0] == plain
    words = ["predict", str(run), "--data", str(run.parent / "new.csv"), "--out", "x.csv"]
    assert "no column 'patinet'" in fail([*words, "--keep", "patinet"])


def test_a_frame_with_the_task_column_says_whose_each_row_is(run):
    models = tacit.SavedModels.load(run)
    new = pd.DataFrame({"hospital": ["h1", "h2"], "age": [40, 40], "sex": ["f", "f"]})
    both = models.predict(new)
    np.testing.assert_array_equal(both, models.predict(new.drop(columns="hospital"), ["h1", "h2"]))
    assert both[0] != both[1]
    with pytest.warns(UserWarning, match="column 'sex' has 'd', unknown in training"):
        models.predict(new.assign(sex="d"))


def test_the_description_says_what_a_gap_is_and_who_lacks_what(tmp_path):
    site = np.repeat(["a", "b", "c"], 10)
    pressure = [("" if s == "c" else "." if k == 3 else k) for k, s in enumerate(site)]
    path = tmp_path / "t.csv"
    made = {"site": site, "x": range(30), "p": pressure, "y": [0, 1] * 15}
    pd.DataFrame(made).to_csv(path, index=False)
    words = ["data", str(path), "--task", "site", "--target", "y"]
    shown = json.loads(succeed([*words, "--json"]))
    assert shown["lacking"] == {"p": ["c"]} and "not covered" in shown["lacking_label"]
    assert "gaps" in shown["cells"] and "p (missing)" in shown["features"]
    plain = " ".join(succeed(words).split())
    assert "p in 1 of 3 (c)" in plain.replace("│ │ ", "")
    more = ["--method", "pmtl", "--rounds", "1", "--no-baselines", "--out", str(tmp_path / "run")]
    plain = " ".join(succeed(["train", "--data", *words[1:], *more]).replace("│", " ").split())
    assert plain.count("p in 1 of 3 (c)") == 1
    assert "p in 1 of 3 (c)" in (tmp_path / "run" / "report.html").read_text()


def test_a_file_in_another_encoding(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{'Köln' if k % 2 else 'Ulm'};{k},5;{k % 3}" for k in range(30)]
    path.write_bytes("\n".join(["Stadt;Größe;y", *lines]).encode("cp1252"))
    words = ["data", str(path), "--task", "Stadt", "--target", "y"]
    assert "--encoding cp1252" in fail(words)
    shown = json.loads(succeed([*words, "--encoding", "cp1252", "--json"]))
    assert shown["features"] == ["Größe"] and shown["tasks"] == 2


def test_scores_of_training_rows_are_called_so(table, tmp_path):  # noqa: F811
    words = arguments(table, tmp_path / "run", rounds=1, option="test=0")
    shown = " ".join(succeed([*words, "--no-baselines"]).replace("│", " ").split())
    said = "scores of the rows that models were trained on, because none were kept for testing"
    assert said in shown
    assert said in (tmp_path / "run" / "report.html").read_text()
    metrics = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]
    assert metrics["part"] == "train" and said in metrics["part_label"]
    words = arguments(table, tmp_path / "other", rounds=1)
    result = json.loads(succeed([*words, "--no-baselines", "--json"]))
    assert "part_label" not in result["metrics"]


def test_a_rare_outcome_is_not_headed_by_accuracy(table, tmp_path):  # noqa: F811
    rows = pd.read_csv(table)
    rows["outcome"] = np.random.default_rng(0).random(len(rows)) < 0.05
    rows.to_csv(table, index=False)
    shown = succeed([*arguments(table, tmp_path / "run", rounds=1), "--no-baselines"])
    plain = " ".join(shown.replace("│", " ").split())
    assert "ROC curve ↑" in plain and "accuracy ↑" not in plain
    assert "always saying the commonest class would have" in plain
    metrics = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]
    assert metrics["main"] == {"name": "auc_pooled", "per_task": "loss", "higher_is_better": True}
    assert {"accuracy", "auc", "auc_pooled", "loss", "majority"} <= metrics["overall"].keys()
    assert "commonest class" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("command", ["data", "forecast"])
def test_commands_that_only_look_take_the_remedy_that_they_name(command, table):  # noqa: F811
    """A column of dates is refused with `--drop` or `--categorical`, and these are there."""
    rows = pd.read_csv(table).assign(seen="2024-01-31")
    rows.to_csv(table, index=False)
    named = ["--data", str(table), "--rows", "12"] if command == "forecast" else [str(table)]
    words = [command, *named, "--task", "hospital", "--target", "outcome", "--json"]
    assert "--categorical seen" in (said := fail(words)) and "--drop seen" in said
    for remedy in (["--drop", "seen"], ["--categorical", "seen"]):
        assert json.loads(succeed([*words, *remedy]))


def test_columns_that_only_name_rows_are_pointed_at(tmp_path):
    rows = [f"{k},{k % 4},{k % 2 + k / 100},{k % 3}" for k in range(40)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["number,site,x,y", *rows]))
    words = ["data", str(path), "--task", "site", "--target", "y", "--json"]
    assert json.loads(succeed(words))["different in every row"] == ["number"]
    assert "--drop number" in succeed(words[:-1])  # x differs in every row, but measures
    assert "different in every row" not in json.loads(succeed([*words, "--drop", "number"]))
    out = ["--out", str(tmp_path / "run"), "--rounds", "3", "--no-baselines"]
    asked = ["train", *words[1:-1], *out, "--personalise", "none", "--epsilon", "1", "--seed", "0"]
    assert "different in every row: number: taken for" in succeed(asked)


def test_rows_without_a_target_are_counted_and_left_out(table, tmp_path):  # noqa: F811
    rows = pd.read_csv(table)
    rows["outcome"] = rows["outcome"].astype(object)
    rows.loc[[0, 5, 7], "outcome"] = ""
    rows.to_csv(tmp_path / "gaps.csv", index=False)
    given = ["data", str(tmp_path / "gaps.csv"), "--task", "hospital", "--target", "outcome"]
    assert "(3 rows in all)" in fail(given)
    found = json.loads(succeed([*given, "--drop-unlabelled", "--json"]))
    assert found["rows without a target"] == 3
    shown = succeed([*given, "--drop-unlabelled"])
    assert "3, left out: not covered by the guarantee" in " ".join(shown.split())
    run = arguments(tmp_path / "gaps.csv", tmp_path / "run", rounds=1)
    succeed([*run, "--no-baselines", "--drop-unlabelled"])
    written = (tmp_path / "run" / "result.json").read_text()
    assert "rows without one are left out" in written and "3 rows" not in written
    facts = ["forecast", "--data", str(tmp_path / "gaps.csv"), *given[2:], "--rows", "9"]
    succeed([*facts, "--drop-unlabelled"])


def test_a_table_is_what_train_begins_with(table, tmp_path):  # noqa: F811
    """`tacit train patients.csv` is what people type first."""
    named = arguments(table, tmp_path / "named", rounds=1)
    first = ["train", str(table), *named[1:]]
    del first[first.index("--data") : first.index("--data") + 2]
    succeed([*first[:-1], str(tmp_path / "first")])
    succeed(named)
    found = [json.loads((tmp_path / n / "result.json").read_text()) for n in ("first", "named")]
    assert found[0]["metrics"]["overall"] == found[1]["metrics"]["overall"]
    assert "two tables" in fail(["train", str(table), *named[1:]])
    assert "does not exist" in fail(["train", str(tmp_path / "no.csv"), *named[3:]])
