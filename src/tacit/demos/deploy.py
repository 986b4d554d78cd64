"""`tacit deploy demo`: a coordinator and four hospitals, each a process with a folder of its own.

The hospitals of UCI's heart disease data if TACIT_DATA has them, otherwise made-up ones with the
same columns. All five processes talk over TLS on this machine, and know each other by keys.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tacit.data.folders import VARIABLE, find
from tacit.data.sets.heart import ECG, HOSPITALS, PAIN, hospital_tables
from tacit.deploy.conduct import RESULT, STATUS
from tacit.deploy.events import Spending
from tacit.deploy.flower.trial import Trial
from tacit.deploy.personal import REPORT
from tacit.errors import TacitError
from tacit.files import make_folder
from tacit.privacy import NOT_COVERED
from tacit.secure.jobs.job import COORDINATOR

MADE, NEW = "demo.json", "new-patients.csv"
LOOK, PATIENCE, STUCK = 0.5, 120.0, 180.0
"""Seconds between looks at the run; that a hospital has to answer in, which on a busy machine is
long to start up; and without any step forward until the demo is given up."""
SIZES = dict(zip(HOSPITALS, (303, 294, 123, 200), strict=True))
"""Patients of a stand-in: as many as the hospital has."""
INPUTS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "thalach", "restecg")

MADE_UP = "heart (made-up patients)"
AGREED = """\
# What the hospitals agreed on; every party has this file, and refuses what it does not say.
[consortium]
name = {name}
silos = {silos}

[data]
target = "disease"           # an artery narrowed by half or more
kind = "binary"
labels = ["0", "1"]

[data.columns]               # ranges and scales are what is known of people, not of the tables
age = {{ range = [0, 120], scale = [55, 10] }}
sex = {{ flag = true }}        # 1 for a man
cp = {{ categories = {pain} }}
trestbps = {{ range = [60, 250], scale = [130, 20], gaps = true }}
chol = {{ range = [50, 700], scale = [240, 50], gaps = true }}
fbs = {{ flag = true, gaps = true }}
thalach = {{ range = [40, 250], scale = [140, 25], gaps = true }}
restecg = {{ categories = {ecg}, gaps = true }}

[privacy]                    # every patient is hidden, and not only every hospital
epsilon = 4.0
unit = "row"
persons = 900                # about how many there are in all

[run]
rounds = {rounds}
cohort = 1.0
model = "linear"
"""


def agreed(rounds: int, *, real: bool = True) -> str:
    """The text of consortium.toml; its name, which every page shows, says if data are made up."""
    silos, pain, ecg = (json.dumps(words) for words in (HOSPITALS, PAIN, ECG))
    name = json.dumps("heart" if real else MADE_UP)
    return AGREED.format(name=name, silos=silos, pain=pain, ecg=ecg, rounds=rounds)


def run_demo(out: Path, rounds: int) -> None:
    """Run it, show how far it is, and print what each hospital got and what that cost."""
    if rounds < 1:
        raise TacitError(f"--rounds {rounds}: at least 1 is needed")
    screen, began = Console(), time.monotonic()
    tables, words, real = demo_tables()
    screen.print(f"[bold]{words}[/bold]", soft_wrap=True)
    with _own_folder(out), _ended_politely(), tempfile.TemporaryDirectory() as place:
        files = {}
        for name, table in tables.items():
            files[name] = Path(place) / f"{name}.csv"
            write_table(files[name], table)
        patients = stand_in(5, np.random.default_rng(0), shift=0.0)
        write_table(out / NEW, {name: patients[name] for name in INPUTS})
        with Trial(out, agreed(rounds, real=real), files, patience=PATIENCE) as trial:
            _watch(trial, screen)
        _show(out, trial, screen)
    seconds = time.monotonic() - began
    screen.print(f"Five processes, all stopped; {seconds:.0f} s.", style="dim")


def demo_tables() -> tuple[dict[str, dict[str, np.ndarray]], str, bool]:
    """Tables, what they are in words, and whether they are real: stand-ins if files are missing."""
    try:
        folder = find("heart", None, ("heart",))
    except TacitError:
        rng = np.random.default_rng(0)
        shifts = (-0.2, -0.6, 2.5, 1.0)  # two hospitals see few who are well
        made = zip(SIZES.items(), shifts, strict=True)
        tables = {name: stand_in(count, rng, shift) for (name, count), shift in made}
        where = f"set {VARIABLE} to the folder that holds heart/ for the real ones"
        return tables, f"STAND-IN data, made up here: no patients ({where})", False
    tables = hospital_tables(folder)
    patients = sum(len(table["disease"]) for table in tables.values())
    return tables, f"real data: {patients} patients of four hospitals (UCI heart disease)", True


def stand_in(count: int, rng: np.random.Generator, shift: float) -> dict[str, np.ndarray]:
    """Made-up patients with the columns of the real ones, and gaps where those have them."""
    age = rng.normal(54, 9, count).round().clip(25, 80)
    sex, fbs = ((rng.random(count) < share).astype(float) for share in (0.75, 0.15))
    pain, ecg = (
        rng.choice(4, count, p=[0.1, 0.2, 0.2, 0.5]),
        rng.choice(3, count, p=[0.6, 0.2, 0.2]),
    )
    measured = {
        name: rng.normal(mean, sd, count).round().clip(*span)
        for name, mean, sd, span in (
            ("trestbps", 132, 18, (80, 200)),
            ("chol", 245, 55, (100, 600)),
            ("thalach", 185 - 0.9 * age, 20, (60, 200)),
        )
    }
    score = 0.05 * (age - 54) + 0.8 * (sex - 0.7) + 1.5 * (pain == 3) - 0.7
    score += -0.03 * (measured["thalach"] - 136) + shift
    disease = (rng.random(count) < 1 / (1 + np.exp(-score))).astype(float)
    for column in (*measured.values(), fbs):
        column[rng.random(count) < 0.05] = np.nan
    categories = {"cp": np.array(PAIN, dtype=object)[pain], "restecg": np.array(ECG, object)[ecg]}
    found = {"age": age, "sex": sex, "fbs": fbs, **categories, **measured}
    return {**{name: found[name] for name in INPUTS}, "disease": disease}


def write_table(path: Path, table: Mapping[str, np.ndarray]) -> None:
    """One hospital's CSV; gaps are empty cells."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*(map(_cell, column) for column in table.values()), strict=True))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:g}"
    return "" if value is None else str(value)


@contextlib.contextmanager
def _own_folder(out: Path) -> Iterator[None]:
    """An empty folder, and a note of all that was made in it, so that the next demo may clear it.

    Only what stands in such a note is ever removed: somebody would miss the rest.
    """
    note = out / MADE
    if out.exists() and not out.is_dir():
        raise TacitError(f"{out} is a file: give a folder with --out")
    known = set(json.loads(note.read_text(encoding="utf-8"))) if note.is_file() else set()
    other = next((name for name in _inside(out) if name not in known | {MADE}), None)
    if other is not None:
        raise TacitError(
            f"{out} holds {other}, which no finished demo has made: move it, or give another --out"
        )
    for name in reversed(_inside(out)):  # what is in a folder comes before the folder
        path = out / name
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    make_folder(out)
    note.write_text("[]", encoding="utf-8")
    try:
        yield
    finally:
        note.write_text(json.dumps(_inside(out), indent=1), encoding="utf-8")


def _inside(folder: Path) -> list[str]:
    """All files and folders in it; links are listed, and not followed."""
    found = (Path(place) / name for place, a, b in os.walk(folder) for name in (*a, *b))
    return sorted(str(path.relative_to(folder)) for path in found)


@contextlib.contextmanager
def _ended_politely() -> Iterator[None]:
    """Somebody who ends this process, and not with Ctrl-C, ends the five others too."""

    def leave(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _watch(trial: Trial, screen: Console) -> None:
    """Start all parties, and show how far they are until the last has ended."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    rounds, status = trial.terms.rounds, trial.folder / COORDINATOR / STATUS
    for name in (COORDINATOR, *trial.silos):
        trial.start(name)
        where = f" on 127.0.0.1:{trial.port}" if name == COORDINATOR else ""
        screen.print(f"started {name}{where}, process {trial.processes[name].pid}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=rounds)
        moved, last = time.monotonic(), None
        while waiting := [n for n, p in trial.processes.items() if p.poll() is None]:
            ended = [name for name in trial.processes if name not in waiting]
            if ended:
                trial.wait(*ended)  # complains if one of them failed
            round = _read(status)["round"] if status.exists() else None
            if (round, ended) != last:
                moved, last = time.monotonic(), (round, ended)
            if time.monotonic() - moved > STUCK:
                raise TacitError(
                    f"nothing happened for {STUCK:g} s; see {waiting[0]}/output.txt in "
                    f"{trial.folder} for why"
                )
            said = "waiting for all to connect" if round is None else f"round {round} of {rounds}"
            if round == rounds:
                said = "each hospital makes its own model"
            bars.update(bar, completed=round or 0, description=said)
            time.sleep(LOOK)
        trial.wait()


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _show(out: Path, trial: Trial, screen: Console) -> None:
    """What there is now, and where."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("hospital")
    for column in ("rows", "accuracy\nalone", "\ntogether", "log loss\nalone", "\ntogether"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("spent,\nits log says", no_wrap=True)
    for name in trial.silos:
        report = _read(out / name / REPORT)
        both = report["alone"], report["personal"]
        right = (f"{100 * scores['accuracy']:.1f} %" for scores in both)
        loss = (f"{scores['loss']:.3f}" for scores in both)
        table.add_row(name, str(report["rows"]), *right, *loss, _spent(report["spent"]))
    screen.print(table)
    screen.print(
        "Personal models on each hospital's own test rows, and models trained on its own rows "
        "alone. The demo read rows and scores in the four folders on this machine; no hospital "
        f"sent them to anybody, and they are {NOT_COVERED}. Each row is a patient, and "
        "each patient is hidden from everybody outside the hospital; with so few to test on, a "
        "small difference either way is mostly chance.",
        style="dim",
    )
    guarantee = _read(out / COORDINATOR / RESULT)["guarantee"]["in_words"]
    rows = [("Guarantee", guarantee), (COORDINATOR, f"{out / COORDINATOR}: billboard, log.txt")]
    rows += [(name, f"{out / name}: report.html, model/, log.txt") for name in trial.silos]
    first, new, last = (shlex.quote(str(out / name)) for name in (trial.silos[0], NEW, COORDINATOR))
    rows += [
        ("Next", f"tacit silo predict {first} --data {new} --out predictions.csv"),
        ("", f"tacit coordinator status {last}"),
    ]
    for what, words in rows:
        screen.print(f"[bold]{what:<12}[/bold]{words}", soft_wrap=True, highlight=False)


def _spent(found: Mapping[str, Any] | None) -> str:
    """What a silo's own account has; neighbours and δ are in the guarantee."""
    if found is None:
        return "nothing"
    fields = {name: value for name, value in found.items() if name != "in_words"}
    return Spending(**fields).short
