"""The commands of a run across silos, up to where processes would start."""

from __future__ import annotations

import pytest

from tests.test_cli import fail, succeed

ROWS = [(age, age % 2, "ab"[age % 2], (age * 7) % 3 % 2) for age in range(30, 60)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "north.csv"
    path.write_text("\n".join(["age,sex,ward,y", *(",".join(map(str, row)) for row in ROWS)]))
    return path


@pytest.fixture
def trial(table, tmp_path):
    folder = tmp_path / "trial"
    succeed(
        ["coordinator", "init", str(folder), "--example", str(table), "--target", "y",
         "--silos", "north,east", "--name", "two"]
    )  # fmt: skip
    return folder


def silo(trial, table, name="north"):
    return ["silo", "init", str(trial / name), "--consortium", str(trial / "consortium.toml"),
            "--name", name, "--data", str(table), "--coordinator", "localhost:9443"]  # fmt: skip


def test_from_an_example_to_a_silo_that_is_ready(trial, table):
    assert "coordinator run" in succeed(["deploy", "keys", str(trial)])
    assert "all is there" in succeed(["deploy", "keys", str(trial)])
    assert (trial / "coordinator" / "consortium.toml").exists()
    assert "node.pub" in succeed(silo(trial, table))
    shown = succeed(["silo", "check", str(trial / "north")])
    assert "30 rows, as agreed; nothing was sent" in shown
    assert "never leave" in shown and "ε=2" in shown


def test_what_is_wrong_is_said_before_anything_is_made(trial, table):
    assert "exists already" in fail(
        ["coordinator", "init", str(trial), "--example", str(table), "--target", "y",
         "--silos", "a,b"]
    )  # fmt: skip
    assert "there is no silo 'west'" in fail(silo(trial, table, "west"))
    assert not (trial / "west").exists()
    succeed(silo(trial, table))
    assert "silo's folder already" in fail(silo(trial, table))
    table.write_text(table.read_text().replace("30,0,a,0", "300,0,z,7"))
    shown = fail(["silo", "check", str(trial / "north")])
    assert "3 problems" in shown


def test_commands_say_what_is_missing(trial, table, tmp_path):
    folder = str(tmp_path / "nothing")
    assert "tacit silo init" in fail(["silo", "check", folder])
    assert "wait for its first round" in fail(["coordinator", "status", folder])
    assert "no file" in fail(["coordinator", "run", folder])
    succeed(["deploy", "keys", str(trial)])
    succeed(silo(trial, table))
    wanted = ["--data", str(table), "--out", str(tmp_path / "p.csv")]
    assert "has no model yet" in fail(["silo", "predict", str(trial / "north"), *wanted])
    assert "took part in no run yet" in fail(["silo", "personalise", str(trial / "north")])
    assert "patience 0" in fail(
        ["coordinator", "run", str(trial / "coordinator"), "--patience", "0"]
    )
    keys = trial / "coordinator/keys"
    (keys / "east.pub").write_bytes((keys / "north.pub").read_bytes())
    assert "is the key of north too" in fail(["coordinator", "run", str(trial / "coordinator")])
    (keys / "east.pub").unlink()
    assert "get node.pub from east" in fail(["coordinator", "run", str(trial / "coordinator")])
    agreed = trial / "consortium.toml"
    agreed.write_text(agreed.read_text().replace("epsilon = 2.0", "epsilon = 3.0"))
    assert "says something else than" in fail(["deploy", "keys", str(trial)])
