"""The verdict says what the paired interval says, and no more."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import tacit
from tacit.experiment.verdict import OWN_MEAN, UNCHANGED, RunFacts, by_row, judge
from tacit.metrics import Metrics, evaluate

MANY = RunFacts(tasks=12, epsilon=1.0)


def scores(losses, kind="binary") -> Metrics:
    values = np.asarray(losses, dtype=np.float64)
    rows, mean = np.full(len(values), 10), float(np.nanmean(values)) if len(values) else None
    return Metrics(kind, rows, {"loss": values}, {"loss_per_task": mean})


def paired(gain, *, spread=0.02, tasks=12, seed=0):
    rng = np.random.default_rng(seed)
    alone = rng.uniform(0.4, 0.8, tasks)
    return scores(alone - gain - spread * rng.normal(size=tasks)), scores(alone)


@pytest.mark.parametrize("seed", range(40))
def test_it_agrees_with_the_paired_interval(seed):
    rng = np.random.default_rng(seed)
    ours, alone = paired(rng.normal(0, 0.02), tasks=int(rng.integers(2, 30)), seed=seed)
    before, after = alone.per_task["loss"], ours.per_task["loss"]
    low, high = stats.ttest_rel(before, after).confidence_interval(0.95)
    found = judge(ours, alone, MANY)
    assert found.outcome == ("helped" if low > 0 else "lost" if high < 0 else "unclear")
    assert found.colour == ("green" if low > 0 else "grey")
    assert found.difference is not None and found.relative is not None
    np.testing.assert_allclose((found.difference.low, found.difference.high), (low, high))
    np.testing.assert_allclose(found.relative.mean, 1 - after.mean() / before.mean())
    same = abs(before - after) <= UNCHANGED * np.maximum(before, after)
    expected = [((before > after) & ~same).sum(), ((before < after) & ~same).sum(), same.sum()]
    assert [found.gained, found.lost, found.unchanged] == expected
    said = {
        "helped": "Taking part helped",
        "lost": "Taking part did not help",
        "unclear": "It is unclear whether taking part helped",
    }
    assert found.sentences[0].startswith(said[found.outcome])
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize("losses", [([], []), ([0.5], [0.6]), ([0.5, math.nan], [0.6, math.nan])])
def test_with_less_than_two_tasks_nothing_is_said(losses):
    found = judge(scores(losses[0]), scores(losses[1]), MANY)
    assert (found.outcome, found.colour, found.difference) == ("unknown", "grey", None)
    said = ("It is unclear whether taking part", "One task is too few to say whether taking part")
    assert found.sentences[0].startswith(said)
    json.dumps(found.to_json(), allow_nan=False)


def test_tasks_without_scores_are_left_out():
    ours, alone = paired(0.1)
    whole = judge(ours, alone, MANY)
    for side in (ours, alone):
        side.per_task["loss"] = np.append(side.per_task["loss"], math.nan)
    found = judge(ours, alone, MANY)
    assert (found.left_out, found.difference) == (1, whole.difference)
    assert found.gained + found.lost + found.unchanged == 12


@pytest.mark.parametrize("gain", [0.1, -0.1, 0.0])
def test_what_went_wrong_is_red_and_comes_first(gain):
    broken = RunFacts(tasks=12, broken=("3 contributions were dropped",))
    found = judge(*paired(gain), broken)
    assert found.colour == "red"
    assert "3 contributions were dropped" in found.sentences[0]
    assert found.outcome == judge(*paired(gain), MANY).outcome
    assert judge(paired(gain)[0], None, broken).colour == "red"


def test_a_model_without_a_usable_score_is_a_loss_and_red():
    ours, alone = paired(0.1)
    ours.per_task["loss"][3] = math.inf
    found = judge(ours, alone, MANY)
    assert found.colour == "red"
    assert found.lost == 1
    assert "1 task ended with a model that has no usable score" in found.sentences[0]


def test_why_it_did_not_help():
    ours, alone = paired(-0.05)
    better, nor, wide = paired(0.1)[0], paired(0.0, spread=0.002)[0], paired(0.01, spread=0.2)[0]
    reasons = [judge(ours, alone, MANY, not_private=each).why for each in (better, nor, wide)]
    assert reasons == ["noise", "unlike", "few rows"]
    assert judge(ours, alone, MANY).why == "untold"
    assert judge(ours, alone, RunFacts(tasks=12)).why == "unlike"  # nothing hides that it was noise
    assert judge(better, alone, MANY, not_private=better).why is None
    noisy = judge(ours, alone, MANY, not_private=better)
    assert "twice the ε" in noisy.sentences[-1]
    assert "person" in noisy.sentences[-1]
    many = judge(ours, alone, RunFacts(tasks=900, epsilon=1.0), not_private=better)
    assert "person" not in many.sentences[-1]
    unused = RunFacts(tasks=12, epsilon=1.0, used=0.03)
    said = " ".join(judge(ours, alone, unused, not_private=nor).sentences)
    assert "Only 3.0 % of what tasks end with comes from the others" in said


def test_what_is_sure_is_not_called_unclear_and_noise_is_no_reason_where_there_is_none():
    ours, alone = paired(-0.1)
    wide = scores(alone.per_task["loss"] + np.linspace(-0.3, 0.3, 12))
    found = judge(ours, alone, MANY, not_private=wide)
    assert (found.outcome, found.why) == ("lost", "few rows")
    assert found.sentences[-1].startswith("There are too few tasks, or too few scored rows, to ")
    assert "to tell why" in found.sentences[-1]
    found = judge(wide, alone, RunFacts(tasks=12, epsilon=math.inf))
    assert (found.outcome, found.why) == ("unclear", "few rows")
    assert "noise" not in " ".join(found.sentences)


def test_it_names_those_who_are_too_few_for_the_noise():
    ours, alone = paired(-0.05)
    better = scores(alone.per_task["loss"] - 0.1)
    said = " ".join(judge(ours, alone, MANY, not_private=better).sentences)
    assert "with 12 tasks, ε = " in said and "--unit person" in said
    persons = RunFacts(tasks=12, epsilon=1.0, hidden="person", crowd=300)
    said = " ".join(judge(ours, alone, persons, not_private=better).sentences)
    assert "with 300 persons, ε = " in said and "Twice as many persons" in said
    assert "--unit" not in said


def test_training_alone_must_beat_the_own_mean_to_be_what_counts():
    ours, alone = paired(0.05)
    low = scores(alone.per_task["loss"] - 0.2)
    assert judge(ours, alone, MANY, constant=scores(alone.per_task["loss"] + 1)).colour == "green"
    found = judge(ours, alone, MANY, constant=low)
    assert (found.outcome, found.against) == ("lost", OWN_MEAN)


def test_where_nothing_is_lost_alone_there_is_no_share_to_name():
    found = judge(scores([0.2, 0.2, 0.21]), scores([0.0, 0.0, 0.0]), MANY)
    assert (found.outcome, found.lost) == ("lost", 3)
    assert "log loss (mean over tasks) is higher" in found.sentences[0]
    assert found.to_json()["relative"] is None
    json.dumps(found.to_json(), allow_nan=False)


def test_a_silo_judges_by_its_rows():
    rng = np.random.default_rng(0)
    y, out = rng.integers(0, 2, 60).astype(float), rng.normal(size=60)
    ours, alone = (
        by_row(evaluate("binary", said, y, np.array([0, 60]))) for said in (out + 3 * y - 1.5, out)
    )
    np.testing.assert_allclose(
        ours.per_task["loss"], np.logaddexp(0, (1 - 2 * y) * (out + 3 * y - 1.5))
    )
    found = judge(ours, alone, RunFacts(tasks=4, epsilon=1.0, party="row", best_alone="its own"))
    assert found.outcome == "helped"
    assert "of 60 rows gained" in found.sentences[0]


def test_without_a_comparison_nothing_is_claimed():
    ours, alone = paired(0.1)
    for given in (
        judge(ours, None, MANY),
        judge(ours, alone, RunFacts(tasks=12, unseen=False)),
        judge(ours, alone, RunFacts(tasks=12, shares=False)),
    ):
        assert (given.outcome, given.colour, len(given.sentences)) == ("unknown", "grey", 1)


def table(tasks, rows, *, alike, seed=0):
    rng = np.random.default_rng(seed)
    task, x = np.repeat(np.arange(tasks), rows), rng.normal(size=(tasks * rows, 4))
    own = np.array([1.0, -1.0, 0.5, 0.0]) if alike else 2 * rng.normal(size=(tasks, 4))[task]
    y = (x * own).sum(axis=1) + 0.3 * rng.normal(size=tasks)[task] + rng.normal(size=len(task))
    return pd.DataFrame(x, columns=list("abcd")).assign(y=y, site=task.astype(str))


def test_sharing_helps_small_tasks_that_are_alike(tmp_path):
    federation = tacit.data.from_table(table(80, 10, alike=True), task="site", target="y")
    private = tacit.Privacy(epsilon=4.0)
    run = tacit.train(federation, privacy=private, seed=0, out=tmp_path / "run")
    assert (run.verdict.outcome, run.verdict.colour) == ("helped", "green")
    assert run.baselines.keys() == {"constant", "local", "global", "open"}
    loss = {name: found.overall["loss_per_task"] for name, found in run.baselines.items()}
    assert loss["open"] < loss["local"] < loss["constant"]
    written = json.loads((tmp_path / "run" / "result.json").read_text())["verdict"]
    assert written == json.loads(json.dumps(run.verdict.to_json()))
    assert written["label"] == "not covered by the guarantee"
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.index("Taking part helped") < page.index("Guarantee")


def test_sharing_helps_nobody_whose_rows_are_many_and_unlike():
    federation = tacit.data.from_table(table(8, 200, alike=False), task="site", target="y")
    run = tacit.train(federation, privacy=tacit.Privacy(epsilon=1.0), seed=0)
    found = run.verdict
    # Seeds differ in whether the interval is narrow enough to say so.
    assert found.outcome in ("none", "unclear")
    assert found.relative is not None and abs(found.relative.mean) < 0.01
    assert (found.colour, found.why) == ("grey", "unlike")
    assert "open" in run.baselines
    assert "does not help even without privacy" in " ".join(found.sentences)


def test_what_is_drowned_in_noise_does_not_pass_for_help():
    # The last step of a mixed model beats other models of so few rows, whatever others said.
    federation = tacit.data.from_table(table(80, 12, alike=True), task="site", target="y")
    run = tacit.train(federation, privacy=tacit.Privacy(noise=5000.0), seed=0)
    assert run.verdict.colour == "grey"
    assert run.verdict.why == "noise"


def test_a_run_that_breaks_off_or_drops_is_red(make_federation):
    given = {"model": "linear", "rounds": 3, "seed": 0, "personalise": "none"}
    run = tacit.train(make_federation(), tacit.FedAvg(lr=1e25, local_steps=3), **given)
    assert run.verdict.colour == "red"
    assert "went wrong" in run.verdict.sentences[0]
