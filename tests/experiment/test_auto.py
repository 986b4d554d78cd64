"""What a run does where nobody says: chosen by public facts alone, and by steps that hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import tacit
from tacit.experiment.auto import choose
from tacit.experiment.plan import Plan
from tacit.local import units
from tacit.methods import MPMTL, PMTL, FedAvg, Mixed, RelatedPMTL, SharedPrior
from tests.conftest import arrays

RUN = {"baselines": False, "personalise": "none", "seed": 0}


def table(kind: str = "regression", tasks: int = 12, **more):
    return tacit.data.from_arrays(*arrays(tasks, 3, kind), kind=kind, **more)


def picked(federation, model="linear", privacy=None, **more):
    return choose(federation, Plan(model=model, privacy=privacy, **more))


@pytest.mark.parametrize("kind", ["regression", "count", "binary", "multiclass"])
@pytest.mark.parametrize("model", ["linear", tacit.models.linear])
def test_linear_models_of_tables_are_mixed(kind, model):
    found = picked(table(kind), model, tacit.Privacy(epsilon=1.0))
    assert isinstance(found.method, Mixed) and found.rounds == 6 and found.cohort == 1.0
    assert found.why == f"12 tasks, {kind}, a linear model of 3 columns"


def test_other_models_take_steps_that_cannot_diverge():
    x, y, names = arrays(12, 70, "multiclass")
    wide = tacit.data.from_arrays(x, y, names, kind="multiclass")
    for federation, model in ((table(), "mlp"), (wide, "linear")):
        found = picked(federation, model)
        assert isinstance(found.method, PMTL) and found.method.steepest is not None
        assert found.method.clip_quantile is not None and found.method.shorten
        assert found.method.units == "common"
        assert found.rounds == 34  # four of them vote for units
    assert isinstance(picked(table(), "linear-no-intercept").method, SharedPrior)
    related = dataclasses.replace(table().clustered([0, 1] * 6))
    assert isinstance(picked(related).method, RelatedPMTL)


def test_many_tasks_take_turns_where_steps_are_many():
    many = tacit.data.from_arrays(
        np.zeros((6000, 2)), np.tile([0.0, 1.0], 3000), np.repeat(np.arange(2000), 3)
    )
    assert picked(many, "mlp").cohort == 0.5
    assert picked(many).cohort == 1.0  # few rounds: everybody is heard in all of them
    assert picked(many, "mlp", cohort=0.1).cohort == 0.1


def test_the_choice_never_looks_at_rows():
    one = table()
    other = dataclasses.replace(
        one, train=dataclasses.replace(one.train, x=one.train.x * 1e9, y=one.train.y * torch.nan)
    )
    for model in ("linear", "mlp"):
        first, second = picked(one, model), picked(other, model)
        assert (first.method, first.rounds, first.why) == (second.method, second.rounds, second.why)


def test_a_named_method_stays_as_it_is():
    for method in ("pmtl", PMTL(lr=0.7)):
        found = choose(table(), Plan(method=method))
        assert found.method == (PMTL() if method == "pmtl" else method)
        assert (found.rounds, found.cohort, found.why) == (100, 1.0, "")
    with pytest.raises(tacit.TacitError, match="'auto', a name that `tacit methods` lists"):
        choose(table(), Plan(method="pmlt"))


def test_it_is_what_runs_and_is_said():
    run = tacit.train(table(), privacy=tacit.Privacy(epsilon=1.0), **RUN)
    assert isinstance(run.simulation.method, Mixed)
    assert run.config["method"] == "mixed" and "12 tasks" in run.config["chosen"]
    assert "chosen" not in tacit.train(table(), "pmtl", rounds=2, **RUN).config


def test_all_rows_but_test_rows_are_learned_from():
    federation = table(tasks=6)
    run = tacit.train(federation, seed=0, baselines=False)
    before = len(federation.train.y) + len(federation.validation.y)
    assert len(run.federation.train.y) == before and not len(run.federation.validation.y)
    assert torch.equal(run.federation.test.offsets, federation.test.offsets)
    kept = tacit.train(federation, **RUN)
    assert len(kept.federation.train.y) == len(federation.train.y)


def test_networks_are_trained_in_common_units_whatever_the_columns_were():
    x, y, names = arrays(60, 3, "regression", rows=(20, 30))
    x = (
        x
        + np.repeat(np.random.default_rng(0).normal(size=60), 1)[
            np.unique(names, return_inverse=True)[1]
        ][:, None]
    )
    raw = tacit.data.from_arrays(1e5 * x + 1e6, 1e-4 * y, names, kind="regression")
    found = tacit.train(raw, model="mlp", privacy=tacit.Privacy(epsilon=8.0), **RUN)
    stages = [entry.get("stage") for entry in found.simulation.channel.ledger.entries]
    assert stages[:5] == [*units.STAGES, None] and len(stages) == 34
    assert found.simulation.board["centre"][0] == pytest.approx(1e6, rel=0.2)
    assert found.measured.overall["nmse_pooled"] < 0.6
    assert not found.diverged


def test_steps_of_bounded_length_cannot_diverge():
    x, y, names = arrays(8, 3, "regression")
    wild = tacit.data.from_arrays(1e6 * x, y, names, kind="regression", scale="none")
    for method in (PMTL(lr=0.1), FedAvg(lr=0.1)):
        assert tacit.train(wild, method, rounds=20, **RUN).diverged
        steady = dataclasses.replace(method, steepest=1.0)
        run = tacit.train(wild, steady, rounds=20, **RUN)
        assert not run.diverged
        every = torch.arange(8)
        assert run.simulation.personal(every)[0].norm(dim=1).max() < 20 * 5 * 0.1 * 2


def test_noise_does_not_pile_up_where_tasks_are_few():
    """A release is shortened to one clip, which no mean of contributions is longer than."""
    x, y, names = arrays(8, 3, "regression")
    few = tacit.data.from_arrays(x, y, names, kind="regression", scale="none")
    method = PMTL(lr=0.1, steepest=1.0, clip=0.5)
    much = {"privacy": tacit.Privacy(noise=50.0), "rounds": 10, "model": "mlp"}
    lengths = []
    for shorten in (False, True):
        run = tacit.train(few, dataclasses.replace(method, shorten=shorten), **much, **RUN)
        moved = run.simulation.board["mean"] - run.simulation.model.start
        lengths.append(float(moved.norm()))
    assert lengths[0] > 50 and lengths[1] <= 10 * 0.5 + 1e-6


def test_common_units_need_columns_that_have_none():
    plain = table(scale="task")
    with pytest.raises(tacit.TacitError, match="load the table with scale='auto'"):
        choose(plain, Plan(method=PMTL(units="common"))).plan.check(plain)


def test_a_billboard_that_diverges_ends_the_run():
    x, y, names = arrays(8, 3, "regression")
    wild = tacit.data.from_arrays(3 * x, y, names, kind="regression", scale="none")
    run = tacit.train(wild, FedAvg(lr=0.5), rounds=60, **RUN)
    assert run.simulation.stopped is not None and "diverged" in run.simulation.stopped
    assert "smaller lr" in run.simulation.stopped
    assert run.simulation.board.round < 60
    assert all(value.abs().max() < 1e13 for value in run.simulation.board.tensors.values())


def test_mpmtl_says_when_it_diverges():
    """What it publishes never has any length; a sum that it cannot decompose ended in a traceback.

    Under privacy the clip hides how long the models are, so that only the tasks see it.
    """
    x, y, names = arrays(8, 3, "regression")
    wild = tacit.data.from_arrays(3 * x, y, names, kind="regression", scale="none")
    run = tacit.train(wild, MPMTL(lr=50.0), rounds=30, **RUN)
    assert run.simulation.stopped is not None and "smaller lr" in run.simulation.stopped
    promised = tacit.Privacy(epsilon=2.0)
    run = tacit.train(wild, MPMTL(lr=50.0, strength=0.0), rounds=10, privacy=promised, **RUN)
    assert len(run.diverged) == 8
    assert not tacit.train(wild, MPMTL(lr=0.01), rounds=10, privacy=promised, **RUN).diverged
