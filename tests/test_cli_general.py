"""The command line apart from its commands: version, completion, help, words that were typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files

import pytest

import tacit
from tacit.experiment.toml import make_method
from tacit.methods import METHODS
from tests.test_cli import arguments, fail, succeed, table  # noqa: F401


def test_the_version_by_both_ways_in():
    assert succeed(["--version"]) == f"tacit {tacit.__version__}\n"
    asked = [sys.executable, "-m", "tacit", "--version"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert found.stdout == f"tacit {tacit.__version__}\n"


@pytest.mark.parametrize(
    ("words", "offered"), [("tacit pre", "predict"), ("tacit train --eps", "--epsilon")]
)
def test_shells_complete_commands_and_their_options(words, offered):
    """The options of a command are in a module that is not imported before."""
    given = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    found = subprocess.run(
        [sys.executable, "-m", "tacit"],
        env=os.environ | given | {"_TACIT_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
    )
    assert found.stdout.split() == [offered]


def test_type_checkers_are_told_that_there_are_types():
    assert (files("tacit") / "py.typed").is_file()


def test_help_shows_what_tune_reads():
    shown = " ".join(succeed(["tune", "--help"]).split())
    for part in ("with a [tune] table", "lr = [0.01, 0.03, 0.1]", "{low = 0.1, high = 2.0}"):
        assert part in shown, part


@pytest.mark.parametrize("word", ["none", "null"])
def test_none_can_be_typed(table, tmp_path, word):  # noqa: F811
    """Over a file that gives a number; `none` stays a word where a word is meant."""
    file = tmp_path / "e.toml"
    data = f'[data]\nfrom = "{table}"\ntask = "hospital"\ntarget = "outcome"\n'
    file.write_text(f'{data}[method]\nname = "pmtl"\nbatch = 4\n[run]\nrounds = 1\n')
    more = ["--set", f"batch={word}", "--option", "scale=none"]
    out = ["--out", str(tmp_path / "run"), "--no-baselines", "--personalise", "none"]
    assert "min_rows is 'none', expected a whole number" in fail(
        ["train", str(file), "--option", "min_rows=none", *out]
    )
    assert "drop=None must be a list" in fail(["train", str(file), "--option", "drop=null", *out])
    result = json.loads(succeed(["train", str(file), *more, *out, "--json"]))
    assert result["config"]["batch"] is None
    assert result["config"]["data"]["scale"] == "none"
    assert make_method("pmtl", {"batch": "none"}).rows is None  # in TOML


def test_errors_name_a_method_as_it_was_typed(table, tmp_path):  # noqa: F811
    words = arguments(table, tmp_path / "run", method="prior")
    assert fail([*words, "--set", "mean=2"]).startswith("prior, mean=2: mean must")
    for name, kind in METHODS.items():
        assert kind().called.lower().startswith(name)


def test_a_run_is_resumed_and_attacked_from_another_folder(
    table,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    """The table was named as seen from where the run began."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    words = arguments(table.name, "run", rounds=1, seed=None)
    succeed([*words, "--no-baselines", "--quiet"])
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    monkeypatch.chdir(tmp_path / "elsewhere")
    shown = succeed(["train", "--resume", "../run", "--quiet"])
    assert os.path.samefile(shown.strip(), tmp_path / "run" / "result.json")
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before
    assert not list((tmp_path / "elsewhere").iterdir())
    assert os.getcwd() == str(tmp_path / "elsewhere")
    found = json.loads(succeed(["audit", "../run", "--many-runs", "50", "--json"]))
    assert found["promised"] and (tmp_path / "run" / "audit.json").is_file()
    # Results are handed around, and say nothing about the machine.
    assert str(tmp_path) not in (tmp_path / "run" / "result.json").read_text()
