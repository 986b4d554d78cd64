"""A silo's table: the rows it becomes, and every problem of it, named with its line."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from tacit.data import from_table
from tacit.data.federation import PARTS
from tacit.deploy.agreement import Agreement
from tacit.deploy.table import check, own_rows
from tacit.deploy.terms import agreed_of
from tacit.errors import TacitError
from tacit.experiment.auto import learned_from
from tacit.experiment.plan import Plan
from tacit.methods import METHODS

SILOS = ["north", "south", "west"]
COLUMNS = """
age = { range = [0, 120] }
sex = { flag = true }
cp = { categories = ["atypical", "none", "typical"] }
chol = { range = [0, 700], gaps = true }
fbs = { flag = true, gaps = true }
ecg = { categories = ["ST-T", "normal"], gaps = true }
"""
KINDS = {
    "binary": 'target = "y"\nkind = "binary"\nlabels = ["no", "yes"]',
    "multiclass": 'target = "y"\nkind = "multiclass"\nlabels = ["0", "1", "2"]',
    "regression": 'target = "y"\nkind = "regression"\nrange = [-50, 50]',
    "count": 'target = "y"\nkind = "count"\nrange = [0, 50]',
    "multilabel": 'target = ["y", "z"]\nkind = "multilabel"',
}


def agreed(tmp_path, kind="binary", more="", columns=COLUMNS):
    """Terms of three silos."""
    path = tmp_path / "consortium.toml"
    path.write_text(
        f'[consortium]\nname = "c"\nsilos = {SILOS}\n[data]\n{KINDS[kind]}\n{more}\n'
        f"[data.columns]\n{columns}\n[method]\nname = 'pmtl'\n"
    )
    return Agreement.read(path).terms


def tables(kind, seed=0) -> dict[str, pd.DataFrame]:
    """A table for each silo; means, gaps and shares of classes differ."""
    generator = np.random.default_rng(seed)
    made = {}
    for k, silo in enumerate(SILOS):
        rows = 17 + 8 * k
        holes = generator.random((rows, 4)) < 0.2
        targets = {
            "binary": generator.choice(["no", "yes"], rows),
            "multiclass": np.arange(rows) % 3,
            "regression": generator.normal(k, 1 + k, rows).round(3),
            "count": generator.poisson(2 + k, rows),
            "multilabel": generator.integers(0, 2, rows),
        }
        made[silo] = pd.DataFrame(
            {
                "extra": pd.date_range("2020-01-01", periods=rows),
                "age": generator.integers(20, 90, rows),
                "sex": generator.integers(0, 2, rows),
                "cp": [["atypical", "none", "typical"][i % 3] for i in range(rows)],
                "chol": np.where(holes[:, 0], np.nan, generator.normal(200 + 50 * k, 30, rows)),
                "fbs": np.where(holes[:, 1], np.nan, generator.integers(0, 2, rows)),
                "ecg": np.where(holes[:, 2], None, generator.choice(["normal", "ST-T"], rows)),
                "y": targets[kind],
                "z": np.where(holes[:, 3], np.nan, generator.integers(0, 2, rows)),
            }
        )
    return made


def save(table: pd.DataFrame, path):
    table.to_parquet(path) if path.suffix == ".parquet" else table.to_csv(path, index=False)
    return path


def joined(made, first, kind):
    """All rows in one process. The draw that splits a task is the same for whoever comes first."""
    order = [first, *(silo for silo in SILOS if silo != first)]
    table = pd.concat([made[silo].assign(silo=silo) for silo in order], ignore_index=True)
    targets = ["y", "z"] if kind == "multilabel" else "y"
    unused = ["extra"] if kind == "multilabel" else ["extra", "z"]
    return from_table(table, task="silo", target=targets, kind=kind, drop=unused, split_seed=5)


@pytest.mark.parametrize("name", ["mixed", "additive", "pmtl"])
def test_who_judges_by_no_rows_learns_from_them_as_in_one_process(tmp_path, name):
    terms, made = agreed(tmp_path, "binary", "split_seed = 5"), tables("binary")
    method = METHODS[name]()
    terms = dataclasses.replace(terms, method=agreed_of(Plan(method=method))["method"])
    for silo in SILOS:
        mine = own_rows(terms, silo, save(made[silo], tmp_path / f"{silo}.csv"))
        together = learned_from(joined(made, silo, "binary"), method)
        for part in PARTS:
            here = people(*mine.parts[part], mine.preprocessing)
            assert here == people(*together.part(part).of(0), together.preprocessing)
        assert bool(len(mine.parts["validation"][1])) == (name == "pmtl")


def people(x, y, units):
    """Ages and outcomes, as they are in the table."""
    ages = x[:, 0].double() * units.scale[0, 0] + units.shift[0, 0]
    return sorted(zip(ages.round().tolist(), y.tolist(), strict=True))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_silo_has_the_rows_that_one_process_with_all_tables_would_give_it(tmp_path, kind, suffix):
    terms, made = agreed(tmp_path, kind, "split_seed = 5"), tables(kind)
    for silo in SILOS:
        path = save(made[silo], tmp_path / f"{silo}.{suffix}")
        assert check(terms, silo, path).problems == ()
        mine, together = own_rows(terms, silo, path), joined(made, silo, kind)
        assert together.features == terms.features and together.outputs == terms.outputs
        for part in PARTS:
            x, y = together.part(part).of(0)
            torch.testing.assert_close(mine.parts[part][0], x, rtol=0, atol=0)
            torch.testing.assert_close(mine.parts[part][1], y, rtol=0, atol=0, equal_nan=True)
            assert mine.parts[part][1].dtype == y.dtype
        if kind == "regression":
            assert together.target_scale is not None and mine.target_scale is not None
            assert mine.target_scale.shift.tolist() == together.target_scale.shift[:1].tolist()
            assert mine.target_scale.scale.tolist() == together.target_scale.scale[:1].tolist()
        else:
            assert mine.target_scale is None


def test_new_rows_are_read_as_those_that_were_trained_on(tmp_path):
    terms, table = agreed(tmp_path), tables("binary")["west"]
    mine = own_rows(terms, "west", save(table, tmp_path / "a.csv"))
    assert mine.schema is not None and mine.preprocessing is not None
    assert (mine.schema.task, mine.schema.target) == ("silo", ("y",))
    x, names = mine.schema.matrix(table.drop(columns=["y", "extra"]))
    seen = mine.preprocessing.apply(x, 0)
    assert names == terms.features and not seen.isnan().any()
    known = torch.cat([mine.parts[part][0] for part in PARTS])
    assert sorted(map(tuple, seen.tolist())) == sorted(map(tuple, known.tolist()))


def test_the_rows_fit_into_the_federation_of_the_run(tmp_path):
    terms = agreed(tmp_path, "regression")
    mine = own_rows(terms, "south", save(tables("regression")["south"], tmp_path / "a.csv"))
    federation = terms.federation({1: mine})
    assert federation.train.counts.tolist() == [0, 15, 0]
    assert torch.equal(federation.train.of(1)[0], mine.parts["train"][0])


def test_a_number_that_happens_to_be_0_or_1_is_scaled_and_a_flag_that_varies_little_is_not(
    tmp_path,
):
    """Types are agreed: a silo's rows must not change what a column means."""
    table = tables("binary")["north"].assign(age=[0, 1] * 8 + [0], sex=0, chol=np.nan)
    mine = own_rows(agreed(tmp_path), "north", save(table, tmp_path / "a.csv"))
    x = mine.parts["train"][0]
    assert x[:, 0].mean().abs() < 1e-6 and x[:, 0].min() < 0
    assert (x[:, 1] == 0).all()
    assert (x[:, 5] == 0).all() and (x[:, 6] == 1).all()  # a column of nothing but gaps


def test_silos_of_a_mixed_model_scale_by_the_agreed_ranges(tmp_path):
    made = tables("regression")
    terms = dataclasses.replace(agreed(tmp_path, "regression"), method={"name": "mixed"}, rounds=4)
    for silo in SILOS:
        own = own_rows(terms, silo, save(made[silo], tmp_path / f"{silo}.csv"))
        assert own.preprocessing is not None and own.target_scale is not None
        shift, scale = own.preprocessing.shift[0], own.preprocessing.scale[0]
        assert (shift[0], scale[0]) == (60.0, 30.0) and 350.0 in shift and 175.0 in scale
        assert (float(own.target_scale.shift[0]), float(own.target_scale.scale[0])) == (0.0, 25.0)


def test_labels_that_a_silo_does_not_hold_are_missing_and_never_read(tmp_path):
    heads = '[data.heads]\nnorth = ["y"]\nsouth = ["y", "z"]\nwest = ["z"]\n'
    terms = agreed(tmp_path, "multilabel", columns=COLUMNS + heads)
    made = tables("multilabel")
    broken = made["north"].assign(z="nonsense")
    for table in (broken, made["north"].drop(columns="z")):
        y = own_rows(terms, "north", save(table, tmp_path / "a.csv")).parts["train"][1]
        assert y.shape == (11, 2) and y[:, 1].isnan().all() and not y[:, 0].isnan().any()
    assert check(terms, "south", save(broken, tmp_path / "a.csv")).problems == (
        "column 'z' is not a number in 17 rows, first 'nonsense' in row 1 (line 2 of a.csv): "
        "correct it",
    )


def test_classes_are_coded_in_the_agreed_order_and_numbers_are_the_same_however_written(tmp_path):
    table = tables("binary")["north"].assign(y=["1.0", "0"] * 8 + ["01"])
    terms = agreed(tmp_path, "multiclass", "validation = 0\ntest = 0")
    y = own_rows(terms, "north", save(table, tmp_path / "a.csv")).parts["train"][1]
    assert y.tolist() == [1, 0] * 8 + [1]
    table = table.assign(y=["yes", "no"] * 8 + ["no"])
    backwards = tmp_path / "consortium.toml"
    backwards.write_text(backwards.read_text().replace('["0", "1", "2"]', '["yes", "no"]'))
    y = own_rows(Agreement.read(backwards).terms, "north", save(table, tmp_path / "a.csv"))
    assert y.parts["train"][1].tolist() == [0, 1] * 8 + [1]


GOOD = {"age": "50", "sex": "1", "cp": "none", "chol": "", "fbs": "NA", "ecg": "?", "y": "yes"}
PROBLEMS = [
    ({1: {"age": "old"}, 3: {"age": "x"}},
     "column 'age' is not a number in 2 rows, first 'old' in row 2 (line 3 of a.csv): correct it"),
    ({2: {"age": "130"}, 3: {"age": "-1"}},
     "column 'age' is outside 0 to 120 in 2 rows, first '130' in row 3 (line 4 of a.csv): correct "
     "it, or agree on another range with all silos"),
    ({3: {"chol": "inf"}}, "column 'chol' is outside 0 to 700 in 1 row, first 'inf' in row 4"),
    ({0: {"age": ""}},
     "column 'age' is empty in 1 row, first in row 1 (line 2 of a.csv): fill it in, or agree on "
     "gaps with all silos"),
    ({4: {"sex": "2"}}, "column 'sex' is neither 0 nor 1 in 1 row, first '2' in row 5 (line 6 of"),
    ({4: {"sex": "f"}}, "column 'sex' is not a number in 1 row, first 'f' in row 5 (line 6 of"),
    ({4: {"fbs": "0.5"}}, "column 'fbs' is neither 0 nor 1 in 1 row, first '0.5' in row 5"),
    ({1: {"cp": "None"}, 5: {"cp": "x"}},
     "column 'cp' is not an agreed category in 2 rows, first 'None' in row 2 (line 3 of a.csv): "
     "write one of 'atypical', 'none', 'typical', or agree on another list with all silos"),
    ({1: {"cp": ""}}, "column 'cp' is empty in 1 row, first in row 2 (line 3 of a.csv)"),
    ({1: {"cp": "(missing)"}}, "column 'cp' is not an agreed category in 1 row, first '(missing)'"),
    ({1: {"y": "maybe"}},
     "column 'y' is not an agreed class in 1 row, first 'maybe' in row 2 (line 3 of a.csv): "
     "write one of 'no', 'yes', or agree on another list with all silos"),
    ({1: {"y": ""}, 2: {"y": "?"}},
     "column 'y' is empty in 2 rows, first in row 2 (line 3 of a.csv): fill it in, or remove the"),
]  # fmt: skip


def written(tmp_path, changes, rows=8):
    lines = [GOOD | {"y": ["no", "yes"][k % 2]} | changes.get(k, {}) for k in range(rows)]
    return save(pd.DataFrame(lines), tmp_path / "a.csv")


@pytest.mark.parametrize("changes, words", PROBLEMS)
def test_each_problem_is_one_sentence_with_column_line_and_remedy(tmp_path, changes, words):
    found = check(agreed(tmp_path), "north", written(tmp_path, changes))
    assert len(found.problems) == 1 and found.problems[0].startswith(words)
    assert found.rows == 8 and ": " in found.problems[0] and "\n" not in found.problems[0]


def test_all_problems_are_found_at_once_and_the_first_stops_the_run(tmp_path):
    changes: dict[int, dict[str, str]] = {}
    for row, (cells, _) in enumerate(PROBLEMS):
        changes[row] = next(iter(cells.values()))
    path = written(tmp_path, changes, rows=20)
    terms = agreed(tmp_path)
    found = check(terms, "north", path).problems
    about = [sentence.split(" in ")[0] for sentence in found]
    assert sorted(about) == sorted({words.split(" in ")[0] for _, words in PROBLEMS})
    with pytest.raises(TacitError) as caught:
        own_rows(terms, "north", path)
    assert str(caught.value) == f"{found[0]} (and {len(found) - 1} more such problems)"


def test_the_unchanged_table_has_no_problem(tmp_path):
    found = check(agreed(tmp_path), "north", written(tmp_path, {}))
    assert (found.problems, found.warnings, found.rows) == ((), (), 8)


def test_missing_columns_are_named_with_what_was_perhaps_meant(tmp_path):
    path = written(tmp_path, {})
    table = pd.read_csv(path, dtype=str).rename(columns={"age": "AGE", "chol": "cholest", "y": "?"})
    found = check(agreed(tmp_path), "north", save(table, path)).problems
    assert found == (
        "a.csv has no column 'age': add it, or rename one; did you mean 'AGE'?",
        "a.csv has no column 'chol': add it, or rename one; did you mean 'cholest'?",
        "a.csv has no column 'y': add it, or rename one",
    )
    capitals = agreed(tmp_path, columns=COLUMNS.replace("age", "AGE"))
    (problem,) = check(capitals, "north", written(tmp_path, {})).problems
    assert problem.endswith("did you mean 'age'?")


def test_a_silo_may_lack_a_column_that_was_agreed_to_have_gaps(tmp_path):
    made = tables("regression")["north"]
    path = save(made.drop(columns="chol"), tmp_path / "a.csv")
    terms = agreed(tmp_path, "regression")
    found = check(terms, "north", path)
    assert not found.problems
    said = "column 'chol' is not in a.csv, and counts as missing in every row"
    assert found.warnings == (said,)
    own = own_rows(terms, "north", path)
    without = own_rows(terms, "north", save(made.assign(chol=np.nan), tmp_path / "b.csv"))
    for part, (x, y) in own.parts.items():
        assert torch.equal(x, without.parts[part][0]) and torch.equal(y, without.parts[part][1])
    # The middle of an agreed range is no end of it.
    mixed = dataclasses.replace(terms, method={"name": "mixed"}, rounds=4)
    x, _ = own_rows(mixed, "north", path).parts["train"]
    place = terms.features.index("chol")
    assert (x[:, place] == 0).all() and (x[:, place + 1] == 1).all()
    (problem,) = check(terms, "north", save(made.drop(columns="age"), path)).problems
    assert problem == "a.csv has no column 'age': add it, or rename one"


def test_parquet_has_rows_and_no_lines(tmp_path):
    table = tables("regression")["north"].assign(age=200.5, ecg=pd.Timestamp("2020-01-01"))
    table.loc[3, "y"] = 51
    found = check(agreed(tmp_path, "regression"), "north", save(table, tmp_path / "a.parquet"))
    assert [problem.split(": ")[0] for problem in found.problems] == [
        "column 'age' is outside 0 to 120 in 17 rows, first '200.5' in row 1",
        "column 'ecg' of a.parquet holds dates, times or complex numbers",
        "column 'y' is outside -50 to 50 in 1 row, first '51' in row 4",
    ]


def test_too_few_rows_to_split(tmp_path):
    path = written(tmp_path, {}, rows=2)
    (problem,) = check(agreed(tmp_path), "north", path).problems
    assert problem.startswith("a.csv has 2 rows, too few to split: 3 are needed, or agree")
    assert check(agreed(tmp_path, more="test = 0"), "north", path).problems == ()


@pytest.mark.parametrize(
    "kind, targets, words",
    [
        ("binary", {"y": "yes"}, "column 'y' has only the class 'yes' in the 4 rows to train on"),
        ("multiclass", {"y": 2}, "column 'y' has only the class '2' in the 4 rows to train on"),
        ("regression", {"y": 1.5}, "column 'y' has only the value 1.5 in the 4 rows to train on"),
        ("multilabel", {"y": [0, 1] * 4, "z": 1}, "column 'z' has only the value 1 in the 4 rows"),
    ],
)
def test_a_target_that_never_varies_is_a_warning(tmp_path, kind, targets, words):
    path = written(tmp_path, {})
    save(pd.read_csv(path, dtype=str, keep_default_na=False).assign(**targets), path)
    terms = agreed(tmp_path, kind)
    found = check(terms, "north", path)
    assert found.problems == () and len(found.warnings) == 1
    assert found.warnings[0].startswith(words)
    assert len(own_rows(terms, "north", path).parts["train"][1]) == 4


def test_a_label_that_nobody_wrote_down_is_a_problem(tmp_path):
    table = tables("multilabel")["north"].assign(z=np.nan)
    path = save(table, tmp_path / "a.csv")
    (problem,) = check(agreed(tmp_path, "multilabel"), "north", path).problems
    assert problem.startswith("column 'z' of a.csv is empty in every row: fill it in, or agree")


def test_a_file_that_cannot_be_read_is_a_problem_and_an_unknown_silo_a_mistake(tmp_path):
    terms = agreed(tmp_path)
    (problem,) = check(terms, "north", tmp_path / "none.csv").problems
    assert "none.csv does not exist" in problem
    with pytest.raises(TacitError, match="there is no silo 'east'; there are north, south, west"):
        check(terms, "east", tmp_path / "none.csv")


def test_looking_writes_nothing(tmp_path):
    terms, path = agreed(tmp_path), written(tmp_path, {2: {"age": "130"}})
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    check(terms, "north", path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
