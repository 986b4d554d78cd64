"""A task may lack what others have: its cells are gaps, and somebody says so."""

import numpy as np
import pytest
import torch

from tacit.data import Schema, from_table
from tacit.data.lacking import completed, in_words, lacking
from tacit.data.reading import as_table
from tacit.errors import TacitError

ROWS = 10


def table():
    """Task `c` has no pressure and no drug; all others have some of each."""
    site = np.repeat(["a", "b", "c"], ROWS)
    place = np.arange(len(site))
    return {
        "site": site,
        "age": place % 7 + 60.0,
        "pressure": np.where((site == "c") | (place == 3), np.nan, 100.0 + place),
        "drug": np.where((site == "c") | (place == 4), "", np.array(["x", "y"])[place % 2]),
        "y": place % 2,
    }


def test_a_task_without_a_column_is_trained_and_named():
    made = from_table(table(), task="site", target="y")
    assert lacking(made) == {"pressure": ["c"], "drug": ["c"]}
    assert "pressure in 1 of 3 (c); drug in 1 of 3 (c)" in in_words(lacking(made), 3)
    every = from_table({**table(), "pressure": np.arange(30.0)}, task="site", target="y")
    assert lacking(every) == {"drug": ["c"]}
    assert lacking(from_table(table(), task="site", target="y", features=["age"])) == {}


@pytest.mark.parametrize("scale", ["task", "none", "pooled"])
def test_a_column_with_public_constants_is_at_their_mean_where_a_task_lacks_it(scale):
    """At 0 in raw units it would be a value that nobody has."""
    schema = Schema.from_json(
        '{"version": 2, "task": "site", "tasks": null, "kind": "binary",'
        '"target": [{"name": "y", "classes": ["0", "1"]}], "columns":'
        '[{"name": "pressure", "type": "numeric", "gaps": true, "scale": [120, 10]}]}'
    )
    made = from_table(table(), schema=schema, scale=scale)
    mine = made.train.x[made.train.offsets[2] :]
    assert torch.equal(mine[:, 1], torch.ones(len(mine)))
    if scale == "pooled":  # there, everybody's mean is known
        assert mine[:, 0].abs().max() < 3
    else:
        assert torch.equal(mine[:, 0], torch.zeros(len(mine)))


def test_new_rows_may_lack_columns_and_have_new_categories():
    schema = Schema.fit(table(), "site", "y")
    new = as_table({"site": ["a"] * 3, "Age": [1, 2, 3], "drug": ["z", "y", "w"]})
    whole, said = completed(schema, new)
    assert said == (
        "there is no column 'age'; did you mean 'Age'?; there is no column 'pressure'; column "
        "'drug' has 'w', 'z', unknown in training: this counts as missing"
    )
    matrix, names = schema.matrix(whole)
    assert names == ("age", "pressure", "pressure (missing)", "drug=x", "drug=y", "drug=(missing)")
    nan = np.nan
    np.testing.assert_array_equal(
        matrix, [[nan, nan, 1, 0, 0, 1], [nan, nan, 1, 0, 1, 0], [nan, nan, 1, 0, 0, 1]]
    )
    assert "age" not in new and completed(schema, as_table(table()))[1] is None
    with pytest.raises(TacitError, match="there is no column 'age'"):
        completed(schema, as_table({"site": ["a"], "other": [1]}))


def test_a_new_category_is_none_of_those_that_are_known():
    """With two categories, nothing would be the first of them."""
    whole = {**table(), "drug": np.array(["x", "y"])[np.arange(30) % 2]}
    made = from_table(whole, task="site", target="y", features=["drug"])
    assert made.schema is not None and made.preprocessing is not None
    matrix, _ = made.schema.matrix({"drug": ["x", "y", "z"]})
    np.testing.assert_array_equal(matrix, [[0], [1], [np.nan]])
    share = made.train.x[: made.train.offsets[1]].mean()
    rows = made.preprocessing.apply(matrix, 0)
    assert rows[:, 0].tolist() == pytest.approx([0, 1, float(share)])
