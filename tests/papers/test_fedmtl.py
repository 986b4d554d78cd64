"""FedMTL's table and figures: runs are kept, pages come from files, bars are computed right."""

from __future__ import annotations

import csv
import dataclasses
import math

import numpy as np
import pytest
import torch

from papers import EXPERIMENTS, reproduce
from papers.__main__ import main
from papers.common.cells import CellFile
from papers.common.request import PageRequest
from papers.fedmtl import contenders, curves, groups, plots, remarks, sets, shares, table3
from papers.fedmtl.contenders import CONTENDERS
from papers.fedmtl.context import FedMTLContext
from papers.fedmtl.evidence import guard_jobs
from papers.fedmtl.fits import FedMTLBench
from papers.fedmtl.grid import FedMTLCell, FedMTLGrid, Point
from papers.fedmtl.positional import by_position
from papers.fedmtl.run import FIGURES
from papers.fedmtl.sets import CHOOSING, FULL, grouped, plan_of
from tacit.data.deal import Dealing
from tacit.errors import TacitError
from tacit.models import linear
from tacit.secure.net.local import LocalServers

FEW = ("fedmtl-ours", "fedmtl", "fedavg", "fedavg-position", "local")


def quiet(_: str) -> None:
    pass


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A data folder with a small archive in the place of the stand-in for LFWA."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "lfw_pseudo_attr").mkdir()
    rng = np.random.default_rng(0)
    np.savez(
        folder / "lfw_pseudo_attr" / "lfw_9000_32x32_facer40.npz",
        x=rng.integers(0, 256, size=(160, 32, 32, 3), dtype=np.uint8),
        attr_prob=rng.random((160, 40), dtype=np.float32),
        attr_names=np.array([f"a{k}" for k in range(40)]),
    )
    return folder


@pytest.fixture
def tiny(monkeypatch):
    """Five methods, three variants, linear models."""
    for key in ("lfwa", "facea"):
        monkeypatch.setitem(contenders.SHOWN, key, FEW)
    for name in list(contenders.ABLATIONS):
        if name not in ("FedMTL", "FedMTL-X", "FedMTL-E"):
            monkeypatch.delitem(contenders.ABLATIONS, name)
    monkeypatch.setitem(sets.NETWORKS, "mlp", linear)
    monkeypatch.setattr(plots, "ablation_styles", lambda names: {
        name: ("black", "o", "-") for name in names})  # fmt: skip


def context(out, seeds=2, keys=("lfwa",), reduced=False) -> FedMTLContext:
    request = PageRequest("fedmtl/table3", None, out, seeds, reduced=reduced, pages=True, say=quiet)
    return FedMTLContext(FedMTLGrid(request, torch.device("cpu")), keys, range(seeds))


def put(
    made: FedMTLContext, job, score: float, validation: float = 0.5, revealed: float = 0.25
) -> None:
    """A finished run with this result."""
    pixels = bool(job.plan.scenes)
    score = math.nan if job.seed == CHOOSING else score
    made.grid.cells.add(FedMTLCell(
        job.run, *job.about, validation, score, score / 2 if pixels else math.nan, score, 3.0,
        0.5, revealed, 1.0, "CPU with 2 cores",
    ))  # fmt: skip
    for k in range(job.rounds + 1):
        made.grid.points.add(Point(job.run, k, validation, 9.0 - k / 5, k / 20, revealed, 0.8))


def choose(made: FedMTLContext, key: str = "lfwa", best: int = 0) -> None:
    """All runs that settings are chosen by; the `best`-th of each wins, or the last."""
    for name in contenders.SEARCHED[key]:
        tries = made.chooser._tries(key, name)
        for number, job in enumerate(tries):
            put(made, job, math.nan, 0.7 if number == min(best, len(tries) - 1) else 0.6)


def fill(
    made: FedMTLContext, scores: dict[str, float], key: str = "lfwa", distribution="D1"
) -> None:
    for name, score in scores.items():
        for seed in made.seeds:
            job = made.chooser.job(key, name, seed, distribution)
            assert job is not None
            put(made, job, score + 0.01 * seed)


# --- time on shares ---


def test_the_page_of_times_comes_from_the_file(tmp_path):
    kept = CellFile(tmp_path / shares.FILE, shares.ShareTime)
    for setting in shares._panels(False)["clients"]:
        about = (setting.trust, setting.servers, setting.clients, setting.heads, setting.columns)
        for repeat, seconds in enumerate((2.0, 3.0, 8.0)):
            kept.add(shares.ShareTime(*about, repeat, setting.servers * seconds, 0.5, "a machine"))
    page = reproduce("fedmtl/figure9", None, tmp_path, pages=True, say=quiet)
    text = page.read_text(encoding="utf-8")
    assert "| P = 3 | drawn | 18.0 (12.0 to 48.0) |" in text
    assert "N = 40, K = 8 took 9.0 seconds" in text
    # Twenty clients with eight heads are in both panels; other numbers of heads were not run.
    assert "| P = 2 | drawn | not run | not run | 12.0 (8.0 to 32.0) |" in text
    rows = read(tmp_path / "figure9.csv")
    assert len(rows) == 16 and {row["repeats"] for row in rows} == {"3"}
    assert (tmp_path / "figure9.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_both_curators_are_asked_the_same(monkeypatch):
    """What is timed on shares is what is timed in the clear."""
    monkeypatch.setattr(shares, "LAYER", 30)
    setting = shares.ShareSetting("replicated", 3, 6, 3, 200)
    secrets = shares.made_up(setting)
    plain = shares.answered(shares.uploaded(secrets, setting))[:, 0]
    with LocalServers(3, tuple(secrets)) as running:
        outcome = running.remote.run(shares.job_of(setting, tuple(secrets)), secrets)
    for wanted, name in zip(plain, secrets, strict=True):
        answer = outcome.answers[name]
        held = sorted(secrets[name].layers)
        np.testing.assert_allclose(answer.rows, wanted[:200], atol=1e-4)
        layers = wanted[200:].reshape(3, 30)
        np.testing.assert_allclose(answer.layers[held], layers[held], atol=1e-4)
    times = shares.measure(setting, [0, 1], "a machine")
    assert [line.repeat for line in times] == [0, 1]
    assert all(line.ratio > 0 and line.setting == setting for line in times)


# --- heads by position, and given to groups ---


def test_a_clients_kth_head_becomes_head_k(place):
    made = plan_of("lfwa", reduced=True).load(place, "D1", 0)
    moved = by_position(made)
    assert made.heads is not None and moved.heads is not None
    assert moved.heads.names == ("first", "second") and bool(moved.heads.holds.all())
    assert moved.outputs == 10
    for task in range(len(made)):
        mine = made.heads.holds[task].nonzero()[:, 0]
        before, after = made.test.of(task)[1], moved.test.of(task)[1]
        for k, head in enumerate(mine.tolist()):
            assert torch.equal(after[:, 5 * k : 5 * k + 5], before[:, 5 * head : 5 * head + 5])
    pixels = plan_of("nyud2", reduced=True).load(None, "D1", 0)
    moved = by_position(pixels)
    assert pixels.heads is not None
    mine = pixels.heads.holds[1].nonzero()[:, 0]
    assert torch.equal(moved.train.of(1)[1], pixels.train.of(1)[1][:, mine])
    with pytest.raises(TacitError, match="equally many"):
        by_position(plan_of("lfwa", reduced=True).load(place, "D2", 0))


def test_groups_hold_the_heads_they_are_given(place):
    plan = plan_of("figure6", reduced=True)
    made, whole = plan.load(place, "D1", 3), dataclasses.replace(plan, groups=())
    assert made.heads is not None and made.heads.names == tuple(f"T{k}" for k in range(1, 9))
    for task in range(len(made)):
        assert made.heads.of(task) == plan.groups[plan.group_of[task]]
    assert made.names[0].startswith("positive") and made.names[-1].startswith("negative")
    # Rows are dealt as ever; only labels of other heads are forgotten.
    assert torch.equal(made.train.offsets, whole.load(place, "D1", 3).train.offsets)
    assert not made.train.of(0)[1][:, :10].isnan().any()
    assert made.train.of(0)[1][:, 10:].isnan().all()
    few = plan_of("figure2", reduced=True).load(place, "D1", 0)
    assert few.heads is not None and few.heads.names == ("T1", "T2", "T3", "T4")
    assert few.outputs == 20 and few.heads.of(len(few) - 1) == ("T1", "T4")
    with pytest.raises(TacitError, match="equal groups"):
        grouped(made, (("T1",),) * 3)


def test_a_seed_deals_splits_and_trains(place):
    plan = plan_of("lfwa", reduced=True)
    first, again, other = (plan.load(place, "D1", seed) for seed in (0, 0, 1))
    assert torch.equal(first.test.x, again.test.x)
    assert first.heads is not None and other.heads is not None
    assert not torch.equal(first.heads.holds, other.heads.holds)
    assert CHOOSING not in range(100)


# --- runs ---


@pytest.mark.slow
def test_table_3_runs_once_and_pages_need_no_data(tiny, place, tmp_path, monkeypatch):
    out, said = tmp_path / "out", []
    given = {"sets": ["lfwa"], "seeds": 1, "reduced": True}
    page = reproduce("fedmtl/table3", place, out, **given, say=said.append)
    cells = read(out / "cells.csv")
    # Five methods, four of them with D2, the guard, and two thresholds.
    assert len(cells) == 5 + 4 + 1 + 2 == len(said)
    assert len(read(out / "rounds.csv")) == 4 * len(cells)
    assert all(0 <= float(cell["accuracy"]) <= 1 for cell in cells)
    before = page.read_text(encoding="utf-8")
    assert "stand-in" in before and "## Bars" in before and "--reduced" in before
    assert "## What the guard costs" in before and "8 clients, mlp, 3 rounds" in before
    for stem in ("table3", "evidence"):
        assert (out / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / f"{stem}.svg").read_text(encoding="utf-8")
    rows = {(row["method"], row["distribution"]): row for row in read(out / "table3.csv")}
    own = next(c for c in cells if c["method"] == "Local" and c["distribution"] == "D1")
    assert float(rows["alone", "D1"]["accuracy"]) == pytest.approx(float(own["accuracy"]), abs=1e-5)
    assert rows["FedMTL, as published", "D1"]["published"] == "70.9"

    monkeypatch.setattr(FedMTLBench, "fit", None)  # whatever runs now breaks
    reproduce("fedmtl/table3", place, out, **given, say=quiet)
    page.unlink()
    reproduce("fedmtl/table3", None, out, **given, pages=True, say=quiet)
    assert page.read_text(encoding="utf-8") == before
    assert len(read(out / "cells.csv")) == len(cells)
    reproduce("fedmtl/figure7", None, out, **given, pages=True, say=quiet)
    assert {row["method"] for row in read(out / "figure7.csv")} == {
        CONTENDERS[name].title for name in FEW
    }
    index = (out / "README.md").read_text(encoding="utf-8")
    assert "(table3.md)" in index and "(figure7.md)" in index and "## Bars" in index


@pytest.mark.slow
def test_figure_8_stops_when_time_is_up_and_goes_on(tiny, place, tmp_path):
    said = []
    given = {"seeds": 1, "reduced": True, "say": said.append}
    page = reproduce("fedmtl/figure8", place, tmp_path, **given, limit=-1.0)
    assert "Nothing was run yet" in page.read_text(encoding="utf-8")
    assert said == ["figure 8: time is up, 6 runs are left out"]
    reproduce("fedmtl/figure8", place, tmp_path, **given)
    text = page.read_text(encoding="utf-8")
    assert "78.5" in text and "FedMTL-E" in text and "drawn, not printed" in text
    rows = read(tmp_path / "figure8.csv")
    assert {row["distribution"] for row in rows} == {"D1", "D2"} and len(rows) == 6 * 4


@pytest.mark.slow
def test_figures_of_groups(place, tmp_path, monkeypatch):
    given = {"reduced": True, "say": quiet}
    reproduce("fedmtl/figure6", place, tmp_path, **given)
    found = read(tmp_path / "figure6.csv")
    assert len(found) == 2 * 16 * 16
    same = {(r["layers"], r["client"], r["other"]): float(r["similarity"]) for r in found}
    assert same["task", "3", "3"] == 1.0 and same["shared", "3", "3"] == pytest.approx(1, abs=1e-3)
    reproduce("fedmtl/figure2", place, tmp_path, **given)
    found = read(tmp_path / "figure2.csv")
    # Twelve clients, half of them with two heads.
    assert len([row for row in found if row["layers"] == "task layers"]) == 18
    assert len(found) == 18 + 12 + 12
    monkeypatch.setattr(FedMTLBench, "fit", None)
    for name in ("fedmtl/figure6", "fedmtl/figure2"):
        page = reproduce(name, None, tmp_path, pages=True, **given)
        assert "stand-in" in page.read_text(encoding="utf-8")


def test_figure_5_is_what_the_loader_deals(place, tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "IMAGES", 160)
    page = reproduce("fedmtl/figure5", None, tmp_path, reduced=True, say=quiet)
    assert "no rows are read" in page.read_text(encoding="utf-8")
    made = plan_of("lfwa", reduced=True).load(place, "D2", 0)
    counts = sum(made.part(part).counts for part in ("train", "validation", "test"))
    assert made.heads is not None
    for task, row in enumerate(read(tmp_path / "figure5.csv")):
        assert int(row["samples"]) == int(counts[task])
        assert tuple(row["which"].split()) == made.heads.of(task)
    assert Dealing(60, 0, 1.0, 0, 20).rows(9000).shape == (9000,)


# --- choices, bars and remarks, on made-up cells ---


def test_settings_come_from_validation_rows_of_another_dealing(tmp_path):
    made = context(tmp_path)
    assert made.chooser.choice("lfwa", "fedmtl") is None and made.cells("lfwa", "fedmtl") == []
    choose(made, best=1)
    found = made.chooser.choice("lfwa", "fedmtl")
    assert found is not None and found.settings == {"lr": 0.3} and found.tried == 3
    assert found.where == f"lfwa, dealing {CHOOSING}" and found.validation == 0.7
    like = made.chooser.choice("lfwa", "pfedme-position")
    assert like is not None and like.settings == {"lr": 0.3, "inner_lr": 0.3, "pull": 3.0}
    moved = made.chooser.choice("facea", "mocha")
    assert moved is not None and moved.settings["pull"] == 0.1 and moved.where == "lfwa"
    assert made.chooser.choice("facea", "fedmtl") is None  # chosen on facea itself
    choose(made, "nyud2", best=0)
    rate = made.chooser.choice("nyud2", "fedmtl-ours")
    assert rate is not None and rate.settings["lr"] == 0.1
    assert {job.rounds for job in made.chooser._tries("nyud2", "local")} == {10}
    made.chooser.write()
    assert len(read(tmp_path / "settings.csv")) > len(CONTENDERS)
    # No cell of a choice has a test score.
    assert all(math.isnan(cell.accuracy) for cell in made.grid.cells.rows.values())


def test_a_run_that_broke_down_is_not_chosen(tmp_path):
    made = context(tmp_path)
    tries = made.chooser._tries("lfwa", "fedavg")
    put(made, tries[0], math.nan, math.nan)
    put(made, tries[1], math.nan, 0.4)
    found = made.chooser.choice("lfwa", "fedavg")
    assert found is not None and found.settings == {"lr": 1.0}


def test_bars_on_made_up_cells(tmp_path):
    made = context(tmp_path)
    choose(made)
    fill(made, {
        "fedmtl": 0.73, "fedmtl-ours": 0.745, "fedavg-position": 0.70, "fedprox-position": 0.69,
        "pfedme-position": 0.74, "mocha": 0.71, "fedavg": 0.72, "fedprox": 0.71, "local": 0.75,
    })  # fmt: skip
    lines = {line[0]: line[2:] for line in table3.bars(made)}
    assert len(lines) == 8
    a = "lfwa: FedMTL, as published, baselines by position"
    assert lines[f"{a}, above FedAvg, heads by position"] == ("+3.00", "yes")
    assert lines[f"{a}, best of the 4 run: pFedMe, heads by position"] == ("-1.00", "**no**")
    b = "lfwa: FedMTL, ours, baselines by task"
    assert lines[f"{b}, above FedAvg, heads by task"] == ("+2.50", "**no**")
    assert lines[f"{b}, best of the 4 run: alone"] == ("-0.50", "**no**")
    assert str(made.score("lfwa", "fedmtl")) == "73.5 ± 0.7"
    page = table3.table3(made)
    assert "not run" in page and "73.5 ± 0.7" in page and "| 70.9 |" in page


def test_remarks_follow_from_the_files(tmp_path):
    made = context(tmp_path)
    assert remarks.table3(made) == []
    choose(made)
    fill(made, {"fedmtl": 0.73, "fedmtl-ours": 0.75, "fedmtl-g": 0.74, "fedavg": 0.72,
                "fedavg-position": 0.65, "local": 0.70})  # fmt: skip
    for job in guard_jobs(made, "lfwa", 2):
        put(made, job, 0.72 + 0.01 * job.seed, revealed=0.0)
    said = "\n".join(remarks.table3(made))
    assert "heads by task against heads by position: +7.0 ± 0.0 points" in said
    assert "as published +3.0 ± 0.0 points, ours +5.0 ± 0.0 points" in said
    assert "mixing everybody (FedMTL-G, statistics mixed): +1.0 ± 0.0 points" in said
    assert "round 20 with 5.0 others (100 % with nobody)" in said
    assert "0.80 after the first round" in said
    assert "25 % of the answers give" in said and "accuracy by -1.0 ± 0.0 points" in said
    assert "fixed thresholds" not in said


def test_curves_are_means_over_the_runs_that_are_there(tmp_path):
    made = context(tmp_path, keys=("facea",))
    choose(made, "facea")
    jobs = curves.ablation_jobs(made, "D2", "FedMTL-J")
    assert [job.method.shared for job in jobs] == ["overlap"] * 2  # type: ignore[attr-defined]
    put(made, jobs[0], 0.7, 0.6)
    curve, runs = curves.curve_of(made, jobs)
    assert runs == 1 and curve[-1] == (20, 0.6, 0.0) and len(curve) == 21


def test_plans_are_the_papers(tmp_path):
    assert {key: FULL[key].clients for key in ("lfwa", "facea", "nyud2")} == {
        "lfwa": 60, "facea": 80, "nyud2": 20,
    }  # fmt: skip
    made = context(tmp_path)
    choose(made)
    job = made.chooser.job("lfwa", "fedmtl", 0)
    assert job is not None and job.rounds == 20
    method = job.method
    assert (method.threshold, method.last_threshold, method.min_peers) == (0.75, 0.95, 1)  # type: ignore[attr-defined]
    assert job.run != made.chooser.job("lfwa", "fedmtl", 1).run  # type: ignore[union-attr]
    assert table3.TABLE_3["FedMTL"]["nyud2"] == (37.2, 74.4)


# --- what is refused ---


@pytest.mark.parametrize(
    "name, options, text",
    [
        ("fedmtl/figure10", {}, "there is no 'fedmtl/figure10'"),
        ("fedmtl/table3", {"seeds": 0}, "seeds=0"),
        ("fedmtl/table3", {"sets": ["celeba"]}, "does not use 'celeba': choose of lfwa, facea"),
        ("fedmtl/table3", {}, "pass --data DIR"),
        ("fedmtl/table3", {"pages": True}, "leave --pages out"),
        ("pmtl/figure3", {"limit": 5}, "knows no --limit"),
    ],
)
def test_one_sentence_says_what_is_wrong(tmp_path, name, options, text):
    with pytest.raises(TacitError) as caught:
        reproduce(name, None, tmp_path, **options, say=quiet)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_without_the_set_is_named(tmp_path):
    with pytest.raises(TacitError, match="no lfw_pseudo_attr/"):
        reproduce("fedmtl/figure6", tmp_path, tmp_path / "out", reduced=True, say=quiet)


def test_the_command_lists_all(tmp_path, capsys):
    main(["--list"])
    shown = capsys.readouterr().out
    assert set(FIGURES) <= set(EXPERIMENTS) and all(name in shown for name in FIGURES)
    main(["fedmtl/figure5", "--out", str(tmp_path)])
    assert (tmp_path / "figure5.png").is_file()
