"""Relations from files: matched by name, and refused in a sentence when they do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.data.relation_file import with_relation
from tacit.errors import TacitError

NAMES = [f"task-{k}" for k in range(6)]


@pytest.fixture
def federation(make_federation):
    return make_federation(tasks=6)


def written(tmp_path, header, rows) -> str:
    path = tmp_path / "relation.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
    return str(path)


def test_clusters_by_name_in_any_order(federation, tmp_path):
    groups = dict(zip(NAMES, "aabbab", strict=True))
    rows = [(name, groups[name]) for name in reversed(NAMES)]
    found = with_relation(federation, written(tmp_path, ("task", "cluster"), rows))
    expected = federation.clustered(groups)
    assert torch.equal(found.relation.loadings, expected.relation.loadings)
    turned = [(group, name) for name, group in rows]
    again = with_relation(federation, written(tmp_path, ("cluster", "task"), turned))
    assert torch.equal(again.relation.loadings, expected.relation.loadings)
    assert "taken to be public (2 clusters)" in found.assumptions[-1]


def test_a_matrix_is_put_into_the_order_of_the_tasks(federation, tmp_path):
    groups = np.array([0, 0, 1, 1, 0, 1])
    same = groups[:, None] == groups
    omega = np.eye(6) - same / 3 + 0.1 * np.eye(6)
    order = [4, 0, 5, 2, 1, 3]
    rows = omega[np.ix_(order, order)]
    file = written(tmp_path, [NAMES[k] for k in order], rows.tolist())
    found, expected = with_relation(federation, file), federation.related(omega)
    # Columns of a basis may differ by their sign; what a task reads off the sums may not.
    ours, theirs = (made.relation.places for made in (found, expected))
    assert torch.allclose(ours[:, :2] @ ours[:, 2:4].T, theirs[:, :2] @ theirs[:, 2:4].T, atol=1e-5)


@pytest.mark.parametrize(
    ("header", "rows", "words"),
    [
        (("task", "cluster"), [(n, "a") for n in NAMES[:3]], "lacks tasks 'task-3', 'task-4'"),
        (("task", "cluster"), [(n, "a") for n in NAMES[:5]], "lacks task 'task-5': every"),
        (("task", "cluster"), [(n, "a") for n in [*NAMES, "x"]], "names task 'x', not in the data"),
        (("task", "cluster"), [(n, "a") for n in [*NAMES, "task-0"]], "line 8 of relation.csv"),
        (
            ("task", "cluster"),
            [(n, "") for n in NAMES],
            "no cluster in column 'cluster' (6 rows",
        ),
        (("task", "group"), [(n, "a") for n in NAMES], "a header task,cluster is needed"),
        (NAMES[:5], np.eye(5).tolist(), "lacks task 'task-5'"),
        ([*NAMES, "x"], np.eye(7).tolist(), "names task 'x'"),
        (NAMES, np.eye(6)[:5].tolist(), "6 columns and 5 rows"),
        (NAMES, [["much"] * 6, *np.eye(6)[1:].tolist()], "a number is needed"),
        (NAMES, [["inf"] * 6, *np.eye(6)[1:].tolist()], "a number is needed"),
        (NAMES, (-np.eye(6)).tolist(), "negative eigenvalue"),
    ],
)
def test_what_does_not_fit_is_said_in_one_sentence(federation, tmp_path, header, rows, words):
    with pytest.raises(TacitError) as raised:
        with_relation(federation, written(tmp_path, header, rows))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_are_no_tables(federation, tmp_path):
    with pytest.raises(TacitError, match="does not exist"):
        with_relation(federation, tmp_path / "nowhere.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(TacitError, match="is empty"):
        with_relation(federation, tmp_path / "empty.csv")
