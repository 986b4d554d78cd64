"""Times and events as rows of cells, from tables, arrays and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.data import from_arrays, from_table, load
from tacit.data.federation import PARTS
from tacit.data.schema import Schema
from tacit.data.survival import LADDER, SHORTEST, cells
from tacit.errors import TacitError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def table(**more):
    rng = np.random.default_rng(0)
    made = {"site": np.repeat(["a", "b", "c"], 10), "age": rng.normal(60, 9, 30).round()}
    made |= {"days": rng.integers(0, 40, 30).astype(float), "died": rng.integers(0, 2, 30)}
    return made | more


def read(found=None, **options):
    return from_table(found or table(), task="site", target="days", **options)


def refused(found=None, **options) -> str:
    with pytest.raises(TacitError) as caught:
        read(found, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_cells_say_how_much_was_lived_through_and_how_it_ended():
    time = np.array([25.0, 12.0, 20.0, 20.0, 99.0, 30.0, 0.0])
    event = np.array([False, True, True, False, True, True, True])
    nan = np.nan
    wanted = [
        [1, 1, 0.5],
        [1, -0.2, nan],
        [1, -1, nan],
        [1, 1, nan],
        [1, 1, 1],  # what happens after the last end is not looked at
        [1, 1, -1],
        [-SHORTEST, nan, nan],
    ]
    np.testing.assert_allclose(cells(time, event, (10, 20, 30)), wanted)


def test_a_row_of_the_table_is_a_row_whatever_its_time():
    made = read(event="died", cuts=["10", 20, 30.5])
    assert made.kind == "survival" and made.outputs == 3 and made.labels == ("10", "20", "30.5")
    assert made.features == ("age",)  # neither the time nor the event
    assert sum(len(made.part(part).y) for part in PARTS) == 30
    assert any("ends of the intervals" in said for said in made.assumptions) and not made.leaks


def test_cuts_are_public_and_never_from_the_rows():
    """Other times, the same ends: those that were given, or those that everybody knows."""
    longer = table(days=table()["days"] * 3)
    for options in ({}, {"cuts": [7, 30]}):
        one, other = (read(found, event="died", **options) for found in (table(), longer))
        assert one.labels == other.labels and one.assumptions == other.assumptions
    assert read(event="died", kind="survival").labels == tuple(map(str, LADDER))


def test_a_schema_says_it_all(tmp_path):
    made = read(event="died", cuts=[10, 20])
    assert isinstance(made.schema, Schema)
    again = Schema.from_json(made.schema.to_json())
    assert again == made.schema and again.cuts == (10.0, 20.0)
    seen = from_table(table(), schema=again)
    for part in PARTS:
        assert torch.equal(seen.part(part).y.nan_to_num(9), made.part(part).y.nan_to_num(9))
    with pytest.raises(TacitError, match="event and a schema"):
        from_table(table(), schema=again, event="died")
    broken = made.schema.to_json().replace("[10.0, 20.0]", "[20.0, 10.0]")
    with pytest.raises(TacitError, match="numbers that rise"):
        Schema.from_json(broken)


def test_arrays_have_both_columns():
    found = table()
    y = np.column_stack([found["days"], found["died"]])
    made = from_arrays(found["age"][:, None], y, found["site"], kind="survival", cuts=[10, 20])
    other = read(event="died", cuts=[10, 20])
    assert torch.equal(made.train.y.nan_to_num(9), other.train.y.nan_to_num(9))
    with pytest.raises(TacitError, match="a time and whether"):
        from_arrays(found["age"][:, None], y[:, 0], found["site"], kind="survival")
    with pytest.raises(TacitError, match="kind='survival' too"):
        from_arrays(found["age"][:, None], y[:, 1], found["site"], cuts=[10])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "survival"}, "pass event= (--event)"),
        ({"cuts": [1, 2]}, "pass event= (--event) too"),
        ({"event": "died", "kind": "binary"}, "event is for kind 'survival'"),
        ({"event": "dead"}, "'dead'"),
        ({"event": "age"}, "write 1 where the event was seen"),
        ({"event": "died", "cuts": [3, 2]}, "numbers that rise"),
        ({"event": "died", "cuts": []}, "numbers that rise"),
        ({"event": "died", "cuts": ["soon"]}, "numbers that rise"),
        ({"event": "died", "cuts": "365"}, "numbers that rise"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(options, words):
    assert words in refused(**options)


def test_rows_that_cannot_be_are_named():
    days = table()["days"]
    early = np.where(np.arange(30) == 4, -1, days)
    assert "row 5" in refused(table(days=early), event="died")
    gone = np.where(np.arange(30) == 6, np.nan, days)
    assert "row 7" in refused(table(days=gone), event="died")
    assert "nothing to learn" in refused(table(died=np.zeros(30, int)), event="died")


@pytest.mark.skipif(not (SHARED / "tcga_brca").is_dir(), reason="needs the TCGA-BRCA tables")
def test_breast_cancer_in_six_regions():
    made = load("tcga_brca", path=SHARED / "tcga_brca")
    assert set(made.names) == {"Northeast", "South", "West", "Midwest", "Europe", "Canada"}
    assert made.kind == "survival" and made.input_shape == (39,) and made.outputs == 7
    both = torch.cat([made.part(part).y for part in PARTS])
    # 151 died, 12 of them after ten years and none of the eight patients of other places.
    assert len(both) == 1088 and int((both < 0).sum()) == 139
    assert not made.leaks


def test_folders_without_the_tables_are_named(tmp_path):
    with pytest.raises(TacitError, match=r"brca.csv does not exist"):
        load("tcga_brca", path=tmp_path)
