"""What is assumed is said in the same words, whatever one cell of one task holds.

A sentence that comes or goes with a cell is itself a release without noise: whoever reads the
guarantee learns what the cell was.
"""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data import from_arrays, from_npz, from_table, load
from tacit.errors import TacitError
from tacit.sklearn import PrivateMultiTaskClassifier, PrivateMultiTaskRegressor

TASKS, ROWS = 3, 8
SITE = np.repeat([f"s{k}" for k in range(TASKS)], ROWS)
few = settings(max_examples=40, deadline=None)
cell = st.tuples(st.integers(0, TASKS * ROWS - 1), st.integers(0, 10))


def columns():
    """Near every border: 0/1 columns, whole numbers, text, and none with a gap."""
    place = np.arange(len(SITE))
    return {
        "flag": [str(k % 2) for k in place],
        "number": [str(k % 5) for k in place],
        "text": ["ab"[k % 2] for k in place],
        "y": [str(k % 2) for k in place],
    }


def assumptions(read, *arguments, **options):
    try:
        return read(*arguments, **options).assumptions
    except TacitError:
        return None  # this cell is refused: nothing is trained, and nothing is said


@few
@given(
    cell,
    st.sampled_from(["flag", "number", "text", "y"]),
    st.sampled_from(["0", "1", "2", "0.5", "", "c", "21"]),
    st.sampled_from(["task", "none", "pooled"]),
    st.sampled_from([0, 3, 9]),
)
def test_one_cell_of_a_table_changes_no_sentence(place, column, value, scale, min_rows):
    table = {"site": list(SITE) + ["small"] * 2 + ["large"] * 9 + ["larger"] * 9}
    table |= {name: [*cells, *cells[:20]] for name, cells in columns().items()}
    wanted = from_table(table, task="site", target="y", scale=scale, min_rows=3).assumptions
    table[column][place[0]] = value
    options = {"task": "site", "target": "y", "scale": scale, "min_rows": 3}
    found = assumptions(from_table, table, **options)
    assert found is None or found == wanted
    # Nor does a row that makes a task large enough, or too small.
    table["site"][place[0]] = "small"
    found = assumptions(from_table, table, **options | {"min_rows": min_rows or 3})
    assert found is None or (len(found) == len(wanted) and found[0] == wanted[0])


@few
@given(cell, st.sampled_from([0.0, 1.0, 2.0, 0.5, 21.0]), st.booleans(), st.booleans())
def test_one_cell_of_arrays_changes_no_sentence(place, value, in_y, constants):
    x = np.stack([np.arange(len(SITE)) % 2, np.arange(len(SITE)) % 5], axis=1).astype(float)
    y = (np.arange(len(SITE)) % 2).astype(float)
    options = {"target_scale": (0.0, 1.0)} if constants else {}
    wanted = from_arrays(x, y, SITE, **options).assumptions
    (y if in_y else x[:, 0])[place[0]] = value
    assert from_arrays(x, y, SITE, **options).assumptions == wanted


def test_the_cells_that_used_to_change_the_sentences(tmp_path):
    table = {"site": SITE, "flag": np.arange(24) % 2, "y": np.arange(24) % 2}
    plain = from_table(table, task="site", target="y", min_rows=8)
    for name, value, kept in (("flag", 2, 3), ("y", 0.5, 3), ("site", "s1", 2)):
        changed = {**table, name: table[name].astype(object)}
        changed[name][0] = value
        other = from_table(changed, task="site", target="y", min_rows=8)
        assert other.assumptions == plain.assumptions and len(other) == kept
    assert (
        plain.kind == "binary" and sum("only two codes" in said for said in plain.assumptions) == 1
    )
    for about in ("at least 8 rows", "kind of the target", "categories", "gaps"):
        assert any(about in said for said in plain.assumptions)
    x = np.arange(24.0)[:, None] % 2
    np.savez(tmp_path / "a.npz", x=x, y=x[:, 0], tasks=SITE)
    np.savez(tmp_path / "b.npz", x=np.where(x == x[3], x, 5), y=x[:, 0] + (x[:, 0] > 0), tasks=SITE)
    one, other = (from_npz(tmp_path / f"{name}.npz") for name in "ab")
    assert one.assumptions == other.assumptions and any("two codes" in a for a in one.assumptions)


def test_a_gap_of_one_task_changes_no_row_of_another():
    """A gap among held-out rows was filled with 0 or with the mean, as other tasks had gaps."""
    flag = np.tile([0.0, 1.0, 1.0, 1.0], 10)
    table = {"site": np.repeat(["a", "b"], 20), "flag": flag, "y": np.arange(40) / 7}
    for scale in ("task", "none"):
        rows = []
        for gap in (None, 0, 3, 7):
            changed = flag.copy()
            changed[[22, 25, 30, 35, 38]] = np.nan
            if gap is not None:
                changed[gap] = np.nan
            made = from_table({**table, "flag": changed}, task="site", target="y", scale=scale)
            rows.append([made.part(part).of(1)[0] for part in ("train", "validation", "test")])
        for other in rows[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(rows[0], other, strict=True))


def test_leaf_says_the_same_whoever_is_in_both_parts(tmp_path):
    found = []
    for name, users in (("few", "ab"), ("more", "abc")):
        for part, members in (("train", users), ("test", "ab")):
            own = {u: {"x": [[0.0] * 784] * 4, "y": [0, 1, 2, 3]} for u in members}
            content = {"users": list(own), "num_samples": [4] * len(own), "user_data": own}
            (tmp_path / name / part).mkdir(parents=True)
            (tmp_path / name / part / "all.json").write_text(json.dumps(content))
        found.append(load("femnist", path=tmp_path / name).assumptions)
    assert found[0] == found[1] and any("both train/ and test/" in said for said in found[0])


@pytest.mark.parametrize("label", ["glad", "other"])
def test_text_says_the_same_whatever_is_written(tmp_path, label):
    lines = [f"u{k % 3},some words {k},{'glad' if k % 2 else 'sad'}" for k in range(30)]
    options = {"target": "tags", "separator": None, "words_file": tmp_path / "words.txt"}
    (tmp_path / "words.txt").write_text("some\nwords\n")
    found = []
    for changed in (lines, [lines[0].replace("sad", label).replace("some", "any"), *lines[1:]]):
        (tmp_path / "t.csv").write_text("\n".join(["user,text,tags", *changed]))
        found.append(load("text", path=tmp_path / "t.csv", **options).assumptions)
    assert found[0] == found[1] and any("classes" in said for said in found[0])


@pytest.mark.parametrize(
    ("kind", "values"),
    [(PrivateMultiTaskRegressor, [0.0, 0.5]), (PrivateMultiTaskClassifier, [1, 2])],
)
def test_estimators_say_the_same(kind, values):
    x = np.arange(48.0).reshape(24, 2) % 2
    y = np.arange(24) % 2.0
    said = []
    for value in values:
        x[0, 0], y[0] = value, value
        made = kind(method="local", epsilon=None, rounds=1).fit(x, y, tasks=SITE)
        said.append(made.guarantee_.assumptions)
    assert said[0] == said[1]
