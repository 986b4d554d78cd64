"""The command line as people use it: files in, files out, one sentence when something is wrong."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli import app, main
from tacit.errors import TacitError
from tests import sabotages

runner = CliRunner()


@pytest.fixture
def table(tmp_path):
    generator = np.random.default_rng(0)
    path = tmp_path / "patients.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hospital", "age", "sex", "outcome"])
        for row in range(300):
            age, sex = generator.integers(20, 90), generator.choice(["f", "m"])
            outcome = int(age + 20 * (sex == "m") + 10 * generator.normal() > 65)
            writer.writerow([f"h{row % 12}", age, sex, outcome])
    return path


def arguments(table, out, **more):
    settings = {
        "data": table, "task": "hospital", "target": "outcome", "method": "pmtl", "epsilon": 2,
        "delta": 0.001, "rounds": 5, "cohort": 0.5, "seed": 0, "personalise": "none", "out": out,
    } | more  # fmt: skip
    return ["train"] + [
        part
        for key, value in settings.items()
        if value is not None
        for part in (f"--{key.replace('_', '-')}", str(value))
    ]


def succeed(words: list[str]) -> str:
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def fail(words: list[str]) -> str:
    result = runner.invoke(app, words)
    assert isinstance(result.exception, TacitError), result.output
    return str(result.exception)


def test_train_writes_everything_and_predict_uses_it(table, tmp_path):
    out = tmp_path / "run"
    shown = succeed(arguments(table, out))
    assert "Reproducible, not private" in shown
    result = json.loads((out / "result.json").read_text())
    assert result["guarantee"]["epsilon"] <= 2
    assert len(result["metrics"]["per_task"]) == 12
    assert result["config"]["data"]["task"] == "hospital"
    assert (out / "report.html").exists()
    predictions = tmp_path / "predictions.csv"
    succeed(["predict", str(out), "--data", str(table), "--out", str(predictions)])
    rows = list(csv.DictReader(predictions.read_text().splitlines()))
    assert len(rows) == 300
    assert {row["hospital"] for row in rows} == {f"h{k}" for k in range(12)}
    assert all(0 <= float(row["probability of 1"]) <= 1 for row in rows)


def test_json_and_quiet_print_nothing_else(table, tmp_path):
    as_json = json.loads(succeed([*arguments(table, tmp_path / "a"), "--json"]))
    assert as_json["guarantee"]["releases"] == 5
    quiet = succeed([*arguments(table, tmp_path / "b"), "--quiet"])
    assert quiet.split() == [str(tmp_path / "b" / "result.json")]


def test_a_file_and_flags_together(table, tmp_path):
    config = tmp_path / "experiment.toml"
    config.write_text(
        f'[data]\nfrom = "{table}"\ntask = "hospital"\ntarget = "outcome"\n'
        '[method]\nname = "pmtl"\npull = 0.3\n[privacy]\nepsilon = 2.0\n'
        '[publishing]\nrule = "momentum"\nlr = 0.5\n'
        '[run]\nrounds = 4\nseed = 0\nbaselines = false\npersonalise = "none"\n'
    )
    out = tmp_path / "run"
    succeed(
        ["train", str(config), "--rounds", "3", "--out", str(out), "--set", "halve_every=2",
         "--publishing", "lr=0.25", "--publishing", "average=2", "--option", "validation=0.1"]
    )  # fmt: skip
    result = json.loads((out / "result.json").read_text())
    assert result["config"]["pull"] == 0.3
    assert result["config"]["rounds"] == 3
    assert result["config"]["halve_every"] == 2
    assert result["metrics"]["baselines"] == {}
    publishing = result["config"]["publishing"]
    assert (publishing["rule"], publishing["lr"], publishing["average"]) == ("momentum", 0.25, 2)
    assert result["config"]["personalise"] == "none"
    assert result["config"]["data"]["validation"] == 0.1
    assert result["federation"]["rows"]["validation"] < 40


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "hospitel"}, "did you mean 'hospital'"),
        ({"target": "x"}, "column 'x'"),
        ({"data": "nowhere.csv"}, "nowhere.csv"),
        ({"data": "exams"}, "did you mean 'exam'"),
        ({"method": "pmlt"}, "did you mean 'pmtl'"),
        ({"method": "fedavg", "pull": 1.0}, "has no setting 'pull'"),
        ({"set": "clipp=3"}, "did you mean 'clip'"),
        ({"set": "clip=wide"}, "must be a number"),
        ({"set": "local_steps=2.5"}, "whole number"),
        ({"set": "clip"}, "write name=value"),
        ({"epsilon": -1}, "epsilon"),
        ({"noise": 3.0}, "one of the two"),
        ({"sampling": "some"}, "sampling"),
        ({"neighbours": "near"}, "neighbours"),
        ({"cohort": 50}, "only 12 tasks"),
        ({"min_rows": 1000}, "1000"),
        ({"model": "cnn"}, "needs square images"),
        ({"kind": "shape"}, "kind"),
        ({"store": "cloud"}, "store"),
        ({"personalise": "bets"}, "personalise"),
        ({"personalise": "mean", "option": "validation=0"}, "--personalise none"),
        ({"publishing": "rul=adam"}, "did you mean 'rule'"),
        ({"publishing": "rule=sgd"}, "one of add, momentum, adam"),
        ({"publishing": "lr=fast"}, "must be a number"),
        ({"publishing": "lr"}, "--publishing lr: write name=value"),
        ({"option": "validtion=0.1"}, "did you mean 'validation'"),
        ({"relation": "nowhere.csv"}, "use method related"),
        ({"method": "related"}, "needs to know how tasks are related"),
        ({"method": "related", "relation": "nowhere.csv"}, "nowhere.csv does not exist"),
    ],
)
def test_mistakes_get_one_sentence_before_work_starts(table, tmp_path, changes, words):
    started = time.monotonic()
    sentence = fail(arguments(table, tmp_path / "run", **changes))
    assert words in sentence
    assert "\n" not in sentence.strip()
    assert time.monotonic() - started < 20


def test_a_relation_from_a_file_is_said_to_be_public_and_belongs_to_the_run(table, tmp_path):
    file, out = tmp_path / "areas.csv", tmp_path / "run"
    lines = [f"h{k},{'north' if k < 6 else 'south'}" for k in range(12)]
    file.write_text("task,cluster\n" + "\n".join(lines) + "\n")
    words = [*arguments(table, out, method="related", relation=file), "--no-baselines", "--quiet"]
    succeed(words)
    result = json.loads((out / "result.json").read_text())
    assert result["config"]["method"] == "related"
    assert "2 clusters" in " ".join(result["guarantee"]["assumptions"])
    file.write_text("task,cluster\n" + "\n".join(lines).replace("north", "south", 1) + "\n")
    assert "started with other data" in fail(["train", "--resume", str(out)])


def test_the_last_step_is_shown_and_kept(table, tmp_path):
    out = tmp_path / "run"
    shown = succeed([*arguments(table, out, personalise="vanilla"), "--no-baselines"])
    assert "ended with (not covered by the guarantee)" in shown
    result = json.loads((out / "result.json").read_text())
    assert result["config"]["personalise"] == "vanilla"
    assert sum(result["metrics"]["personal_models"]["counts"].values()) == 12
    assert json.loads((out / "config.json").read_text())["run"]["personalise"] == "vanilla"
    assert "What the tasks ended with" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data\n", "cannot be read"),
        ("[run]\nrounds = 3\n", "no data"),
        ('[data]\nfrom = "exam"\n[run]\nround = 3\n', "did you mean 'rounds'"),
        ('[data]\nfrom = "exam"\n[run]\nrounds = "many"\n', "run.rounds"),
        ('[data]\nfrom = "exam"\n[privcy]\nepsilon = 3\n', "did you mean 'privacy'"),
        ('[data]\nfrom = "exam"\n[publishing]\nmoment = 0.5\n', "did you mean 'momentum'"),
        ('[data]\nfrom = "exam"\n[run]\npersonalise = "all"\n', "run.personalise"),
        ('[data]\nfrom = "exam"\nrelation = 3\n', "data.relation"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, text, words):
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    assert words in fail(["train", str(path)])


def test_a_bad_call_ends_with_a_sentence_and_not_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tacit", "train", "--data", "nothing.csv", "--task", "a"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("tacit: ")
    assert "Traceback" not in shown


def test_account_in_both_directions_and_equal_to_the_library():
    words = ["account", "--noise", "10", "--rate", "0.49", "--rounds", "1000", "--delta", "0.005"]
    assert "ε=4.6" in succeed(words)
    there = json.loads(succeed([*words, "--json"]))
    assert there["neighbours"] == "add-remove"
    back = json.loads(
        succeed(
            ["account", "--epsilon", str(there["epsilon"]), "--rate", "0.49", "--rounds", "1000",
             "--delta", "0.005", "--json"]
        )
    )  # fmt: skip
    assert back["noise_multiplier"] == pytest.approx(10, rel=2e-3)
    assert "give --delta" in fail(["account", "--noise", "10", "--rounds", "5"])


def test_an_old_flag_still_works_and_is_not_shown(table, tmp_path):
    words = [*arguments(table, tmp_path / "a"), "--server", "lr=fast"]
    with pytest.warns(FutureWarning, match="server is called publishing now"):
        assert "publishing: lr" in fail(words)
    shown = succeed(["train", "--help"])
    assert "--publishing" in shown and "--server " not in shown


def test_account_in_turn_pays_for_the_rounds_of_a_task_and_has_no_amplified_figure():
    words = ["account", "--noise", "10", "--rounds", "50", "--rate", "0.1", "--delta", "0.001"]
    assert "need --tasks" in fail([*words, "--sampling", "in-turn"])
    words += ["--tasks", "40", "--json", "--sampling"]
    turns = json.loads(succeed([*words, "in-turn"]))
    assert turns["sampling"] == "4 of 40 tasks in turn"
    assert turns["releases"] == 50
    same = ["account", "--noise", "10", "--rounds", "5", "--delta", "0.001", "--json"]
    assert turns["epsilon"] == json.loads(succeed([*same, "--sampling", "everyone"]))["epsilon"]
    assert "'in-turn'" in fail([*words, "fixed-size"])


def test_a_package_that_is_not_installed_is_named_in_one_sentence():
    code = "import sys, tacit.cli; sys.modules['cryptography'] = None; tacit.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "certificates", "."], capture_output=True, text=True
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "this needs cryptography: pip install 'tacit[secure]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"), [("methods --json", 0), ("account --noise 1 --rounds 10", 2)]
)
def test_a_process_leaves_at_once_with_all_said_and_its_code(words, code):
    done = subprocess.run([sys.executable, "-m", "tacit", *words.split()], capture_output=True)
    assert done.returncode == code and "Traceback" not in done.stderr.decode()
    assert json.loads(done.stdout) if code == 0 else done.stderr.startswith(b"tacit: ")


def test_whoever_stops_reading_gets_no_traceback():
    process = subprocess.Popen(
        [sys.executable, "-m", "tacit", "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert b"Traceback" not in process.communicate()[1]


@pytest.mark.parametrize(
    "words",
    ["--help", "train --help", "forecast --help", "account --noise 1 --rounds 10 --tasks 100"],
)
def test_what_is_only_arithmetic_does_not_wait_for_torch(words):
    code = "import sys, tacit.cli\ntry: tacit.cli.app()\nfinally: sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words.split()], capture_output=True)
    assert done.returncode == 0 and done.stdout


def test_methods_data_and_compare(table, tmp_path):
    assert {"pmtl", "fedavg", "local"} <= set(json.loads(succeed(["methods", "--json"])))
    assert "pull=1.0" in succeed(["methods"]).replace("\n", " ").replace("│", "")
    names = {source["name"] for source in json.loads(succeed(["data", "--json"]))}
    assert {"exam", "star", "hsb82", "verbagg", "digits", "low-rank"} <= names
    described = json.loads(
        succeed(["data", str(table), "--task", "hospital", "--target", "outcome", "--json"])
    )
    assert described["tasks"] == 12
    assert described["target"] == "binary"
    few = json.loads(succeed(["data", "digits", "--option", "writers=7", "--json"]))
    assert few["tasks"] == 7
    assert "takes no option 'riters'" in fail(["data", "digits", "--option", "riters=7"])
    shown = succeed(["data", "low-rank", "--option", "features=30", "--option", "tasks=4"])
    assert "30: " in shown and "…" in shown
    assert len(shown) < 2000
    for name, noise in (("one", 6), ("two", 1)):
        private = {"epsilon": None, "noise": noise}
        succeed([*arguments(table, tmp_path / name, **private), "--no-baselines", "--quiet"])
    page = tmp_path / "compare.html"
    shown = succeed(["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(page)])
    assert "pmtl" in shown
    assert page.stat().st_size > 5_000
    assert "holds no result.json" in fail(["compare", str(tmp_path)])


@pytest.mark.slow
def test_kill_and_resume_from_the_command_line(table, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    private = {"epsilon": None, "noise": 4}
    command = [sys.executable, "-m", "tacit.cli"]
    succeed([*arguments(table, whole, rounds=60, **private), "--no-baselines"])
    process = subprocess.Popen(
        [*command, *arguments(table, cut, rounds=60, **private), "--no-baselines", "--quiet"]
    )
    deadline = time.monotonic() + 120
    while not (cut / "ledger.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (cut / "result.json").exists()
    assert "leave the others out" in fail(["train", "--resume", str(cut), "--rounds", "9"])
    succeed(["train", "--resume", str(cut), "--quiet"])
    for file in ("personal.safetensors", "billboard.safetensors"):
        assert (cut / "models" / file).read_bytes() == (whole / "models" / file).read_bytes()
    assert (cut / "ledger.jsonl").read_text() == (whole / "ledger.jsonl").read_text()


def test_a_schema_is_written_corrected_and_given(table, tmp_path):
    path = tmp_path / "schema.json"
    words = ["data", str(table), "--task", "hospital", "--target", "outcome"]
    shown = succeed([*words, "--write-schema", str(path)])
    assert "derived from all rows" in " ".join(shown.split()).replace("│ │ │", "")
    assert "exists" in fail([*words, "--write-schema", str(path)])
    written = json.loads(path.read_text())
    assert (written["kind"], len(written["tasks"])) == ("binary", 12)
    written["tasks"].remove("h3")
    written["columns"][0]["scale"] = [55, 20]
    path.write_text(json.dumps(written))

    given = arguments(table, tmp_path / "run", task=None, target=None, schema=path)
    succeed([*given, "--quiet"])
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["federation"]["tasks"] == 11 and "h3" not in result["metrics"]["per_task"]
    said = result["guarantee"]["assumptions"]
    assert sum("schema" in sentence for sentence in said) == 2
    assert not any("inferred" in s or "hold only two codes" in s for s in said)
    new = tmp_path / "new.csv"
    new.write_text("hospital,age,sex\nh1,40,x\n")  # x: a category that nobody listed
    succeed(["predict", str(tmp_path / "run"), "--data", str(new), "--out", str(tmp_path / "p")])

    config = tmp_path / "experiment.toml"
    config.write_text(
        f'[data]\nfrom = "{table}"\nschema = "{path}"\n[method]\nname = "pmtl"\n'
        "[privacy]\nepsilon = 2.0\n[tune]\nruns = 1\nlr = [0.1]\n"
        '[run]\nrounds = 2\nseed = 0\nbaselines = false\npersonalise = "none"\n'
    )
    result = json.loads(succeed(["train", str(config), "--out", str(tmp_path / "b"), "--json"]))
    assert result["federation"]["tasks"] == 11
    config.write_text(config.read_text().replace(f'schema = "{path}"\n', ""))
    words = ["tune", str(config), "--schema", str(path), "--out", str(tmp_path / "c"), "--json"]
    assert json.loads(succeed(words))["federation"]["tasks"] == 11

    assert "no schema to write" in fail(["data", "digits", "--write-schema", str(tmp_path / "d")])
    assert "needs a table" in fail(["data", "--write-schema", str(tmp_path / "d")])
    assert not (tmp_path / "d").exists()
    assert "or a schema (--schema)" in fail(["train", "--data", str(table)])


def test_what_is_counted_over_tasks_is_labelled_where_it_is_written(table, tmp_path):
    label = "not covered by the guarantee"
    words = ["data", str(table), "--task", "hospital", "--target", "outcome", "--min-rows", "3"]
    facts = json.loads(succeed([*words, "--json"]))
    assert facts["rows_label"] == label
    lines = [line for line in succeed(words).splitlines() if " rows " in line]
    assert len(lines) >= 2 and all(label[:10] in line for line in lines if "rows of" in line)
    assert f"{facts['training rows']}: {label}" in succeed(words)
    out = tmp_path / "run"
    succeed([*arguments(table, out, min_rows=3, personalise="best"), "--quiet"])
    result = json.loads((out / "result.json").read_text())
    assert result["federation"]["rows_label"] == result["timing_label"] == label
    assert result["metrics"]["label"] == result["curve_label"] == result["exchange_label"] == label
    short = json.loads(succeed(["compare", str(out), "--json"]))[str(out)]
    assert short["label"] == short["timing_label"] == label
    for old in ("timing_label", "exchange_label", "curve_label"):  # as earlier versions wrote it
        del result[old]
    del result["federation"]["rows_label"]
    (out / "result.json").write_text(json.dumps(result))
    assert json.loads(succeed(["compare", str(out), "--json"]))[str(out)]["timing_label"] == label
    succeed(["compare", str(out), "--out", str(tmp_path / "c.html")])


def experiment(tmp_path, table, out=None):
    path = tmp_path / "experiment.toml"
    place = f'out = "{out}"' if out else ""
    path.write_text(
        f"""
        [data]
        from = "{table}"
        task = "hospital"
        target = "outcome"
        [method]
        name = "fedavg"
        [privacy]
        epsilon = 2.0
        delta = 0.001
        [run]
        rounds = 2
        personalise = "none"
        baselines = false
        {place}
        """
    )
    return path


def test_audit_attacks_an_experiment_before_it_is_run(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = experiment(tmp_path, table)
    shown = " ".join(succeed(["audit", str(path), "--many-runs", "300"]).split())
    assert "Promised ε=2.00 at δ=0.001, any one task added or removed" in shown
    assert "not refuted: the attack proves ε ≥ " in shown
    assert "the observer is all other tasks together" in shown
    assert not (tmp_path / "runs").exists()
    words = ["audit", str(path), "--epsilon", "4", "--seed", "1", "--many-runs", "300", "--json"]
    found = json.loads(succeed(words))
    assert 3.9 < found["promised"]["epsilon"] <= 4
    assert found["tries"] == {"runs": 300, "releases": 600}
    assert found["confidence"] == 0.95


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "a" + ".a" * 50_000 + " = 1"])
def test_deeply_nested_settings_are_a_sentence(tmp_path, text):
    path = tmp_path / "deep.toml"
    path.write_text(text)
    assert "cannot be read" in fail(["train", str(path)])


def test_audit_of_a_run_reads_its_books_and_goes_into_its_report(table, tmp_path):
    out = tmp_path / "run"
    succeed(["train", str(experiment(tmp_path, table, out))])
    before = (out / "report.html").read_text()
    assert "Attacked" not in before
    succeed(["audit", str(out), "--many-runs", "300"])
    succeed(["audit", str(out), "--one-run", "--canaries", "30"])
    kept = json.loads((out / "audit.json").read_text())
    assert kept.keys() == {"many runs", "one run"}
    promised = json.loads((out / "result.json").read_text())["guarantee"]["epsilon"]
    assert kept["many runs"]["promised"]["epsilon"] == promised
    after = (out / "report.html").read_text()
    assert "<h2>Attacked</h2>" in after
    assert kept["many runs"]["verdict"][1:] in after
    assert "30 canaries" in after
    assert "leave the others out" in fail(["audit", str(out), "--epsilon", "3"])
    (out / "ledger.jsonl").unlink()
    assert "holds 0 releases, but 2 were made" in fail(["audit", str(out)])


def test_audit_exits_with_one_where_the_promise_is_refuted(table, tmp_path):
    """A table with a row more at its top: with a split by position, everybody moves."""
    lines = table.read_text().splitlines()
    more = tmp_path / "more.csv"
    more.write_text("\n".join([lines[0], "h0,50,f,1", *lines[1:]]))
    words = ["audit", str(experiment(tmp_path, table)), "--neighbour", str(more), "--clip", "0.01"]
    with sabotages.the_old_split():
        result = runner.invoke(app, [*words, "--many-runs", "50"])
    assert result.exit_code == 1, result.output
    shown = " ".join(result.stdout.split())
    assert "REFUTED: " in shown
    assert "other tasks' contributions moved by" in shown
    assert "cannot prove one" not in shown


def test_audit_takes_a_neighbour_of_rows(table, tmp_path):
    """Where rows are hidden, both tables are prepared for that."""
    lines = table.read_text().splitlines()
    more = tmp_path / "more.csv"
    more.write_text("\n".join([lines[0], "h0,51,f,1", *lines[1:]]))
    words = ["audit", "--data", str(table), "--task", "hospital", "--target", "outcome"]
    words += ["--unit", "row", "--persons", "300", "--epsilon", "2", "--neighbour", str(more)]
    found = json.loads(succeed([*words, "--many-runs", "50", "--seed", "0", "--json"]))
    assert found["promised"]["unit"] == "row"
    assert found["tries"]["others_changed"] == 0
    assert 0 < found["tries"]["sum_moved"] <= 1


def test_audit_takes_the_options_of_train(table):
    options = succeed(["audit", "--help"]) + succeed(["train", "--help"])
    assert options.count("--clip") == options.count("--neighbours") == 2
    assert "no data" in fail(["audit"])
    assert "promises no ε" in fail(
        ["audit", "--data", str(table), "--task", "hospital", "--target", "outcome"]
    )


@pytest.mark.parametrize(
    ("noise_by", "words"),
    [("curator", "sees each task's sum over its bounded rows"), ("task", "noisy sums")],
)
def test_a_run_says_whom_one_has_to_trust(table, tmp_path, noise_by, words):
    hidden = {"unit": "row", "persons": 300, "noise_by": noise_by, "cohort": None}
    shown = succeed(arguments(table, tmp_path / "run", method="mixed", rounds=None, **hidden))
    assert words in next(line for line in shown.splitlines() if line.startswith("Trust"))
