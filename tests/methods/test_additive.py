"""Additive models: what is bounded, what noise does, what is found, what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tacit
from tacit import Privacy, SharedShapes, TacitError
from tacit.experiment.models import SavedModels
from tacit.local.batches import Batches
from tacit.local.bumps import SHAPES, numbers_of, shapes_of, spread_out
from tacit.local.flat import FlatModel
from tacit.methods.additive import VARIANCE
from tacit.methods.base import Board
from tacit.models import AdditiveModel
from tacit.models.additive import PLACES, shares
from tacit.privacy import NOT_COVERED, Everyone, Release
from tacit.privacy.channel import Channel
from tacit.randomness import Randomness
from tacit.sklearn import PrivateMultiTaskRegressor

COLUMNS = 3
NUMBERS = st.floats(-1e6, 1e6, width=32)


def curved(tasks=40, rows=40, kind="regression", seed=0, raw=True):
    """Shapes that no line is near to, and levels of the tasks' own; columns in units of a table."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tasks * rows, COLUMNS))
    task = np.repeat(np.arange(tasks), rows)
    score = np.sin(2 * x[:, 0]) + x[:, 1] ** 2 - 1 + 0.5 * rng.standard_normal(tasks)[task]
    y = score + 0.5 * rng.standard_normal(len(x))
    if kind == "binary":
        y = (rng.random(len(x)) < 1 / (1 + np.exp(-2 * score))).astype(float)
    given: Any = {"kind": kind, "validation": 0.0, "test": 0.5}
    if raw:
        return tacit.data.from_arrays(5 + 3 * x, y, task, **given)
    return tacit.data.from_arrays(x, y / 1.5, task, scale="none", target_scale="none", **given)


def trained(federation, privacy=None, method="additive", *, seed=0, **more):
    """A run without all that costs time."""
    quick: Any = {"seed": seed, "baselines": False, "personalise": "none", **more}
    return tacit.train(federation, method, privacy=privacy, **quick)


def batches_of(x, y) -> Batches:
    x, y = torch.as_tensor(x).float(), torch.as_tensor(y).float()
    return Batches(x[None], y[None], torch.full((1, len(y)), 1 / len(y)))


def told(kind, u, rows, x, y, *, persons=False, stage="shapes") -> torch.Tensor:
    """What a contributor with these rows sends, at any billboard."""
    model = FlatModel(AdditiveModel(x.shape[1]), kind)
    method = SharedShapes(persons=persons, crowd=100, epsilon=1.0)
    board = method.board(model) | {"u": u, "rows": torch.tensor(rows, dtype=torch.float64)}
    board = Board(board, 1, 0.1, stage)
    return method.client(model, board, method.state(model, board), batches_of(x, y))[1]


@given(arrays(np.float32, (6, COLUMNS), elements=NUMBERS))
@example(np.full((6, COLUMNS), 1.5, np.float32))  # at a place, with none of its neighbours in it
@settings(max_examples=50, deadline=None)
def test_no_row_is_longer_than_one(x):
    z = spread_out(batches_of(x, np.zeros(6)))[0]
    assert float(torch.linalg.vector_norm(z, dim=1).max()) <= 1 + 1e-12
    each = shares(torch.from_numpy(x).double())
    assert float(each.min()) >= 0
    assert torch.allclose(each.sum(-1), torch.ones(6, COLUMNS, dtype=torch.float64))


@given(
    st.sampled_from(["regression", "binary"]),
    arrays(np.float32, (5, COLUMNS), elements=NUMBERS),
    arrays(np.float32, 5, elements=NUMBERS),
    arrays(np.float64, COLUMNS * SHAPES.shape[1] + 1, elements=st.floats(-50, 50)),
    st.sampled_from([1.0, 3.0, 100.0]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_nobody_moves_a_sum_by_more_than_the_clip(kind, x, y, u, rows, persons):
    """Added or removed: by one. Replaced: by two."""
    y = (y > 0).astype(np.float32) if kind == "binary" else y
    first = told(kind, torch.from_numpy(u), rows, x, y, persons=persons)
    other = told(kind, torch.from_numpy(u), rows, x[::-1].copy() + 1, 1 - y, persons=persons)
    rest = [told(kind, torch.from_numpy(u), rows, x, y, stage=stage) for stage in ("rows", "own")]
    lengths = [float(each.norm()) for each in (first, other, *rest) if each.isfinite().all()]
    assert max(lengths) <= 1 + 1e-9  # what is not finite counts as zero
    assert float((first - other).norm()) <= 2 + 1e-9


@pytest.mark.parametrize("kind", ["regression", "binary"])
@pytest.mark.parametrize("persons", [False, True])
def test_the_bound_is_reached_under_both_neighbours(kind, persons):
    """A contributor at the places, far from what is expected; and its opposite in its place."""
    release = Release(Everyone(), 1e-6)
    channel = Channel(Everyone(), 2, Randomness.of(0), clip=1.0, release=release)
    x = np.full((1, COLUMNS), PLACES[3], np.float32)
    u = torch.zeros(COLUMNS * SHAPES.shape[1] + 1, dtype=torch.float64)
    most = 0.5 if kind == "binary" else 3.0
    if kind == "binary":  # a level that says no, so that yes has a residual of one
        u[-1] = -60.0
    sides = []
    for sign in (1, -1):
        y, at = (np.ones(1), u) if kind == "binary" else (np.array([sign * 2 * most]), u)
        if kind == "binary" and sign < 0:
            y, at = np.zeros(1), -u
        sides.append(told(kind, at, 1.0, x, y, persons=persons))
    assert all(float(side.norm()) == pytest.approx(1.0, abs=1e-9) for side in sides)
    assert float((sides[0] - sides[1]).norm()) == pytest.approx(2.0, abs=1e-9)
    sums = []
    for round, sent in enumerate(([sides[0]], [sides[1]], [])):
        collection = channel.open(round, 3)
        collection.add(torch.stack(sent).float() if sent else sides[0][None].float() * 0)
        sums.append(2 * collection.publishable(len(sides[0])))
    assert float((sums[0] - sums[2]).norm()) == pytest.approx(1.0, abs=1e-3)
    assert float((sums[0] - sums[1]).norm()) == pytest.approx(2.0, abs=1e-3)


def test_what_a_person_sends_depends_on_the_billboard_and_the_rows_alone():
    model, method = FlatModel(AdditiveModel(2), "binary"), SharedShapes(persons=True)
    board = Board(method.board(model), 0, 0.1, "shapes")
    rows = batches_of(np.array([[0.3, -1.0]]), np.ones(1))
    fresh = method.state(model, board)
    worn = {name: value + 5 for name, value in fresh.items()}
    after, sent = method.client(model, board, fresh, rows)
    assert torch.equal(sent, method.client(model, board, worn, rows)[1])
    assert torch.equal(after["w"], fresh["w"])
    # A person with one row is as long as its residual: one, where nothing is known yet.
    length = float(torch.linalg.vector_norm(spread_out(rows)[0]))
    assert float(sent.norm()) == pytest.approx(0.5 * length / math.sqrt(VARIANCE["binary"]))


@pytest.mark.parametrize("rows", [np.full((30, 4), 0.3), np.full((30, 4), -9.0)])
def test_steps_do_not_diverge_whatever_the_rows_are(rows):
    """The worst case: all rows of everybody are the same, so one direction has all curvature."""
    model = FlatModel(AdditiveModel(4), "regression")
    method = SharedShapes(clip=math.inf, persons=True)
    board, y = Board(method.board(model), 0, 0.0, "shapes"), np.full(30, 2.0)
    for _ in range(60):
        told = method.client(model, board, method.state(model, board), batches_of(rows, y))[1]
        board = Board(method.publish(board, told), 0, 0.0, "shapes")
    w = method.personal(model, board, method.state(model, board))
    found = model.module(w, model.buffers)(torch.from_numpy(rows).float())
    assert float((found.detach() - 2.0).abs().max()) < 0.1


def test_places_hold_a_line_and_shapes_are_told_by_their_numbers():
    x = torch.linspace(PLACES[0], PLACES[-1], 50, dtype=torch.float64)[:, None]
    line = shares(x)[:, 0] @ torch.tensor(PLACES, dtype=torch.float64)
    assert torch.allclose(line, x[:, 0])
    u = torch.randn(3 * SHAPES.shape[1] + 1, generator=torch.Generator().manual_seed(0)).double()
    assert torch.allclose(numbers_of(shapes_of(u)), u)
    # The module and the method mean the same by them.
    model = FlatModel(AdditiveModel(3), "regression")
    rows = batches_of(torch.randn(7, 3, generator=torch.Generator().manual_seed(1)), torch.zeros(7))
    z = spread_out(rows)[0]
    module = model.module(shapes_of(u).float(), model.buffers)
    assert torch.allclose(module(rows.x[0])[:, 0].double(), z @ u, atol=1e-5)


@pytest.mark.parametrize(("kind", "part"), [("regression", 0.75), ("binary", 0.93)])
def test_shapes_are_found_that_no_line_is_near_to(kind, part):
    federation = curved(kind=kind, tasks=60, rows=30)
    found, line = (
        trained(federation, Privacy(epsilon=4.0), method).measured.overall["loss"]
        for method in ("additive", "mixed")
    )
    assert found < part * line


def test_the_published_shapes_are_near_the_true_ones():
    drawn = trained(curved(tasks=150, rows=20), Privacy(epsilon=4.0)).shapes()
    first, second, third = (np.array(column["shared"]) for column in drawn["columns"])
    inner, places = slice(1, -1), np.array(PLACES)[1:-1]  # few rows are further out
    assert np.corrcoef(first[inner], np.sin(2 * places))[0, 1] > 0.8
    assert np.corrcoef(second[inner], places**2)[0, 1] > 0.95
    assert np.abs(third).max() < 0.3 * min(np.ptp(first), np.ptp(second))


@pytest.mark.slow
def test_the_band_is_as_wide_as_the_noise():
    """Other noise on the same rows: shapes differ by what the band says, or by a little less."""
    federation, found, bands = curved(tasks=60, rows=20, raw=False), [], []
    for seed in range(16):
        drawn = trained(federation, Privacy(epsilon=2.0), seed=seed).shapes()["columns"]
        found.append([column["shared"] for column in drawn])
        bands.append([column["noise"] for column in drawn])
    seen, said = np.std(found, axis=0), np.mean(bands, axis=0)
    assert 0.5 < np.sqrt((seen**2).mean() / (said**2).mean()) < 1.0


def test_a_task_that_is_unlike_all_others_keeps_to_itself():
    rng, kinds = np.random.default_rng(0), []
    x = rng.standard_normal((30 * 60, COLUMNS))
    task = np.repeat(np.arange(30), 60)
    sign = np.where(task == 0, -1.0, 1.0)
    y = sign * (np.sin(2 * x[:, 0]) + x[:, 1]) + 0.3 * rng.standard_normal(len(x))
    federation = tacit.data.from_arrays(x, y, task, validation=0.0, test=0.5, scale="none")
    run = trained(federation)
    for name in ("0", "1"):
        kinds.append(run.metrics["per_task"][name]["nmse"])
    assert kinds[0] < 0.6 and kinds[1] < 0.3


def test_rounds_follow_public_facts():
    made = SharedShapes()
    few, many = (replace(made, crowd=n, epsilon=1.0, clip=1.0) for n in (10, 10_000))
    assert (few.usual_rounds, many.usual_rounds) == (7, 42)
    persons = replace(made, crowd=600, epsilon=1.0, persons=True)
    assert persons.usual_rounds == 15
    assert persons.stages("binary", 3) == ("shapes",) * 3
    assert few.stages("binary", 4) == ("rows", "shapes", "shapes", "own")
    assert few.stages("binary", 2) == ("rows", "shapes")
    with pytest.raises(TacitError, match="rounds=1: the first finds how many rows"):
        few.stages("binary", 1)


def test_other_models_and_outcomes_are_refused_by_name(make_federation):
    with pytest.raises(TacitError, match=r"^additive is for additive models"):
        tacit.train(make_federation(), "additive", model="mlp", seed=0)
    with pytest.raises(TacitError, match="of kind regression, binary: use model='additive'"):
        tacit.train(make_federation(kind="multiclass"), "additive", seed=0)
    with pytest.raises(TacitError, match="is for linear models of a target"):
        tacit.train(make_federation(), "mixed", model="additive", seed=0)
    with pytest.raises(TacitError, match="clip must be 1"):
        SharedShapes(clip=2.0)


def test_any_method_trains_the_model_and_files_hold_it(make_federation, tmp_path):
    federation = make_federation(kind="multiclass")
    method, folder = tacit.FedAvg(), tmp_path / "run"
    run = trained(federation, None, method, rounds=2, model="additive", out=folder)
    x, of = federation.test.x[:4].numpy(), [federation.names[0]] * 4
    said = run.predict(x, of)
    assert said.shape == (4, federation.outputs)
    assert np.allclose(SavedModels.load(folder).predict(x, of), said, atol=1e-6)
    inner = run.personal(of[0])
    assert sum(each.numel() for each in inner.parameters()) == run.simulation.model.size


def test_results_and_reports_have_the_shapes(tmp_path):
    federation = curved(tasks=12, rows=20)
    run = trained(federation, Privacy(epsilon=2.0), out=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))["shapes"]
    assert kept["own_label"] == NOT_COVERED
    assert kept["label"] == run.shapes()["label"] != NOT_COVERED
    assert len(kept["columns"]) == COLUMNS and len(kept["tasks"]) == len(federation)
    first = kept["columns"][0]
    assert len(first["own"]) == len(federation)
    assert all(each > 0 for each in first["noise"])
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    covered, own = page.index("<h2>Shared shapes</h2>"), page.index("<h3>Beside tasks")
    assert covered < own and f">{NOT_COVERED}</span></h3>" in page[own : own + 150]
    with pytest.raises(TacitError, match="has no shapes: only runs of additive have"):
        trained(federation, method="prior", rounds=1).shapes()


def test_columns_of_yes_and_no_are_drawn_at_both_and_own_constants_stay_at_home():
    rng = np.random.default_rng(0)
    yes = (rng.random(600) < 0.4).astype(float)
    x = np.column_stack([rng.normal(50.0, 10.0, 600), yes])
    y = 0.05 * x[:, 0] + yes + 0.3 * rng.standard_normal(600)
    federation = tacit.data.from_arrays(x, y, np.repeat(np.arange(30), 20), validation=0.0)
    number, answer = trained(federation).shapes()["columns"]
    assert answer["places"] == [0.0, 1.0]
    assert answer["shared"][1] - answer["shared"][0] == pytest.approx(1.0, abs=0.3)
    assert number["units"] == "" and 20 < number["places"][0] < number["places"][-1] < 80
    apart = tacit.data.from_arrays(
        x, y, np.repeat(np.arange(30), 20), validation=0.0, scale="task", target_scale="task"
    )
    own = trained(apart).shapes()
    assert own["columns"][0]["units"] and own["columns"][0]["places"] == list(PLACES)
    assert own["outcome"] == "spreads of the target"


def test_estimators_take_it_with_its_model():
    rng = np.random.default_rng(0)
    x, tasks = rng.standard_normal((400, 2)), np.repeat(np.arange(10), 40)
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(400)
    made = PrivateMultiTaskRegressor("additive", model="additive", epsilon=None, random_state=0)
    made.fit(x, y, tasks=tasks)
    assert np.mean((made.predict(x, tasks=tasks) - y) ** 2) < 0.3 * y.var()
    one = PrivateMultiTaskRegressor("additive", model="additive", epsilon=None, random_state=0)
    one.fit(x, y)
    assert np.mean((one.predict(x) - y) ** 2) < 0.3 * y.var()
    with pytest.raises(TacitError, match="pass model='additive' too"):
        PrivateMultiTaskRegressor("additive", epsilon=None).fit(x, y, tasks=tasks)
