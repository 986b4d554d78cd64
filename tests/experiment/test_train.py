"""`tacit.train`: what it refuses, what it leaves, and that private state stays private."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import tacit
from tacit import PMTL, FedAvg, Local, Privacy, SavedModels, TacitError
from tacit.experiment.train import train


def quick(federation, method=None, **settings):
    settings = {"rounds": 3, "seed": 0, "baselines": False, "personalise": "none"} | settings
    return train(federation, method or PMTL(batch=4, local_steps=2), **settings)


def test_result_has_all_that_was_promised(make_federation, tmp_path):
    run = quick(
        make_federation(kind="binary"),
        privacy=Privacy(epsilon=2.0, delta=1e-3),
        baselines=True,
        cohort=0.5,
        out=tmp_path / "run",
    )
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    promised = {
        "epsilon", "delta", "neighbours", "sampling", "accountant", "releases",
        "noise_multiplier", "private",
    }  # fmt: skip
    assert promised <= result["guarantee"].keys()
    assert result["guarantee"]["epsilon"] <= 2.0
    assert result["guarantee"]["releases"] == 3
    assert result["guarantee"]["private"] is False  # seeded
    assert {"overall", "per_task", "baselines"} <= result["metrics"].keys()
    assert {"constant", "local", "global"} == result["metrics"]["baselines"].keys()
    assert set(result["metrics"]["per_task"]) == set(run.federation.names)
    assert result["metrics"]["label"] == "not covered by the guarantee"
    assert result["config"]["method"] == "pmtl"
    assert result["timing"]["seconds"] > 0
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    assert len((tmp_path / "run" / "ledger.jsonl").read_text().splitlines()) == 3


def test_an_unseeded_private_run_always_has_a_ledger_on_disk(
    make_federation, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = quick(make_federation(), privacy=Privacy(noise=5.0), seed=None)
    assert run.guarantee.private
    (ledger,) = tmp_path.glob("runs/*/ledger.jsonl")
    assert len(ledger.read_text().splitlines()) == 3


def test_unseeded_runs_differ_and_seeded_runs_do_not(make_federation, tmp_path):
    def board(seed, name):
        run = quick(make_federation(), privacy=Privacy(noise=5.0), seed=seed, out=tmp_path / name)
        return run.simulation.board["mean"]

    assert not torch.equal(board(None, "a"), board(None, "b"))
    assert torch.equal(board(1, "c"), board(1, "d"))


def test_tasks_outside_the_cohort_are_not_touched(make_federation):
    federation = make_federation(tasks=30)
    run = quick(federation, rounds=1, cohort=0.2)
    drawn = run.simulation.channel.cohort(0)
    rows = run.simulation.tasks.store._rows
    touched = rows[:, 0].nonzero().flatten().tolist()
    assert 0 < len(drawn) < 30
    assert touched == drawn.tolist()


def test_disk_store_equals_memory_store(make_federation, tmp_path):
    def models(store, name):
        run = quick(make_federation(), cohort=0.5, rounds=6, store=store, out=tmp_path / name)
        return run.simulation.personal(torch.arange(12))[0]

    assert torch.equal(models("disk", "a"), models("memory", "b"))
    assert (tmp_path / "a" / "checkpoint" / "states.bin").exists()


def test_batch_norm_statistics_are_private_state_and_never_published(make_federation):
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
    federation = make_federation()
    run = quick(federation, model=module, rounds=5)
    parameters = sum(p.numel() for p in module.parameters())
    assert run.simulation.board["mean"].numel() == parameters
    _, buffers = run.simulation.personal(torch.arange(len(federation)))
    means = buffers[:, :6]
    assert (means != 0).any(dim=1).all()  # every task has statistics of its own
    assert len({tuple(row.tolist()) for row in means}) == len(federation)
    one = run.personal("task-3").inner
    assert torch.equal(one[1].running_mean, means[3])
    assert int(one[1].num_batches_tracked) == 5 * 2
    assert not one.training


def test_batch_norm_equals_plain_torch():
    """One task's statistics and parameters after a round equal a plain loop's."""

    generator = np.random.default_rng(0)
    x = generator.normal(size=(36, 3)).astype(np.float32)
    federation = tacit.data.from_arrays(
        x, x.sum(1), np.repeat(["a", "b"], 18), scale="none", target_scale="none"
    )
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    run = quick(federation, Local(lr=0.05, batch=None, local_steps=4), model=module, rounds=1)
    import copy

    plain = copy.deepcopy(module).train()
    rows, y = federation.train.of(0)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.05)
    for _ in range(4):
        optimiser.zero_grad()
        nn.functional.mse_loss(plain(rows).squeeze(1), y).backward()
        optimiser.step()
    ours = run.personal("a").inner
    for (name, mine), (_, theirs) in zip(
        ours.state_dict().items(), plain.state_dict().items(), strict=True
    ):
        assert torch.allclose(mine.float(), theirs.float(), atol=1e-5), name


def test_dropout_is_random_in_every_round_and_repeats_with_the_seed(make_federation):
    module = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    federation, method = make_federation(), Local(lr=1e-3, batch=None, local_steps=1)

    def progress(seed, rounds):
        run = quick(federation, method, model=module, seed=seed, rounds=rounds)
        return run.simulation.personal(torch.arange(len(federation)))[0]

    assert torch.equal(progress(0, 2), progress(0, 2))
    start = nn.utils.parameters_to_vector(module.parameters())
    first = progress(0, 1) - start
    second = progress(0, 2) - progress(0, 1)
    unused = [(step[:, :64] == 0).float() for step in (first, second)]  # weights of dropped units
    assert (unused[0] != unused[1]).any()
    assert len({tuple(row.tolist()) for row in unused[0]}) > 1  # tasks drop different units


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(4, 3), Branching()), "layer .* does not run on inputs of shape"),
        (nn.Linear(7, 1), "does not run on inputs of shape"),
        (nn.Linear(4, 3), "needs one number per row"),
        (nn.Sequential(nn.ReLU()), "no trainable parameters"),
    ],
)
def test_models_that_cannot_work_are_refused_before_training(make_federation, module, words):
    with pytest.raises(TacitError, match=words):
        quick(make_federation(), model=module)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rounds": 0}, "rounds"),
        ({"cohort": 2.5}, "rate in"),
        ({"device": "abacus"}, "use cpu or cuda"),
        ({"model": "oracle"}, "choose one of linear"),
        ({"patience": 0}, "patience"),
        ({"patience": 2, "privacy": Privacy(epsilon=1.0)}, "no budget covers"),
        ({"resume": True}, "a folder is needed"),
        ({"store": "disk"}, "a folder is needed"),
        ({"method": PMTL(clip=math.inf), "privacy": Privacy(epsilon=1.0)}, "clip must be finite"),
        ({"method": "pmlt"}, "an instance of"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(make_federation, settings, words):
    with pytest.raises(TacitError, match=words):
        quick(make_federation(), **settings)


def test_a_folder_holds_one_run_and_resumes_only_the_same(make_federation, tmp_path):
    federation, folder = make_federation(), tmp_path / "run"
    quick(federation, out=folder)
    with pytest.raises(TacitError, match="already holds a run"):
        quick(federation, out=folder)
    with pytest.raises(TacitError, match="was started with other lr"):
        quick(federation, PMTL(batch=4, local_steps=2, lr=0.3), out=folder, resume=True)
    with pytest.raises(TacitError, match="was started with other data"):
        quick(make_federation(seed=5), out=folder, resume=True)
    with pytest.raises(TacitError, match="holds no run"):
        quick(federation, out=tmp_path / "other", resume=True)


def test_a_run_is_not_resumed_with_rows_that_belong_to_others(tmp_path):
    """Whoever has other rows from now on would be promised something about half of the rounds."""
    rng, names = np.random.default_rng(0), np.repeat(["a", "b", "c"], 20)
    x = rng.normal(size=(60, 2))

    def go(persons, **more):
        given = {"kind": "regression", "scale": "none", "validation": 0.0, "test": 0.0}
        made = tacit.data.from_arrays(x, x.sum(axis=1), names, persons=persons, **given)
        privacy = Privacy(unit="person", persons=60, noise=5.0)
        return tacit.train(made, "mixed", privacy=privacy, baselines=False, out=tmp_path, **more)

    go(np.arange(60))
    with pytest.raises(TacitError, match="was started with other data"):
        go(np.append(np.arange(1, 60), 0), resume=True)


def test_early_stopping_without_privacy(make_federation):
    run = quick(make_federation(), Local(lr=0.5, batch=None), rounds=400, patience=2)
    assert run.simulation.stopped is not None
    assert run.simulation.board.round < 400


def test_a_run_that_would_pass_its_budget_stops_by_itself(make_federation, tmp_path):
    """Entries left over from crashes count: the budget ends the run, not the number of rounds."""
    from tacit.privacy import Poisson, Release

    federation, folder = make_federation(), tmp_path / "run"
    settings = {"privacy": Privacy(epsilon=1.0, delta=1e-3), "rounds": 8, "cohort": 0.5}
    done = quick(federation, out=tmp_path / "whole", **settings)
    noise = done.guarantee.noise_multiplier
    from tacit.privacy import Ledger

    folder.mkdir()
    ledger = Ledger.at(folder / "ledger.jsonl")
    for _ in range(3):
        ledger.book(-1, Release(Poisson(0.5), noise), repeatable=False, clip=1.0)
    run = quick(federation, out=folder, seed=None, **settings)
    assert run.simulation.stopped is not None
    assert "budget" in run.simulation.stopped
    assert run.simulation.board.round == 5
    assert run.guarantee.releases == 8
    assert run.guarantee.epsilon <= 1.0


def test_a_run_in_turn_costs_the_rounds_of_one_task_also_after_a_crash(make_federation, tmp_path):
    federation, whole = make_federation(), tmp_path / "whole"
    tasks = len(federation)
    privacy = Privacy(epsilon=1.0, delta=1e-3, sampling="in-turn", neighbours="replace")
    settings = {"privacy": privacy, "rounds": tasks, "cohort": 2, "seed": None}
    run = quick(federation, out=whole, **settings)
    assert f"2 of {tasks} tasks in turn" in str(run.guarantee)
    assert 0.999 < run.guarantee.epsilon <= 1.0 and run.guarantee.releases == tasks
    noise = run.guarantee.noise_multiplier
    assert noise is not None
    once = tacit.privacy.noise_for(1.0, 1e-3, tacit.privacy.Everyone(), 2, "replace")
    assert noise == pytest.approx(once, rel=2e-4)  # each task is in two rounds
    # A crash before the last round was saved: to repeat it would be a third time for those in it.
    ledger = tacit.privacy.Ledger.at(whole / "ledger.jsonl")
    (last,) = (release for release in ledger.releases() if release.sampler.round == tasks - 1)
    ledger.book(tasks - 1, last, repeatable=False)
    again = tacit.privacy.Ledger.at(whole / "ledger.jsonl").releases()
    assert tacit.privacy.spent(again, 1e-3, "replace").epsilon > 1.2


def test_pooled_scaling_marks_the_run(make_federation):
    run = quick(make_federation(scale="pooled"), privacy=Privacy(noise=9.0))
    assert not run.guarantee.private
    assert any("over all tasks" in leak for leak in run.guarantee.leaks)


def test_saved_models_predict_what_the_run_predicts(tmp_path):
    generator = np.random.default_rng(1)
    count = 120
    table = {
        "site": np.array([f"s{k % 4}" for k in range(count)]),
        "age": generator.normal(50, 10, count),
        "group": generator.choice(["x", "y", "z"], count),
    }
    table["cost"] = 3 * table["age"] + 10 * (table["group"] == "y") + generator.normal(size=count)
    federation = tacit.data.from_table(table, task="site", target="cost")
    run = quick(federation, rounds=40, out=tmp_path / "run")
    again = SavedModels.load(tmp_path / "run")
    new = {name: values[:9] for name, values in table.items() if name != "cost"}
    before, after = run.predict(new, new["site"]), again.predict(new, new["site"])
    assert np.allclose(before, after, rtol=1e-6)
    assert np.corrcoef(before, table["cost"][:9])[0, 1] > 0.8  # original units, right rows
    with pytest.raises(TacitError, match="'nowhere' was not part of the training"):
        again.predict({name: values[:1] for name, values in new.items()}, ["nowhere"])
    stacked = load_file(tmp_path / "run" / "models" / "personal.safetensors")
    module = run.personal("s2").inner
    assert torch.allclose(stacked["weight"][2], module.weight)
    with pytest.raises(TacitError, match="there is no task 's9'"):
        run.personal("s9")


@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_a_personal_model_takes_raw_rows(kind):
    """What it says is what `predict` says: no scaling is left to the caller."""
    random = np.random.default_rng(0)
    x = 1e3 + 50 * random.normal(size=(160, 3))
    score = (x[:, 0] - 1e3) / 50 + np.sin((x[:, 1] - 1e3) / 20)
    y = {
        "regression": 200 + 30 * score,
        "binary": (score > 0).astype(int),
        "multiclass": np.digitize(score, [-0.5, 0.5]),
    }[kind]
    federation = tacit.data.from_arrays(x, y, np.repeat(["a", "b"], 80), kind=kind)
    run = tacit.train(federation, seed=0, baselines=False)
    out = run.personal("b")(torch.from_numpy(x[80:])).detach()
    wanted = run.predict(x[80:], ["b"] * 80)
    read = {"binary": torch.sigmoid, "multiclass": lambda out: out.softmax(dim=1)}
    assert np.allclose(read.get(kind, lambda out: out)(out).numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_probabilities_are_probabilities(make_federation, kind):
    federation = make_federation(kind=kind)
    run = quick(federation, FedAvg(batch=4))
    x, _ = federation.test.of(0)
    values = run.predict(x.numpy(), ["task-0"] * len(x))
    assert ((values >= 0) & (values <= 1)).all()
    if kind == "multiclass":
        assert np.allclose(values.sum(axis=1), 1, atol=1e-5)


def test_multilabel_trains():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 6)).astype(np.float32)
    y = (x[:, :3] > 0).astype(np.float32)
    federation = tacit.data.from_arrays(x, y, np.arange(200) % 10, kind="multilabel")
    run = quick(federation, PMTL(lr=1.0, batch=None), rounds=40)
    assert run.measured.overall["f1"] > 0.85


def test_alone_is_a_strong_baseline_that_stops_where_its_own_validation_rows_say():
    """Few rows, many features, much noise: training on overfits, and the baseline must not."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(600, 12)).astype(np.float32)
    y = x[:, 0] + 3 * generator.normal(size=600)
    federation = tacit.data.from_arrays(
        x, y, np.arange(600) % 30, scale="none", target_scale="none"
    )
    method = PMTL(lr=0.05, batch=None, pull=0.1)
    run = quick(federation, method, rounds=128, baselines=True)
    alone = quick(federation, Local(lr=0.05, batch=None), rounds=128)
    assert run.baselines["local"].overall["loss"] < 0.8 * alone.measured.overall["loss"]


def test_frozen_parameters_stay_as_they_are_and_are_not_shared(make_federation):
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    module[0].requires_grad_(False)
    run = quick(make_federation(), model=module, rounds=5)
    assert run.simulation.board["mean"].numel() == 9
    one = run.personal("task-0").inner
    assert torch.equal(one[0].weight, module[0].weight)
    assert not torch.equal(one[2].weight, module[2].weight)


def test_a_run_that_could_not_start_leaves_its_folder_free(make_federation, tmp_path):
    federation, folder = make_federation(), tmp_path / "run"
    with pytest.raises(TacitError, match="needs one number"):
        quick(federation, model=nn.Linear(4, 3), out=folder)
    quick(federation, model=nn.Linear(4, 1), out=folder)


def test_a_refused_second_run_does_not_disturb_the_first(make_federation, tmp_path):
    federation, folder = make_federation(), tmp_path / "run"
    quick(federation, out=folder, seed=None, privacy=Privacy(noise=3.0))
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(TacitError, match="already holds a run"):
        quick(federation, out=folder, seed=None, privacy=Privacy(noise=3.0))
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("given", [("age",), ("age", "y"), ("y",), ()])
def test_public_constants_for_some_columns(given, tmp_path):
    """Only what has none is voted on, and whatever that is, the run ends with its result."""
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(40), 8)
    age = rng.normal(50, 10, len(site))
    rows = {"site": site, "age": age, "y": 100 + age + rng.normal(0, 5, len(site))}
    schema = tacit.data.from_table(rows, task="site", target="y").schema
    columns = tuple(
        replace(one, scale=(50.0, 10.0) if one.name in given else None) for one in schema.columns
    )
    schema = replace(schema, columns=columns, target_scale=(150.0, 15.0) if "y" in given else None)
    federation = tacit.data.from_table(rows, schema=schema)
    run = train(federation, privacy=Privacy(epsilon=8.0), seed=0, out=tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["guarantee"]["releases"] == (4 if len(given) == 2 else 8)
    assert run.federation.target_scale is not None
    assert ("y" in given) == (run.federation.target_scale.scale == 15.0).all().item()
    assert (result["summary"]["farthest"] is None) == ("age" in given)
