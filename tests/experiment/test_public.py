"""What public rows bring to a run, and that they change nothing of its promise."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import tacit
from tacit import Mixed, Privacy, TacitError
from tacit.experiment.start import model_of
from tacit.local import units
from tacit.methods.linear import as_parameters, from_parameters
from tacit.methods.posterior import PRIORS, shrunk
from tests.test_cli import fail, succeed

AT = np.array([0.0, 50.0, 1000.0, 3.0])
WIDE = np.array([1.0, 10.0, 100.0, 0.1])
SLOPES = np.array([0.8, -0.5, 0.4, 0.3])
NAMED: dict[str, Any] = {"task": "site", "target": "y"}
RUN: dict[str, Any] = {"seed": 0, "baselines": False, "personalise": "none"}
ONE = Privacy(epsilon=1.0)


def sites(
    tasks: int, rows: int = 10, seed: int = 0, kind: str = "regression", slopes=SLOPES
) -> dict[str, Any]:
    """A table in raw units: common slopes, and a level of each site's own."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(tasks), rows)
    x = rng.normal(size=(len(site), len(AT)))
    score = x @ slopes + 0.5 * rng.normal(size=tasks)[site]
    y = 200 + 30 * (score + 0.5 * rng.normal(size=len(site)))
    if kind == "binary":
        y = (rng.random(len(site)) < 1 / (1 + np.exp(-2 * score))).astype(int)
    columns = {f"x{k}": AT[k] + WIDE[k] * x[:, k] for k in range(len(AT))}
    return columns | {"y": y, "site": [f"s{k}" for k in site]}


def public(rows: int = 300, **about):
    table = sites(rows, rows=1, seed=77, **about)
    return {name: values for name, values in table.items() if name != "site"}


def trained(table: Any, given: Any, method: Any = "auto", kind: Any = "regression", **more: Any):
    federation = tacit.data.from_table(table, **NAMED, kind=kind, public=given)
    return tacit.train(federation, method, **({"privacy": ONE} | RUN | more))


def stages(run) -> list[str]:
    return list(run.simulation.course.stages)


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_the_same_epsilon_buys_more(kind):
    table = sites(133, kind=kind)
    without, found = (trained(table, rows, kind=kind) for rows in (None, public(kind=kind)))
    assert stages(without)[:4] == [*units.STAGES] and "units" not in stages(found)
    fewer, more = (len(run.simulation.channel.ledger) for run in (found, without))
    assert fewer == more - len(units.STAGES)
    assert found.guarantee.epsilon == pytest.approx(1.0, abs=0.01)
    assert without.guarantee.epsilon == pytest.approx(1.0, abs=0.01)
    lengths = found.simulation.course.sizes["lengths"], without.simulation.course.sizes["lengths"]
    assert (lengths[0] < lengths[1]) == (kind == "binary")  # nobody is asked for levels either
    loss = [run.measured.overall["loss"] for run in (without, found)]
    assert loss[1] < {"regression": 0.8, "binary": 0.9}[kind] * loss[0]
    assert without.public is None
    assert found.public is not None and found.public["rows"] == 300
    assert found.public["fitted"] == ["common units", "where models begin"]


@pytest.mark.parametrize("kind", ["regression", pytest.param("binary", marks=pytest.mark.slow)])
def test_public_rows_of_another_kind_are_corrected(kind):
    table = sites(1500, kind=kind)
    wrong = public(kind=kind, slopes=np.array([-0.5, 0.6, 0.4, -0.8]))
    losses = [
        trained(table, rows, kind=kind).measured.overall["loss"]
        for rows in (public(kind=kind), wrong)
    ]
    assert losses[1] < 1.04 * losses[0]


def test_nothing_of_the_promise_depends_on_them():
    """However wild they are: the same bound, the same noise, and clipped as before."""
    table = sites(40)
    wild = public() | {"y": 1e6 * np.arange(300) ** 2}
    runs = [trained(table, rows) for rows in (public(), wild)]
    books = [run.simulation.channel.ledger.releases() for run in runs]
    assert books[0] == books[1] and books[0].total() == 4
    for run in runs:
        channel = run.simulation.channel
        assert channel.clip == 1.0 and channel.dropped == 0
    words = [run.guarantee.to_json()["assumptions"] for run in runs]
    assert words[0] == words[1]


def test_a_contribution_is_bounded_wherever_the_model_begins():
    federation = tacit.data.from_table(sites(20), **NAMED, public=public())
    run = tacit.train(federation, Mixed(), privacy=ONE, **RUN)
    tasks, course = run.simulation.tasks, run.simulation.course
    cohort = torch.arange(20)
    for round in range(len(course.stages)):
        board = type(course.start)(course.start.tensors, round, 0.0, course.stage_at(round))
        for sent in tasks.ask(board, cohort):
            assert torch.linalg.vector_norm(sent.vectors.double(), dim=1).max() < 1 + 1e-6


def test_predictions_do_not_change_with_the_order_of_public_rows():
    table, given, order = sites(20), public(100), np.random.default_rng(1).permutation(100)
    mixed = {name: np.asarray(values)[order] for name, values in given.items()}
    new = {name: values for name, values in sites(20, rows=2, seed=5).items() if name != "y"}
    for more in ({}, {"method": tacit.PMTL(), "model": "mlp", "rounds": 1}):
        one, other = (trained(table, rows, **more).predict(new) for rows in (given, mixed))
        np.testing.assert_array_equal(one, other)


def test_a_linear_model_begins_at_the_exact_fit():
    federation = tacit.data.from_table(sites(10), **NAMED, kind="regression", public=public(2000))
    model = model_of("linear", federation, 0)
    assert model.fitted and torch.equal(model.known, model.start)
    rows = federation.public.rows
    x = np.column_stack([rows.x.double(), np.ones(len(rows.x))])
    exact = np.linalg.lstsq(x, rows.y.double().numpy(), rcond=None)[0]
    np.testing.assert_allclose(model.start.numpy(), exact, atol=1e-2)
    plain = model_of("linear", tacit.data.from_table(sites(10), **NAMED), 0)
    assert not plain.fitted and not plain.known.any()


def test_few_tasks_stay_near_the_public_fit():
    """Their releases are all noise, which must not move coefficients that are known already."""
    run = trained(sites(20), public(2000))
    begin, end = run.simulation.course.start["beta"], run.simulation.board["beta"]
    assert torch.equal(begin, run.simulation.course.start["prior"])
    expected = torch.from_numpy(SLOPES / np.sqrt((SLOPES**2).sum() + 0.5))
    assert (begin[:-1] - expected).abs().max() < 0.1
    assert (end[:-1] - expected).abs().max() < 0.2


def test_networks_begin_where_public_rows_are_fitted():
    federation = tacit.data.from_table(sites(10), **NAMED, public=public())
    model, rows = model_of("mlp", federation, 0), federation.public.rows
    out = model.predict(model.start, model.buffers, rows.x)
    assert ((out - rows.y) ** 2).mean() < 0.5 * rows.y.var()
    run = tacit.train(federation, tacit.PMTL(), model="mlp", rounds=1, **RUN)
    assert not torch.equal(run.simulation.board["mean"], model.start)


@pytest.mark.parametrize(("public_is_right", "near"), [(True, 1), (False, 0)])
def test_coefficients_are_shrunk_to_what_has_more_evidence(public_is_right, near):
    """To the public fit or to zero; with the other one alone, noise stays in all of them."""
    fit = torch.full((30,), 2.0, dtype=torch.float64)
    truth = fit if public_is_right else 0 * fit
    rng = torch.Generator().manual_seed(0)
    target = truth + 0.5 * torch.randn(30, generator=rng, dtype=torch.float64)
    spread = torch.tensor(0.25, dtype=torch.float64)
    prior = PRIORS.unsqueeze(1).expand(-1, 30)
    eye, middles = torch.eye(30, dtype=torch.float64), torch.stack([fit, 0 * fit])
    beta, only = (
        shrunk(eye, target, 0 * spread, spread * eye, prior, some)[0]
        for some in (middles, middles[near : near + 1])
    )
    assert 4 * ((beta - truth) ** 2).sum() < ((only - truth) ** 2).sum()


def test_weights_and_parameters_are_the_same_numbers():
    w = torch.arange(12.0)
    assert torch.equal(from_parameters(as_parameters(w, 3), 3), w)
    assert torch.equal(from_parameters(w, 1), w)


def test_resuming_with_other_public_rows_is_refused(tmp_path):
    """Also where the rows of all tasks are the same."""
    named, begin = NAMED | {"scale": "none"}, {"out": tmp_path / "run", "privacy": ONE} | RUN
    one, other = (
        tacit.data.from_table(sites(10), **named, public=public(rows)) for rows in (300, 299)
    )
    assert torch.equal(one.train.x, other.train.x)
    tacit.train(one, **begin)
    with pytest.raises(TacitError, match="was started with other data"):
        tacit.train(other, resume=True, **begin)


def test_workers_of_flower_have_none():
    federation = tacit.data.from_table(sites(10), **NAMED, public=public())
    with pytest.raises(TacitError, match="leave engine or public out"):
        tacit.train(federation, engine="flower", privacy=ONE)


def test_the_command_line_says_what_they_brought(tmp_path):
    paths = {}
    for name, table in (("rows", sites(12)), ("open", public(60) | {"note": ["a"] * 60})):
        paths[name] = tmp_path / f"{name}.csv"
        lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values()))]
        paths[name].write_text("\n".join(lines))
    out = tmp_path / "run"
    words = ["train", "--data", str(paths["rows"]), "--task", "site", "--target", "y"]
    words += ["--public", str(paths["open"]), "--epsilon", "2", "--out", str(out)]
    shown = succeed([*words, "--no-baselines", "--personalise", "none"]).replace("\n", " ")
    assert "60 public rows of open.csv gave common units and where models begin, at no ε" in shown
    assert "columns that are not used: note" in shown
    result = json.loads((out / "result.json").read_text())
    assert result["public"]["rows"] == 60 and result["config"]["data"]["public"]
    assert "60 public rows of open.csv" in (out / "report.html").read_text()
    assert any("60 rows of open.csv" in one for one in result["guarantee"]["assumptions"])
    paths["open"].write_text("x0,x1,y\n1,2,3\n")
    said = fail([*words[:-1], str(tmp_path / "other")])
    assert said.startswith("public rows: there is no column 'x2' in open.csv")
