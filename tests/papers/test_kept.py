"""Runs that are kept beside the code are found again, whatever settings methods gain."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from papers.common.cells import ADDED, deciding
from papers.common.request import PageRequest
from papers.fedmtl.contenders import SHOWN
from papers.fedmtl.context import FedMTLContext
from papers.fedmtl.grid import FedMTLGrid
from papers.pmtl.experiments import GRIDS
from papers.pmtl.grid import digest, planned
from tacit.methods import PMTL

PAPERS = Path(__file__).parents[2] / "papers"


def test_kept_runs_of_fedmtl_are_those_that_pages_ask_for():
    request = PageRequest("fedmtl/table3", None, PAPERS / "fedmtl", 3, pages=True)
    grid = FedMTLGrid(request, torch.device("cpu"))
    context = FedMTLContext(grid, ("lfwa", "facea", "nyud2"), range(3))
    for key in context.sets:
        found = {name: context.score(key, name) for name in SHOWN[key]}
        assert all(score is not None and score.seeds == 3 for score in found.values()), found


def test_kept_runs_of_pmtl_are_those_that_pages_ask_for():
    with (PAPERS / "pmtl" / "cells.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == "writers"]

    class Writers:
        """As large as the data set that was run; its rows do not matter here."""

        train = SimpleNamespace(y=range(36014))
        test = SimpleNamespace(y=range(11993))
        outputs = 10

        def __len__(self) -> int:
            return 539

    data = SimpleNamespace(key="writers", version="stand-in", federation=Writers())
    kept = {(row["method"], float(row["epsilon"]), row["settings"]) for row in rows}
    for cell in [
        *GRIDS["pmtl/figure3"].trainings(1, False),
        *GRIDS["pmtl/table1"].trainings(1, False),
    ]:
        plan: Any = planned(data, cell)  # type: ignore[arg-type]
        name = digest(data, plan, cell.method)  # type: ignore[arg-type]
        assert (cell.method, cell.epsilon, name) in kept


def test_a_setting_that_was_added_counts_where_it_changes_something():
    assert not set(ADDED) & set(deciding(PMTL()))
    assert deciding(PMTL(steepest=1.0))["steepest"] == 1.0
    assert deciding(PMTL(units="common"))["units"] == "common"
