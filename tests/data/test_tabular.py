"""Tables: what is read, how it becomes a matrix, and the sentence for every bad cell."""

import builtins
import csv
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tacit.data import Schema, from_table, load, read_table
from tacit.data.federation import PARTS
from tacit.data.reading import as_table
from tacit.data.tabular import LABELLED, plain_text, write_predictions
from tacit.errors import TacitError

GOOD = "site,age,sex,y\n" + "".join(
    f"{'north' if i % 2 else 'south'},{20 + i},{'FM'[i % 3 == 0]},{i * 0.5}\n" for i in range(12)
)


def write(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def error(table, **options) -> str:
    with pytest.raises(TacitError) as caught:
        from_table(table, **{"task": "site", "target": "y", **options})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same(a, b):
    assert (list(a.names), a.kind, a.features, a.labels) == (
        list(b.names), b.kind, b.features, b.labels
    )  # fmt: skip
    for part in PARTS:
        assert torch.equal(a.part(part).x, b.part(part).x)
        assert torch.equal(a.part(part).y, b.part(part).y)


def test_every_way_in_gives_the_same_federation(tmp_path):
    plain = from_table(write(tmp_path, GOOD), task="site", target="y")
    assert plain.features == ("age", "sex=M") and plain.kind == "regression"
    assert plain.source == "t.csv"
    frame = pd.read_csv(tmp_path / "t.csv")
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "t.parquet")
    for name, data in {
        "bom.csv": b"\xef\xbb\xbf" + GOOD.encode(),
        "semi.csv": GOOD.replace(",", ";"),
        "tab.csv": GOOD.replace(",", "\t"),
        "crlf.csv": GOOD.replace("\n", "\r\n"),
        "blank.csv": GOOD.replace("\n", "\n\n"),
        "quoted.csv": GOOD.replace("north", '"north"').replace("age", '" age "'),
        "t.csv.gz": gzip.compress(GOOD.encode()),
    }.items():
        same(from_table(write(tmp_path, data, name), task="site", target="y"), plain)
    same(load(tmp_path / "t.parquet", task="site", target="y"), plain)
    same(from_table(frame, task="site", target="y"), plain)
    same(from_table(frame.to_dict("list"), task="site", target="y"), plain)


def test_dataframes_need_no_pandas(monkeypatch):
    class Series:
        def __init__(self, values):
            self.values = values

        def to_numpy(self):
            return np.array(self.values)

    class Frame:
        columns = ("site", "a", "y")

        def __getitem__(self, name):
            return Series({"site": ["p", "q"] * 4, "a": range(8), "y": [0, 0, 1, 1] * 2}[name])

    real = builtins.__import__

    def no_pandas(name, *args, **kwargs):
        assert name.split(".")[0] not in ("pandas", "pyarrow")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_pandas)
    assert from_table(Frame(), task="site", target="y").kind == "binary"


def test_pandas_gaps_of_all_sorts():
    frame = pd.DataFrame(
        {
            "site": ["p", "q"] * 4,
            "i": pd.array([1, 2, None, 4, 5, 6, 7, 8], dtype="Int64"),
            "s": pd.array(["u", "v", pd.NA, "u", "w", "u", "v", "w"], dtype="string"),
            "c": pd.Categorical(["k", "l", "k", None, "k", "l", "k", "l"]),
            "b": [True, False] * 4,
            "y": [0, 1, 1, 0] * 2,
        }
    )
    made = from_table(frame, task="site", target="y", scale="none")
    assert made.features == (
        "i", "i (missing)", "s=u", "s=v", "s=w", "s=(missing)",
        "c=k", "c=l", "c=(missing)", "b=True",
    )  # fmt: skip


def test_task_names_keep_their_zeros(tmp_path):
    text = "site,a,y\n" + "".join(f"{'007' if i % 2 else '7'},{i},{i % 3}\n" for i in range(12))
    made = from_table(write(tmp_path, text), task="site", target="y")
    assert list(made.names) == ["7", "007"]


@pytest.fixture
def mixed():
    return as_table(
        {
            "site": ["p", "q"] * 3,
            "num": ["1", "NA", "3", "?", "", "6.5"],
            "two": ["no", "yes", "no", "no", "yes", "no"],
            "three": ["b", "a", "null", "c", "a", "b"],
            "y": [1.5, 2, 3, 4, 5, 6],
        }
    )


def test_schema_by_hand(mixed):
    schema = Schema.fit(mixed, "site", "y")
    matrix, names = schema.matrix(mixed)
    assert matrix.dtype == np.float64
    assert names == (
        "num", "num (missing)", "two=yes", "three=a", "three=b", "three=c", "three=(missing)",
    )  # fmt: skip
    nan = np.nan
    np.testing.assert_array_equal(
        matrix,
        [
            [1, 0, 0, 0, 1, 0, 0],
            [nan, 1, 1, 1, 0, 0, 0],
            [3, 0, 0, 0, 0, 0, 1],
            [nan, 1, 0, 0, 0, 1, 0],
            [nan, 1, 1, 1, 0, 0, 0],
            [6.5, 0, 0, 0, 1, 0, 0],
        ],
    )


def test_schema_at_prediction_time(mixed):
    schema = Schema.from_json(Schema.fit(mixed, "site", "y").to_json())
    assert schema == Schema.fit(mixed, "site", "y")
    new = as_table({"num": [2, None], "two": ["maybe", "yes"], "three": ["z", ""]})
    matrix, _ = schema.matrix(new)
    # A new category is a gap: the column's own category of gaps, or filled in by the task.
    np.testing.assert_array_equal(matrix[0], [2, 0, np.nan, 0, 0, 0, 1])
    np.testing.assert_array_equal(matrix[1], [np.nan, 1, 1, 0, 0, 0, 1])
    frame = pd.DataFrame({"three": ["z", ""], "num": [2, np.nan], "two": ["maybe", "yes"]})
    np.testing.assert_array_equal(schema.matrix(frame)[0], matrix)
    with pytest.raises(TacitError, match="no column 'three'"):
        schema.matrix(as_table({"num": [1.0], "two": ["no"]}))
    with pytest.raises(TacitError, match="row 2, column 'num': 'many' is not a number"):
        schema.matrix(as_table({"num": ["1", "many"], "two": ["no"] * 2, "three": ["a"] * 2}))
    for bad in ("{", "[]", '{"columns": [{"type": "odd", "name": "a"}], "task": "", "target": []}'):
        with pytest.raises(TacitError, match="schema cannot be read"):
            Schema.from_json(bad)


def test_schema_is_said_to_be_public(tmp_path):
    made = from_table(write(tmp_path, GOOD), task="site", target="y")
    assert any("categories" in a and "public" in a for a in made.assumptions)


def test_columns_chosen_dropped_or_declared(tmp_path):
    path = write(tmp_path, GOOD)
    pick = {"task": "site", "target": "y"}
    assert from_table(path, **pick, features=["age"]).features == ("age",)
    assert from_table(path, **pick, drop=["age"]).features == ("sex=M",)
    assert from_table(path, **pick, drop="age").features == ("sex=M",)
    declared = from_table(path, **pick, features=["age"], categorical=["age"]).features
    assert declared[:2] == ("age=20", "age=21")
    assert "choose one of them" in error(path, features=["age"], drop=["sex"])
    assert "is the target" in error(path, features=["y"])
    assert "no feature left" in error(path, drop=["age", "sex"])
    assert "task and as target" in error(path, target="site")


def test_several_targets_are_labels(tmp_path):
    text = "site,a,p,q\n" + "".join(
        f"{'st'[i % 2]},{i},{i % 3 == 0},{['no', 'yes'][i % 4 == 0]}\n" for i in range(24)
    )
    path = write(tmp_path, text)
    made = from_table(path, task="site", target=["p", "q"], scale="none")
    assert (made.kind, made.labels, made.outputs) == ("multilabel", ("p", "q"), 2)
    for x, y in zip(made.train.x[:, 0].int().tolist(), made.train.y.tolist(), strict=True):
        assert y == [x % 3 == 0, x % 4 == 0]
    assert from_table(path, task="site", target=["p"]).kind == "binary"
    assert "column 'a' has 24 distinct values" in error(path, target=["p", "a"])


def test_bad_cells_are_named(tmp_path):
    def edited(old, new):
        return write(tmp_path, GOOD.replace(old, new, 1))

    message = error(edited(",26,", ",abc,"))
    assert "row 7 (line 8 of t.csv), column 'age': 'abc' is not a number" in message
    assert "categorical=['age'] (--categorical age)" in message
    assert "row 7 (line 8 of t.csv), column 'age': inf is infinite" in error(
        edited(",26,", ",inf,")
    )
    assert "1e+300 is too large" in error(edited(",26,", ",1e300,"))
    assert "row 7 (line 8 of t.csv) has no target in column 'y' (1 row" in error(edited("3.0", ""))
    assert "row 2 (line 3 of t.csv) has no task in column 'site'" in error(edited("north", "NA"))
    assert "row 7 (line 8 of t.csv), column 'y': 'x'" in error(edited("3.0", "x"))
    # A quoted cell over two lines, and a blank line, must not shift the line number.
    shifted = GOOD.replace("\n", '\n"so\nuth",1,F,1\n\n', 1).replace(",26,", ",abc,")
    assert "row 8 (line 11 of t.csv)" in error(write(tmp_path, shifted), min_rows=3)
    shown = error(pd.DataFrame({"site": ["a"] * 4, "v": ["1", "2", "x", "3"], "y": [1, 2, 3, 4]}))
    assert shown.startswith("row 3, column 'v': 'x' is not a number")


def unanswered(**more) -> dict[str, list]:
    """Four sites; one has no target at all, and one row has a category that no other has."""
    rows = [(f"s{k % 4}", 20.0 + k, "FM"[k % 3 == 0], k * 0.5) for k in range(24)]
    site, age, sex, y = map(list, zip(*rows))
    for k in range(24):
        y[k] = None if site[k] == "s3" or k in (4, 5) else y[k]
    sex[4], age[5] = "unknown", None
    return {"site": site, "age": age, "sex": sex, "y": y, **more}


def test_rows_without_a_target_are_left_out_where_that_is_said():
    told = error(unanswered())
    assert "(8 rows in all)" in told and "drop_unlabelled=True (--drop-unlabelled)" in told
    whole = unanswered()
    there = [k for k, y in enumerate(whole["y"]) if y is not None]
    kept = {name: [values[k] for k in there] for name, values in whole.items()}
    found = from_table(whole, task="site", target="y", drop_unlabelled=True)
    same(found, from_table(kept, task="site", target="y"))  # they decide nothing: no category, gap
    assert list(found.names) == ["s0", "s1", "s2"] and LABELLED in found.assumptions
    # The same words whether or not there are such rows: how many is a task's own matter.
    tidy = from_table(kept, task="site", target="y", drop_unlabelled=True)
    assert tidy.assumptions == found.assumptions
    schema = found.schema
    same(from_table(whole, schema=schema, drop_unlabelled=True), found)
    nothing = unanswered(y=[None] * 24)
    assert "no row of a table in memory has a target in y" in error(nothing, drop_unlabelled=True)
    # A later mistake is still called by its place in the file.
    wrong = unanswered(age=["old", *map(str, range(1, 22)), "older", "23"])
    wrong["y"][0] = None
    assert "row 23, column 'age': 'older'" in error(wrong, drop_unlabelled=True)


def test_a_row_without_a_target_changes_no_other_task():
    """Nor the rest of its own: whoever looks at splits and scales sees nothing of it."""
    whole = unanswered()
    more = {name: [*values, *new] for (name, values), new in zip(
        whole.items(), (["s0", "s9"], [1e6, 1.0], ["other", "F"], [None, None]))}  # fmt: skip
    one, other = (
        from_table(each, task="site", target="y", drop_unlabelled=True) for each in (whole, more)
    )
    same(one, other)
    assert one.schema == other.schema


def test_several_targets_may_be_missing_in_part():
    labels = {"a": [1, 0, None, None] * 6, "b": [0, 1, 1, None] * 6}
    table = {**unanswered(), **labels}
    given = {"task": "site", "target": ["a", "b"], "drop": ["y"], "drop_unlabelled": True}
    some = from_table({**table, "site": ["p", "q", "p", "q"] * 6}, kind="multilabel", **given)
    both = from_table({**table, "site": ["p", "q", "p", "q"] * 6}, **given)
    rows = [sum(len(made.part(part).y) for part in PARTS) for made in (some, both)]
    assert rows == [18, 12]


def test_an_outcome_over_time_needs_both_columns():
    table = unanswered(y=[None, *range(1, 24)], died=[1, None, *[0, 1] * 11])
    made = from_table(table, task="site", target="y", event="died", drop_unlabelled=True)
    assert sum(len(made.part(part).y) for part in PARTS) == 22


def test_mostly_text_is_a_category(tmp_path):
    table = {"site": ["p", "q"] * 4, "v": ["1", "K"] * 4, "y": [0, 1, 1, 0] * 2}
    assert from_table(table, task="site", target="y").features == ("v=K",)
    months = {**table, "v": ["2020_01", "2020_02"] * 4}  # Python would read these as numbers
    assert from_table(months, task="site", target="y").features == ("v=2020_02",)


def test_columns_that_cannot_be_features(tmp_path):
    base = {"site": ["p", "q"] * 30, "a": range(60), "y": [0, 1, 1, 0] * 15}
    message = error({**base, "who": [f"id{i}" for i in range(60)]})
    assert (
        "column 'who' has 60 different texts" in message and "drop=['who'] (--drop who)" in message
    )
    assert "column 'gap' is empty" in error({**base, "gap": [None] * 60})
    dates = np.arange("2020-01-01", "2020-03-01", dtype="datetime64[D]")
    assert "column 'day' holds dates" in error({**base, "day": dates})
    assert "differ in shape" in error({**base, "short": [1, 2]})


def test_columns_that_are_not_there(tmp_path):
    path = write(tmp_path, GOOD)
    message = error(path, target="yy")
    assert "no column 'yy' in t.csv; did you mean 'y'? there are: site, age, sex, y" in message
    assert "no column 'school'" in error(path, task="school")
    assert "no column 'agee'; did" not in error(path, drop=["agee"])
    assert "did you mean 'age'" in error(path, drop=["agee"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("site,a,y\n", "no rows"),
        ("site,a,a,y\np,1,2,3\n", "two columns named 'a'"),
        (",a,y\n0,1,2\n", "column 1 of"),
        ("site,a,y\np,1,2\nq,1\n", "line 3 of .* has 2 cells, but the header has 3"),
        (b"site,a,y\np,\xff\xfe,2\n", "not UTF-8"),
    ],
)
def test_files_that_are_no_tables(tmp_path, text, words):
    with pytest.raises(TacitError, match=words):
        read_table(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    for name, data, words in [
        ("a.csv.gz", b"not gzip", "cannot be read"),
        ("b.csv.gz", gzip.compress(GOOD.encode())[:-20], "cannot be read"),
        ("a.parquet", b"not parquet", "not a Parquet file"),
        ("a.xls", b"", r"save it as .csv \(in Excel: CSV UTF-8\) or .xlsx"),
        ("a.doc", b"", "expected .csv"),
    ]:
        with pytest.raises(TacitError, match=words) as caught:
            read_table(write(tmp_path, data, name))
        assert "\n" not in str(caught.value)
    with pytest.raises(TacitError, match="does not exist"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TacitError, match="is a folder"):
        read_table(tmp_path / "folder.csv")
    with pytest.raises(TacitError, match="a int is not a table"):
        from_table(3, task="a", target="b")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = write(tmp_path, b"", "t.parquet")
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(TacitError, match=r"pip install 'tacit\[data\]'"):
        read_table(path)


@pytest.mark.parametrize("header", ["site,x,y\r", "site,x,y\r\n", 'site,"x\ra",y\n'])
def test_lines_may_end_as_on_any_machine(tmp_path, header):
    end = header[-1]
    path = tmp_path / "table.csv"
    path.write_bytes((header + end.join(["a,1,2", "b,3,4"]) + end).encode())
    assert read_table(path).rows == 2


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(1)", "\t=1", " =1"])
def test_no_task_name_is_a_formula_in_what_is_written(tmp_path, name):
    """A spreadsheet would run it on the machine of whoever opens the predictions."""
    path, schema = tmp_path / "predicted.csv", Schema((), name, ("y",))
    write_predictions(path, np.array([name, "b"]), np.ones((2, 3)), schema, [name, "no", "maybe"])
    with path.open(newline="", encoding="utf-8") as file:
        head, first, _ = csv.reader(file)
    assert head[:3] == [f"'{name}", f"'{name}", "no"] and first[0] == f"'{name}"


@pytest.mark.parametrize("name", ["-5", "+1.5", "-1e3", "site-1", "a=b", "3"])
def test_names_that_are_none_stay_as_they_are(name):
    assert plain_text(name) == name
