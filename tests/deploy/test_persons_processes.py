"""Persons as the unit of privacy, every party a process: the models of a simulation in the end."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tacit
from tacit.deploy.flower.trial import Trial
from tacit.deploy.site import AGREED, Site
from tacit.deploy.table import own_rows
from tacit.secure.jobs.job import COORDINATOR
from tacit.secure.jobs.summing import SeededSum, SumJob
from tacit.secure.net.local import LocalServers
from tacit.secure.net.memory import keep_secret
from tests.deploy.direct import personal

SILOS = ("north", "east", "south")
FILE = """
[consortium]
name = "persons"
silos = ["north", "east", "south"]
[data]
target = "y"
kind = "binary"
labels = ["0", "1"]
[data.columns]
age = {{ range = [0, 120], scale = {scale}, gaps = true }}
dose = {{ range = [-10, 10], scale = [0, 1] }}
[method]
name = "{method}"
[privacy]
epsilon = 6.0
unit = "person"
persons = 60
{noise}
[run]
rounds = {rounds}
cohort = {cohort}
{seed}
{curator}
"""
USUAL = {"scale": "[50, 12]", "noise": "", "cohort": 1.0, "seed": "seed = 5", "curator": ""}
BY_TASK = 'noise_by = "task"'


def tables_in(folder: Path) -> dict[str, Path]:
    """Two rows for each person."""
    draw, tables = np.random.default_rng(0), {}
    for silo in SILOS:
        age, dose = draw.normal(50, 12, 48).clip(0, 120), draw.normal(size=48)
        y = (age - 50) / 12 + dose + draw.normal(size=48) > 0
        rows = [
            f"{silo}-{k // 2},{f'{age[k]:.3f}' if k % 7 else ''},{dose[k]:.4f},{int(y[k])}"
            for k in range(48)
        ]
        tables[silo] = folder / f"{silo}.csv"
        tables[silo].write_text("\n".join(["patient,age,dose,y", *rows]), encoding="utf-8")
    return tables


def simulated(trial: Trial, tables: dict[str, Path], **settings) -> tacit.Run:
    """The run that was agreed on, on one machine that has all rows."""
    terms = trial.terms
    rows = {k: own_rows(terms, silo, tables[silo], "patient") for k, silo in enumerate(SILOS)}
    # Constants of columns are the same everywhere: they were agreed.
    federation = replace(terms.federation(rows), preprocessing=rows[0].preprocessing)
    return tacit.train(
        federation,
        terms.make_method(),
        model=terms.model,
        rounds=terms.rounds,
        cohort=terms.cohort,
        privacy=terms.make_privacy(),
        personalise="none",
        baselines=False,
        **settings,
    )


def left(trial: Trial) -> torch.Tensor:
    """What the method left at every silo, before its own last step."""
    return torch.stack([personal(Site.open(trial.folder / silo).silo) for silo in SILOS])


def booked(folder: Path) -> list[dict]:
    lines = (folder / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"method": "mixed", "rounds": 9, "scale": '"found"'},  # four of them find the unit of age
        {"method": "fedavg", "rounds": 4, "cohort": 0.6, "noise": BY_TASK},
    ],
    ids=["mixed", "fedavg"],
)
def test_silos_that_are_processes_end_like_the_simulation(given, tmp_path):
    tables = tables_in(tmp_path)
    text, person = FILE.format(**USUAL | given), {"person": "patient"}
    with Trial(tmp_path / "trial", text, tables, silo=person) as trial:
        trial.start()
        trial.wait(seconds=200)
    run = simulated(trial, tables, seed=5)
    expected = run.models(torch.arange(len(SILOS)))[0]
    assert torch.allclose(left(trial), expected, atol=2e-5) and expected.abs().max() > 0.05
    assert len(booked(trial.folder / COORDINATOR)) == given["rounds"]
    found = json.loads((trial.folder / COORDINATOR / "result.json").read_text(encoding="utf-8"))
    assert found["guarantee"]["epsilon"] == pytest.approx(run.guarantee.epsilon, rel=1e-6)
    assert found["guarantee"]["unit"] == "person"


@pytest.mark.slow
def test_silos_and_servers_that_are_processes_end_like_the_simulation(tmp_path, monkeypatch):
    """With all the noise of the promise. No seed decides what servers add, so the simulation is
    given theirs: it follows from their secrets and from the job of each round."""
    tables = tables_in(tmp_path)
    given = {"method": "mixed", "rounds": 9, "scale": '"found"', "seed": ""}
    text = FILE.format(**USUAL | given | {"curator": "[curator]\nservers = 3"})
    (tmp_path / AGREED).write_text(text, encoding="utf-8")
    command = (sys.executable, "-m", "tacit.cli", "server", "--consortium", str(tmp_path / AGREED))
    with LocalServers(3, SILOS, patience=60, command=command) as servers:
        person = {"person": "patient"}
        with Trial(tmp_path / "trial", text, tables, silo=person, servers=servers) as trial:
            trial.start()
            trial.wait(seconds=200)
        secrets = [keep_secret(servers.folder, f"server-{k}") for k in range(3)]
    releases = booked(trial.folder / COORDINATOR)
    jobs = {release["round"]: release["job"] for release in releases}
    assert len(jobs) == len(releases) == 9

    def drawn(self, index, secret=b""):
        job = SimpleNamespace(digest=jobs[self.round], size=self.size)
        return SumJob.normal(job, index, secrets[index])  # pyright: ignore

    monkeypatch.setattr(SeededSum, "normal", drawn)
    key = json.loads((trial.folder / COORDINATOR / "run.json").read_text(encoding="utf-8"))["key"]
    run = simulated(trial, tables, seed=key, curator=tacit.Secure(servers=3))
    expected = run.models(torch.arange(len(SILOS)))[0]
    assert torch.allclose(left(trial), expected, atol=2e-5) and expected.abs().max() > 0.05
    for silo in SILOS:
        log = (trial.folder / silo / "log.txt").read_text(encoding="utf-8")
        assert log.count("handed to 3 servers as shares") == 9
