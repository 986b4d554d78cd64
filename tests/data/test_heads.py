"""Heads: who works on what, and that a task forgets the labels of heads that it does not hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import TacitError
from tacit.data.federation import PARTS
from tacit.data.heads import Heads, holding
from tacit.local import flat
from tacit.local.batches import draw
from tacit.models import MODELS

LABELS = ["a", "b", "c", "d", "e"]
GROUPS = {"first": ["d", "a"], "second": ["b"], "third": ["e", "c"]}
HOLDS = {"north": ["second"], "south": ["third", "first"], "west": ["first", "second", "third"]}


@pytest.fixture
def plain():
    generator = np.random.default_rng(0)
    names = np.repeat(["north", "south", "west"], [10, 14, 7])
    x = generator.normal(size=(31, 3)).astype(np.float32)
    y = generator.integers(0, 2, size=(31, 5)).astype(np.float32)
    y[generator.random((31, 5)) < 0.1] = np.nan  # nobody wrote these down
    return tacit.data.from_arrays(x, y, names, kind="multilabel", labels=LABELS, scale="none")


def test_labels_are_regrouped_and_forgotten_where_a_task_does_not_hold_the_head(plain):
    made = plain.with_heads(GROUPS, HOLDS)
    assert made.labels == ("d", "a", "b", "e", "c") and made.outputs == 5
    assert made.heads is not None and made.heads.names == ("first", "second", "third")
    assert made.heads.outputs == (2, 1, 2)
    assert made.heads.columns == [slice(0, 2), slice(2, 3), slice(3, 5)]
    for part in PARTS:
        for k, task in enumerate(made.names):
            (x, before), (same, after) = plain.part(part).of(k), made.part(part).of(k)
            assert torch.equal(x, same) and len(after)
            held = {label for head in HOLDS[task] for label in GROUPS[head]}
            for column, label in enumerate(made.labels):
                old = before[:, LABELS.index(label)]
                wanted = old if label in held else torch.full_like(old, torch.nan)
                assert torch.equal(after[:, column].nan_to_num(9), wanted.nan_to_num(9))


def test_labels_in_no_group_are_left_out(plain):
    made = plain.with_heads({"only": ["b"]}, dict.fromkeys(plain.names, ("only",)))
    assert made.labels == ("b",) and made.outputs == 1 and made.train.y.shape[1] == 1
    assert torch.equal(made.train.y[:, 0].nan_to_num(9), plain.train.y[:, 1].nan_to_num(9))


def test_who_holds_what_in_words_and_in_numbers(plain):
    heads = plain.with_heads(GROUPS, HOLDS).heads
    assert len(heads) == 3 and heads.holders.tolist() == [2, 2, 2]
    assert [heads.of(k) for k in range(3)] == [
        ("second",), ("first", "third"), ("first", "second", "third")
    ]  # fmt: skip
    assert heads.to("cpu").of(1) == heads.of(1)


@pytest.mark.parametrize(
    ("groups", "holds", "words"),
    [
        ({"first": ["a", "z"]}, HOLDS, "there is no label 'z'; labels are named like a, b, c"),
        ({"first": ["a"], "none": []}, HOLDS, "a head without labels has nothing to predict"),
        (GROUPS, {"north": ["first"]}, "task 'south' has no heads: say which it works on"),
        (
            GROUPS,
            HOLDS | {"west": ["first", "fourth"]},
            "task 'west' works on head 'fourth', but heads are first, second, third",
        ),
        (GROUPS, HOLDS | {"south": []}, "task number 1 holds no head: give it at least one"),
    ],
)
def test_what_cannot_be_is_refused_by_name(plain, groups, holds, words):
    with pytest.raises(TacitError, match=words):
        plain.with_heads(groups, holds)


def test_heads_are_for_labels_and_given_once(plain, make_federation):
    with pytest.raises(TacitError, match="heads are groups of the labels of a multilabel"):
        make_federation().with_heads({"only": ["y"]}, {})
    made = plain.with_heads(GROUPS, HOLDS)
    with pytest.raises(TacitError, match="heads are groups of the labels of a multilabel"):
        made.with_heads(GROUPS, HOLDS)


def test_tables_that_do_not_fit_are_refused():
    yes = torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(TacitError, match="name each head once"):
        Heads(("a", "a"), (1, 1), yes)
    with pytest.raises(TacitError, match="name each head once"):
        Heads(("a", "b"), (1,), yes)
    with pytest.raises(TacitError, match="a column for each of the 3 heads"):
        Heads(("a", "b", "c"), (1, 1, 1), yes)
    with pytest.raises(TacitError, match="task number 1 holds no head"):
        Heads(("a", "b"), (1, 1), torch.tensor([[True, False], [False, False]]))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 6), heads=st.integers(1, 5))
def test_the_table_of_holders_and_the_names_say_the_same(seed, tasks, heads):
    generator = np.random.default_rng(seed)
    names = [f"h{k}" for k in range(heads)]
    given_heads = {}
    for k in range(tasks):
        some = generator.permutation(heads)[: generator.integers(1, heads + 1)]
        given_heads[f"t{k}"] = [names[h] for h in some]
    sizes = tuple(generator.integers(1, 4, size=heads).tolist())
    made = Heads(tuple(names), sizes, holding(names, list(given_heads), given_heads))
    for k, wanted in enumerate(given_heads.values()):
        assert set(made.of(k)) == set(wanted)
        assert list(made.of(k)) == sorted(wanted)
    for h, name in enumerate(names):
        assert int(made.holders[h]) == sum(name in held for held in given_heads.values())
    covered = [column for span in made.columns for column in range(span.start, span.stop)]
    assert covered == list(range(sum(sizes)))


@pytest.mark.parametrize("name", ["linear", "linear-no-intercept", "mlp"])
def test_the_gradient_of_a_head_that_is_not_held_is_exactly_zero(plain, name):
    made = plain.with_heads(GROUPS, HOLDS)
    model = flat.build(MODELS[name], made, seed=3)
    assert len(model.parts) == 1 + 3 and model.parts[-1].stop == model.size
    batches = draw(made.train, torch.arange(3), 2, 4, made.keys)
    start = model.start + 0.1 * torch.randn(model.size, generator=torch.Generator().manual_seed(0))
    for k in range(3):
        for x, y, weight in zip(batches.x[k], batches.y[k], batches.weight[k], strict=True):
            slope, _ = model.gradient(start, model.buffers, x, y, weight)
            for head, part in zip(made.heads.names, model.parts[1:], strict=True):
                assert bool(slope[part].any()) == (head in HOLDS[made.names[k]])
            assert slope.isfinite().all()


def test_spread_puts_one_number_on_every_part(plain):
    model = flat.build(MODELS["mlp"], plain.with_heads(GROUPS, HOLDS), seed=0)
    found = model.spread(torch.tensor(9.0), torch.tensor([1.0, 2.0, 3.0]))
    wanted = torch.full((model.size,), torch.nan)
    for value, part in zip((9.0, 1.0, 2.0, 3.0), model.parts, strict=True):
        wanted[part] = value
    assert torch.equal(found, wanted)


def outcomes(path, gap: str = "") -> None:
    """Four sites of 20 rows; site 0 never wrote down angina, site 1 never disease."""
    lines = ["site,age,disease,angina"]
    for site in range(4):
        for row in range(20):
            disease, angina = row % 2, row // 2 % 2
            cells = [gap if site == 1 else disease, gap if site == 0 else angina]
            lines.append(",".join(map(str, [f"s{site}", row / 20, *cells])))
    path.write_text("\n".join(lines))


def test_a_table_with_empty_cells_says_by_itself_who_predicts_what(tmp_path):
    path = tmp_path / "sites.csv"
    outcomes(path)
    table = {"task": "site", "target": ["disease", "angina"], "kind": "multilabel"}
    made = tacit.data.load(path, heads="labels", **table)
    assert made.heads is not None and made.heads.names == ("disease", "angina")
    held = [made.heads.of(k) for k in range(4)]
    assert held == [("disease",), ("angina",), ("disease", "angina"), ("disease", "angina")]
    for part in PARTS:
        missing = made.part(part).y.isnan()
        task = torch.arange(4).repeat_interleave(made.part(part).counts)
        assert torch.equal(missing, ~made.heads.holds[task])
    run = tacit.train(
        made, tacit.FedMTL(lr=0.5), model="linear", rounds=2, seed=0, baselines=False,
        personalise="none",
    )  # fmt: skip
    assert run.predict([[0.5]], ["s0"]).shape == (1, 2)


def test_empty_target_cells_are_refused_where_nobody_said_that_they_may_be(tmp_path):
    path = tmp_path / "sites.csv"
    outcomes(path)
    with pytest.raises(TacitError, match=r"has no target in column 'disease'.*kind='multilabel'"):
        tacit.data.load(path, task="site", target=["disease", "angina"])
    with pytest.raises(TacitError, match="has no target in column 'disease'"):
        tacit.data.load(path, task="site", target="disease")
