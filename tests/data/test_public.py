"""Public rows as a table: what of it is read, what is not, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tacit.data import from_table, load
from tacit.data.federation import PARTS
from tacit.errors import TacitError

RNG = np.random.default_rng(0)
KIND: dict[str, Any] = {"task": "site", "target": "y", "kind": "regression"}


def rows(count: int, sites: int = 0, seed: int = 0) -> dict[str, list]:
    """Numbers far from zero, and a category; with a task column where there are sites."""
    rng = np.random.default_rng(seed)
    a, city = 100 + 10 * rng.normal(size=count), rng.choice(["bonn", "kiel", "ulm"], count)
    y = 5 * a + 20 * (city == "ulm") + rng.normal(size=count)
    table = {"a": a.tolist(), "city": city.tolist(), "y": y.tolist()}
    return table | ({"site": [f"s{k % sites}" for k in range(count)]} if sites else {})


TASKS = rows(80, sites=8)


def read(public: Any, **more: Any):
    return from_table(TASKS, **(KIND | more), public=public)


def test_units_are_those_of_the_public_rows():
    public = rows(300, seed=1)
    found, before = read(public), from_table(TASKS, **KIND)
    assert before.units is not None and found.units is None
    a, y = np.array(public["a"]), np.array(public["y"])
    assert found.preprocessing is not None and found.target_scale is not None
    assert found.preprocessing.shift[0, 0].item() == pytest.approx(a.mean())
    assert found.preprocessing.scale[0, 0].item() == pytest.approx(a.std())
    assert found.target_scale.shift[0].item() == pytest.approx(y.mean())
    assert found.target_scale.scale[0].item() == pytest.approx(y.std())
    raw = np.array(TASKS["a"])[np.array(TASKS["site"]) == "s3"]
    parts = (found.part(part).of(found.index("s3"))[0][:, 0] for part in PARTS)
    seen = torch.cat([*parts])
    expected = np.sort((raw - a.mean()) / a.std())
    np.testing.assert_allclose(np.sort(seen.numpy()), expected, atol=1e-5)
    assert found.public is not None and found.public.rows.x.shape == (300, 4)
    assert abs(found.public.rows.x[:, 0].mean()) < 1e-6 and abs(found.public.rows.y.std() - 1) < 0.1
    (said,) = set(found.assumptions) - set(before.assumptions)
    assert "300 rows" in said and "none of them to be a row of a task" in said and "no ε" in said
    assert not found.leaks


@pytest.mark.parametrize("scale", ["task", "none", {"a": (100, 10)}])
def test_units_that_somebody_chose_stay(scale):
    found, before = read(rows(50, seed=1), scale=scale), from_table(TASKS, **KIND, scale=scale)
    assert torch.equal(found.train.x, before.train.x) and torch.equal(found.train.y, before.train.y)
    assert found.public is not None and found.public.to_json()["fitted"] == ["where models begin"]


def test_target_constants_hold_for_public_rows_too():
    found = read(rows(50, seed=1), target_scale=(500.0, 40.0))
    assert found.public is not None and found.target_scale is not None
    assert set(found.target_scale.scale.tolist()) == {40.0}
    y = np.sort((np.array(rows(50, seed=1)["y"]) - 500) / 40)
    np.testing.assert_allclose(np.sort(found.public.rows.y.numpy()), y, atol=1e-5)


def test_a_public_column_that_does_not_vary_leaves_each_task_its_own_unit():
    found = read(rows(50, seed=1) | {"a": [3.0] * 50})
    assert found.without_unit == (0,) and found.preprocessing is not None
    assert len(found.preprocessing.scale) == 8


def test_no_task_notices_another():
    """Units are public: rows of one task may be anything, and the others stay to the bit."""
    wild = TASKS | {"a": [1e4 * k if k % 8 == 3 else v for k, v in enumerate(TASKS["a"])]}
    one, other = (from_table(table, **KIND, public=rows(50, seed=1)) for table in (TASKS, wild))
    for name in one.names:
        pairs = zip(one.train.of(one.index(name)), other.train.of(one.index(name)), strict=True)
        assert all(torch.equal(*pair) for pair in pairs) == (name != "s3")
    assert one.assumptions == other.assumptions and one.without_unit == other.without_unit


def test_rows_without_a_target_are_left_out_and_gaps_are_filled():
    public = rows(50, seed=1)
    public["y"][:10], public["a"][20], public["city"][21] = [None] * 10, None, "rom"
    found = read(public).public
    assert found is not None and len(found.rows.y) == 40
    assert found.rows.x.isfinite().all()
    assert any("'rom', unknown in training" in note for note in found.notes)


def test_their_order_does_not_matter():
    public, order = rows(200, seed=1), RNG.permutation(200)
    mixed = {name: [values[k] for k in order] for name, values in public.items()}
    one, other = read(public).public, read(mixed).public
    assert one is not None and other is not None
    assert torch.equal(one.rows.x, other.rows.x) and torch.equal(one.rows.y, other.rows.y)


def test_a_task_column_and_others_are_not_used_which_is_said():
    public = rows(40, sites=4, seed=1) | {"note": ["x"] * 40}
    found, plain = read(public).public, read(rows(40, seed=1)).public
    assert found is not None and plain is not None and not plain.notes
    assert torch.equal(found.rows.x, plain.rows.x)
    assert found.notes[0] == "columns that are not used: site, note"
    assert "make sure" in found.notes[1] and "'s0'" in found.notes[1]
    elsewhere = read(public | {"site": ["far"] * 40}).public
    assert elsewhere is not None and len(elsewhere.notes) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": None}, "there is no column 'a' in"),
        ({"y": None}, "there is no column 'y' in"),
        ({"a": ["old"] * 40}, "column 'a': 'old' is not a number"),
        ({"city": list(range(40))}, "column 'city' has '0', '1', '10', …, but tasks have 'bonn'"),
        ({"y": ["much"] * 40}, "column 'y': 'much' is not a number"),
        ({"y": [1.0] * 40}, "their target is the same in every row"),
        ({"y": [None] * 35 + [1, 2, 3, 4, 5]}, "has 5 rows with a target, and at least 6"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(change, words):
    public = {n: v for n, v in (rows(40, seed=1) | change).items() if v is not None}
    with pytest.raises(TacitError) as caught:
        read(public)
    assert str(caught.value).startswith("public rows: ") and words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_are_those_of_the_tasks():
    table = TASKS | {"y": [f"c{k % 3}" for k in range(80)]}
    public = rows(40, seed=1) | {"y": [f"c{k % 3}" for k in range(40)]}
    named: dict[str, Any] = {"task": "site", "target": "y"}
    found = from_table(table, **named, public=public).public
    assert found is not None and set(found.rows.y.tolist()) == {0, 1, 2}
    with pytest.raises(TacitError, match=r"public rows: .*'c9' is not a class"):
        from_table(table, **named, public=public | {"y": ["c9"] * 40})


def test_pooled_scaling_and_public_rows_are_refused_together():
    with pytest.raises(TacitError, match="leave 'pooled' out"):
        read(rows(40), scale="pooled")


def test_other_sources_take_none(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((8, 2)), y=np.arange(8.0), tasks=np.arange(8) % 2)
    with pytest.raises(TacitError, match="takes no option 'public'"):
        load(tmp_path / "a.npz", public="b.csv")
    with pytest.raises(TacitError, match=r"b\.csv does not exist"):
        read("b.csv")
