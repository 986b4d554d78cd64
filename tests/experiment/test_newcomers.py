"""Tables read by the formula of a run, and tasks that did not take part in it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import tacit
from tacit.engine.progress import silent
from tacit.errors import TacitError
from tacit.experiment.models import SavedModels
from tacit.formula import FormulaSchema, design, parse
from tacit.privacy import accounting
from tests.conftest import arrays

TEXT = "log(y) ~ x * town + I(x > 5) + C(grade) + C(x > 4) + flag + (1 + x | school)"


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    schools, rows = 60, 360
    x, town = generator.normal(5, 2, rows), generator.choice(["Bern", "Basel", "Biel"], rows)
    level = np.repeat(generator.normal(size=schools), rows // schools)
    return pd.DataFrame(
        {
            "school": np.repeat([f"s{k}" for k in range(schools)], rows // schools),
            "x": x,
            "town": pd.Categorical(town, ["Biel", "Bern", "Basel"]),
            "grade": generator.choice([1, 2, 10], rows),
            "flag": generator.random(rows) < 0.5,
            "y": np.exp(0.2 * x + level + 0.1 * generator.normal(size=rows)),
            "count": generator.poisson(np.exp(0.1 * x)),
            "answer": np.where(generator.random(rows) < 0.4, "yes", "no"),
            "party": generator.choice(["left", "middle", "right"], rows),
        }
    )


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:  # how much ε is exactly, is no matter here
        patch.setattr(accounting, "_interval", lambda *given: 1e-2)
        made = tacit.mixed(TEXT, table, epsilon=12.0, seed=0, out=folder / "one", progress=silent)
    return made, SavedModels.load(folder / "one")


def test_a_saved_formula_reads_a_few_rows_as_it_read_all(table, tmp_path):
    """Whatever categories are there, in whatever file they come."""
    found = design(parse(TEXT), table)
    schema = FormulaSchema.from_json(found.schema.to_json())
    table.drop(columns=["y", "count"]).to_csv(tmp_path / "new.csv", index=False)
    for new in (table.iloc[:3], tmp_path / "new.csv", table.astype({"town": str})):
        x, names = schema.matrix(new)
        assert names == found.names
        np.testing.assert_array_equal(x, found.x[: len(x)])
    np.testing.assert_array_equal(schema.answers(table), found.y)


def test_run_and_folder_predict_a_table_alike(table, run):
    made, saved = run
    own = made.predict(table)
    assert np.corrcoef(own, np.log(table["y"]))[0, 1] > 0.9
    np.testing.assert_allclose(saved.predict(table.drop(columns="y")), own)
    by_hand = made.predict(design(parse(TEXT), table).x, table["school"])
    np.testing.assert_array_equal(by_hand, own)


def test_who_did_not_take_part_gets_what_is_public(table, run):
    made, saved = run
    beta = np.array([each.shrunk for each in made.summary().coefficients])
    expected = beta[0] + design(parse(TEXT), table).x @ beta[1:]
    guests = table.assign(school="elsewhere")
    for one in run:
        np.testing.assert_allclose(one.predict(guests), expected, rtol=1e-4)
    both = pd.concat([table.iloc[:5], guests.iloc[:5], table.iloc[5:10]], ignore_index=True)
    parts = np.concatenate([made.predict(table)[:5], expected[:5], made.predict(table)[5:10]])
    np.testing.assert_allclose(saved.predict(both), parts, rtol=1e-4)


def test_a_newcomer_with_rows_ends_where_a_task_with_these_rows_ended(table, run):
    """The same step on the same billboard, so the same model."""
    twin = table[table["school"] == "s7"].assign(school="twin")
    expected = run[0].predict(table[table["school"] == "s7"])
    for one in run:
        np.testing.assert_allclose(one.predict(twin, join=twin), expected, rtol=1e-5)
        alone = pd.concat([twin, twin.assign(school="nobody")])
        others = one.predict(alone, join=twin)[len(twin) :]
        assert abs(others - expected).max() > 0.05
    with pytest.raises(TacitError, match="'s0' took part, and has its model"):
        run[0].predict(twin, join=table)


def test_a_new_task_has_a_model_for_its_rows(table, run):
    """The same as predictions of a table that it joins by, and the same from a folder."""
    twin = table[table["school"] == "s7"].assign(school="twin")
    x = design(parse(TEXT), table).x[(table["school"] == "s7").to_numpy()]
    for one in run:
        made = one.model_for("twin", twin, np.log(twin["y"]))
        expected = one.predict(twin, join=twin)
        found = made(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        again = one.model_for("twin", x, np.log(twin["y"]).to_numpy())
        np.testing.assert_array_equal(again(torch.tensor(x)).detach().numpy(), found)
    for given, words in (
        (("s7", x, np.zeros(len(x))), "'s7' took part"),
        (("twin", x, np.zeros(3)), "rows but 3 targets"),
        (("twin", x[:0], []), "0 rows"),
        (("twin", x, ["much"] * len(x)), "not a finite number"),
        (("twin", x, np.full(len(x), np.nan)), "not a finite number"),
        (("twin", x + np.inf, np.zeros(len(x))), "missing or infinite"),
    ):
        with pytest.raises(TacitError, match=words):
            run[0].model_for(*given)


def test_a_new_task_names_its_classes():
    rng = np.random.default_rng(0)
    x, names = rng.standard_normal((180, 2)), np.repeat(np.arange(15), 12)
    y = np.array(["red", "green", "blue"])[(x @ rng.standard_normal((2, 3))).argmax(axis=1)]
    fixed = {"scale": "none", "validation": 0, "test": 0}
    federation = tacit.data.from_arrays(x, y, names, kind="multiclass", **fixed)
    few = {"seed": 0, "rounds": 8, "baselines": False, "personalise": "none"}
    run = tacit.train(federation, tacit.Mixed(), **few)
    made = run.model_for("new", x[:40], y[:40])(torch.tensor(x)).argmax(dim=1)
    assert (np.array(federation.labels)[made.numpy()] == y).mean() > 0.85
    with pytest.raises(TacitError, match="'mauve' is not a class of this run: they are "):
        run.model_for("new", x[:2], ["red", "mauve"])


@pytest.mark.parametrize(
    ("target", "kind"), [("count", "count"), ("answer", None), ("party", "multiclass")]
)
def test_newcomers_have_outcomes_of_every_kind(table, target, kind):
    text = f"{target} ~ x + (1 | school)"
    made = tacit.mixed(text, table, kind=kind, rounds=8, progress=silent)
    twin = table[table["school"] == "s7"].assign(school="twin")
    expected = made.predict(table[table["school"] == "s7"])
    np.testing.assert_allclose(made.predict(twin, join=twin), expected, rtol=1e-4)
    assert abs(made.predict(twin) - expected).max() > 1e-4


@pytest.mark.parametrize("target", ["y", "count", "answer", "party"])
def test_a_model_of_levels_alone(table, target, tmp_path):
    more = {"epsilon": 4.0, "seed": 0} if target == "y" else {"rounds": 8}
    kind, out = "count" if target == "count" else None, tmp_path / "r"
    text = f"{target} ~ 1 + (1 | school)"
    made = tacit.mixed(text, table, kind=kind, out=out, progress=silent, **more)  # type: ignore[arg-type]
    found = made.summary()
    assert [each.name.split(": ")[-1] for each in found.coefficients] == ["intercept"] * (
        3 if target == "party" else 1
    )
    if target != "party":
        assert found.marginal == 0 and found.conditional == pytest.approx(found.icc)
    assert "intercept" in str(found)
    rows = table[["school"]].iloc[:7]
    np.testing.assert_allclose(SavedModels.load(tmp_path / "r").predict(rows), made.predict(rows))
    assert "Shared coefficients" in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    if target == "y":
        one_school = table[table["school"] == "s3"]
        assert made.predict(one_school)[0] == pytest.approx(one_school["y"].mean(), rel=0.3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"town": "Thun"}, "'Thun' was not there in training"),
        ({"grade": 3}, "was not there in training"),
        ({"x": None}, "missing in 3 rows"),
        ({"x": "many"}, "is not a number"),
        ({"flag": "perhaps"}, "neither true nor false"),
        ({"school": None}, "has no task"),
    ],
)
def test_new_tables_that_cannot_be_read_get_one_sentence(table, run, change, words):
    new = table.iloc[:3].astype({name: object for name in change}).assign(**change)
    with pytest.raises(TacitError, match=words) as found:
        run[1].predict(new)
    assert "\n" not in str(found.value)
    with pytest.raises(TacitError, match="there is no column 'town'"):
        run[1].predict(table.drop(columns="town"))


def test_where_nothing_public_is_a_model_it_is_said():
    x, y, names = arrays(6, 3, "regression")
    few = {"seed": 0, "rounds": 3, "baselines": False, "personalise": "none"}
    table = {"task": names, "y": y, "x": x[:, 0]}
    new = {"task": ["new"], "x": [1.0]}
    own = tacit.data.from_table(table, task="task", target="y")
    with pytest.raises(TacitError, match="scaled inside each task"):
        tacit.train(own, tacit.PMTL(), **few).predict(new)
    fixed = tacit.data.from_table(
        table, task="task", target="y", scale="none", target_scale=(0.0, 1.0)
    )
    with pytest.raises(TacitError, match="nothing was published"):
        tacit.train(fixed, tacit.Local(), **few).predict(new)
    shared = tacit.train(fixed, tacit.PMTL(), **few)
    assert np.isfinite(shared.predict(new)).all()
    with pytest.raises(TacitError, match="train by gradient steps"):
        shared.predict(new, join={"task": ["new"], "x": [1.0], "y": [2.0]})
    with pytest.raises(TacitError, match="pass tasks too"):
        shared.predict(np.zeros((2, 1)))


def test_new_tasks_of_a_table_without_a_formula_are_served_too():
    x, y, names = arrays(30, 3, "regression", rows=(8, 12))
    table = pd.DataFrame({"task": names, "y": 1e3 * y + 50, "x": x[:, 0], "z": x[:, 1]})
    federation = tacit.data.from_table(table, task="task", target="y", validation=0, test=0)
    run = tacit.train(federation, tacit.Mixed(), seed=0, baselines=False, personalise="none")
    one = table[table["task"] == names[0]]
    twin = one.assign(task="twin")
    np.testing.assert_allclose(run.predict(twin, join=twin), run.predict(one), rtol=1e-4)
