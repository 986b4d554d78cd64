"""The report of an exchange: what answers gave away, who is alike, who learns from whom, heads."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console
from tests.exchange.federations import headed
from tests.report.test_report_html import parsed

import tacit
from tacit.report import graph, words
from tacit.report.clients import COLOURS, clients
from tacit.report.exchange import section
from tacit.report.html import page
from tacit.report.matrix import LEVELS, Scale, heat_map
from tacit.report.tables import compare_table, run_table, write_comparison

HOLDS = [[1], [0], [0, 1], [0], [1], [0, 1]]
"""By task: two heads, three sets."""
SECTIONS = ("What was exchanged", "Who is like whom", "Who learns from whom", "Accuracy by head")


@pytest.fixture
def exchanged(make):
    """A made-up result of an exchange among six clients."""

    def made(*, method="fedmtl", heads=True, similarity=True, revealed=(), kept=0, **config):
        result = make(kind="binary", state="none", tasks=6, method=method)
        n = 6
        weights = np.full((n, n), 0.1) + 0.4 * np.eye(n)
        alike = np.fromfunction(lambda i, j: 1 - np.abs(i - j) / 10, (n, n))
        result["guarantee"] |= {"channel": "exchange", "in_words": "exchange (no ε)"}
        result["config"] |= {"method": method, **config}
        if method in ("fedmtl", "fedamp"):
            result["config"].setdefault("min_peers", 2)
        result["exchange"] = {
            "shown": list(range(n)), "weights": weights.tolist(),
            "similarity": alike.tolist() if similarity else None, "answers": 120, "kept_own": kept,
            "revealed": {
                "receivers": len({pair[0] for pair in revealed}),
                "senders": len({pair[1] for pair in revealed}),
                "times": sum(pair[2] for pair in revealed), "examples": [list(p) for p in revealed],
            },
        }  # fmt: skip
        result["federation"]["heads"] = None
        if heads:
            result["federation"] |= {
                "kind": "multilabel", "labels": ["a", "b", "c"],
                "heads": {"names": ["first", "second"], "outputs": [2, 1], "holds": HOLDS},
            }  # fmt: skip
            blocks = (result["metrics"], *result["metrics"]["baselines"].values())
            for place, block in enumerate(blocks):
                block["per_head"] = [0.9 - 0.1 * place, None if place == 2 else 0.8]
                block["per_label"] = [0.91, 0.89, 0.7 - 0.1 * place]
        return result

    return made


@pytest.mark.slow
def test_sections_appear_exactly_when_they_should(make, exchanged):
    for result, wanted in (
        (make(), ()),
        (exchanged(), SECTIONS),
        (exchanged(heads=False), SECTIONS[:3]),
        (exchanged(similarity=False), (SECTIONS[0], *SECTIONS[2:])),
        (exchanged() | {"exchange": None}, SECTIONS[3:]),  # heads on the billboard
    ):
        text = page(result)
        assert [name for name in SECTIONS if name in text] == list(wanted)
        found = parsed(text)
        assert "script" not in found.seen
        assert len(found.ids) == len(set(found.ids))
        assert all(link.removeprefix("#") in found.ids for link in found.links)
        assert not re.findall(r"https?:|//[a-z]|@import|url\((?!#)", text)
        assert "nan" not in re.sub(r"<[^>]*>", "", text).lower()


def test_who_sees_what_and_how_many_kept_their_own(exchanged):
    text = section(exchanged(kept=12))
    for said in (
        "The curator saw every uploaded model.",
        "mixtures of others&#x27; models, without noise",
        "The curator gave 120 answers. In 12 of them (10 %)",
        "where fewer than 2 others would have a say in the mixture (min_peers = 2)",
    ):
        assert said in text, said
    assert "In none of them did a client get just its own model back." in section(exchanged())
    assert "where nobody else would have a say" in section(exchanged(kept=12, min_peers=1))
    alone = exchanged(kept=120)
    alone["exchange"]["weights"] = np.eye(6).tolist()
    text = section(alone)
    assert "nobody learned from another" in text and "Nothing was handed on" in text
    assert "In the last answers nobody got anything" in text


def test_what_was_given_away_is_counted_and_said_aloud(exchanged):
    gave = [("school-1", "school-2", 12), ("school-3", "school-2", 1)]
    text = section(exchanged(revealed=gave, min_peers=1))
    assert 'class="told red"' in text
    assert "2 clients could work out models of 1 client<" in text
    assert "It happened 13 times" in text
    assert "school-1 could work out school-2’s model, or a part of it (12 rounds)" in text
    assert "school-3 could work out school-2’s model, or a part of it (1 round)" in text
    assert "This run allowed it: min_peers = 1. With min_peers = 2, the default" in text
    calm = section(exchanged(min_peers=1))
    assert 'class="told red"' not in calm and "could work out" not in calm
    assert "No answer depended on one other client only" in calm
    assert "That is no guarantee" in calm and "several answers together may tell more" in calm


def test_fedfomo_hands_out_single_models_by_design(exchanged):
    text = section(exchanged(method="fedfomo", revealed=[("school-1", "school-2", 3)]))
    assert "single models of others, as they were uploaded" in text
    assert "school-1 was sent school-2’s model (3 rounds)" in text
    assert "by design, and no setting changes that" in text
    other = section(exchanged(method="mocha", revealed=[("school-1", "school-2", 3)]))
    assert "mocha has no setting against this" in other


def test_a_mixture_that_is_nearly_one_client_is_said_to_be(exchanged):
    result = exchanged()
    assert "one other client alone had" not in section(result)
    result["exchange"]["weights"][2] = [0.001, 0.899, 0.1, 0, 0, 0]
    assert "one other client alone had up to over 99 %" not in section(result)
    assert "one other client alone had more than 99 %" in section(result)
    result["exchange"]["weights"][2] = [0.2, 0.6, 0.2, 0, 0, 0]
    assert "one other client alone had up to 75 %" in section(result)


def test_clients_are_ordered_by_the_heads_they_hold(exchanged):
    found = clients(exchanged())
    assert found.names == ("school-2", "school-4", "school-3", "school-6", "school-1", "school-5")
    assert [(heads, begin, end) for heads, begin, end in found.blocks] == [
        (("first",), 0, 2), (("first", "second"), 2, 4), (("second",), 4, 6),
    ]  # fmt: skip
    assert found.colours == [c for c in COLOURS[:3] for _ in range(2)]
    assert [said for said, _ in found.legend()] == ["first", "first, second", "second"]
    table = np.arange(36.0).reshape(6, 6)
    place = [1, 3, 2, 5, 0, 4]
    assert np.array_equal(found.ordered(table.tolist()), table[place][:, place])
    plain = clients(exchanged(heads=False))
    assert plain.names == tuple(f"school-{k}" for k in range(1, 7))
    assert len(plain.blocks) == 1 and not plain.legend()
    # Two inner borders each way, and the names in order down the side.
    text = page(exchanged())
    drawing = text.split("Who is like whom")[1].split("</svg>")[0]
    assert len(re.findall(r"M0 [\d.]+h[\d.]+M[\d.]+ 0v", drawing)) == 2
    assert re.findall(r">(school-\d)<", drawing)[::2] == list(found.names)
    assert "thin lines part different sets of heads" in text
    assert "thin lines" not in page(exchanged(heads=False))


def test_many_sets_are_coloured_by_their_number_of_heads(exchanged):
    result = exchanged()
    names = [f"h{k}" for k in range(12)]
    holds = [[k] for k in range(7)] + [[k, k + 1] for k in range(5)]
    result["metrics"]["per_task"] = {f"client {k}": {} for k in range(12)}
    result["exchange"]["shown"] = list(range(12))
    result["federation"]["heads"] = {"names": names, "outputs": [1] * 12, "holds": holds}
    found = clients(result)
    assert not found.by_set
    assert [said for said, _ in found.legend()] == ["1 head", "2 heads"]
    assert {len(s): c for s, c in zip(found.sets, found.colours, strict=True)} == {
        1: COLOURS[0], 2: COLOURS[1],
    }  # fmt: skip


def test_tables_of_a_part_of_the_clients_have_the_right_names(exchanged):
    result = exchanged()
    result["exchange"] |= {
        "shown": [0, 2, 5], "weights": np.full((3, 3), 1 / 3).tolist(),
        "similarity": np.ones((3, 3)).tolist(),
    }  # fmt: skip
    assert clients(result).names == ("school-3", "school-6", "school-1")
    assert section(result).count("3 of 6 clients are shown.") >= 2


def test_pairs_that_never_met_are_hatched(exchanged):
    result = exchanged()
    assert "fill: url(#matrix-never)" not in page(result)
    result["exchange"]["similarity"][0][5] = None
    text = page(result)
    assert "fill: url(#matrix-never)" in text
    assert "Hatched: never in the same round." in text


def test_cells_have_the_shade_of_their_value(exchanged):
    found = clients(exchanged(heads=False))
    values = np.eye(6)
    values[0, 1], values[0, 2], values[3, 4] = 0.5, 0.5, np.nan
    drawn, _ = heat_map(values, found, "similarity", "<what>")
    assert '<path d="M1 0h2v1h-2z" style="fill: var(--gain); fill-opacity: 0.500"/>' in drawn
    assert '<path d="M4 3h1v1h-1z" style="fill: url(#matrix-never)"/>' in drawn
    assert 'aria-label="&lt;what&gt;"' in drawn
    assert Scale.of(values) == Scale(0.0, 1.0, False)
    assert Scale.of(np.full((3, 3), 0.97)) == Scale(0.9, 1.0, False)
    assert Scale.of(np.ones((2, 2))) == Scale(0.0, 1.0, False)
    covariance = np.array([[2.0, -0.2], [0.4, 3.0]])
    scale = Scale.of(covariance)
    assert scale == Scale(0.0, 0.4, True)
    assert scale.levels(covariance).tolist() == [[LEVELS, -LEVELS // 2], [LEVELS, LEVELS]]


def test_a_crowd_of_arrows_is_cut_to_the_strongest():
    few = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    assert graph.strongest(few) == [(0, 1), (2, 0), (2, 1)]
    rng = np.random.default_rng(0)
    many = rng.random((20, 20))
    chosen = graph.strongest(many)
    assert len(chosen) == 20 * graph.STRONGEST and all(i != j for i, j in chosen)
    theirs = graph.others(many)
    for i in range(20):
        mine = [theirs[i, j] for r, j in chosen if r == i]
        assert sorted(mine) == sorted(theirs[i])[-graph.STRONGEST :]
    # Equally strong ones are all drawn, but not without end.
    assert len(graph.strongest(np.ones((20, 20)))) == 20 * graph.TIES
    # Those pushed away count by how strongly.
    assert graph.strongest(np.array([[0.0, -0.5], [0.0, 0.0]])) == [(0, 1)]


def test_accuracy_by_head_in_numbers(exchanged):
    text = page(exchanged()).split("Accuracy by head")[1].split("<h2>")[0]
    rows = re.findall(r"<tr>(<td>.*?)</tr>", text)
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    assert cells[:2] == [
        ["first", "4 tasks", "90.0 %", "80.0 %", "70.0 %"],
        ["second", "4 tasks", "80.0 %", "80.0 %", words.NOTHING],
    ]
    assert cells[2:] == [
        ["a", "first", "91.0 %", "91.0 %", "91.0 %"],
        ["b", "first", "89.0 %", "89.0 %", "89.0 %"],
        ["c", "second", "70.0 %", "60.0 %", "50.0 %"],
    ]
    assert "first · 4 tasks" in text and "not covered by the guarantee" in text
    without = exchanged()
    without["metrics"]["baselines"] = {}
    alone = page(without).split("Accuracy by head")[1].split("<h2>")[0]
    assert "personal models" in alone and "one model for all" not in alone
    many = exchanged()
    many["federation"]["labels"] = [f"l{k}" for k in range(61)]
    assert "labels in numbers" not in page(many)


def test_names_are_escaped(exchanged):
    evil = "$x <b>&'\""
    gave = [(evil, "school-2", 1)]
    result = exchanged(revealed=gave, min_peers=1)
    for block in (result["metrics"], *result["metrics"]["baselines"].values()):
        block["per_task"] = {
            (evil if name == "school-1" else name): scores
            for name, scores in block["per_task"].items()
        }
    result["federation"] |= {"labels": [evil, "b", "c"]}
    result["federation"]["heads"]["names"][0] = evil
    text = page(result)
    parsed(text)
    assert "<b>&" not in text
    for part in ("Accuracy by head", "What answers gave away", "Who is like", "Who learns"):
        assert "$x &lt;b&gt;&amp;" in text.split(part)[1].split("<h")[0], part


def test_no_table_shows_an_epsilon_of_an_exchange(exchanged, make, tmp_path):
    result = exchanged()
    assert words.epsilon_text(result["guarantee"]) == words.NOTHING
    text = page(result)
    assert "∞" not in text and "<b>no ε</b>" in text
    assert 'class="box red"' in text
    assert "nothing was published to everybody" in text
    assert "Choice of settings" not in text
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(run_table(result))
    results = {"one": result, "two": make(kind="binary", tasks=6, state="none")}
    console.print(compare_table({"one": result}))
    shown = console.export_text()
    assert "∞" not in shown and "no\N{NO-BREAK SPACE}ε" in shown
    alone = write_comparison({"one": result}, tmp_path / "one.html").read_text(encoding="utf-8")
    assert "∞" not in alone and "smaller is more private" not in alone
    both = write_comparison(results, tmp_path / "two.html").read_text(encoding="utf-8")
    assert "∞, or no ε" in both


def test_scores_of_pixels_and_of_heads_have_words(exchanged):
    result = exchanged()
    for block in (result["metrics"], *result["metrics"]["baselines"].values()):
        block["overall"] |= {"miou_per_task": 0.4, "miou": 0.5}
        for scores in block["per_task"].values():
            scores["miou"] = scores.pop("accuracy")
    result["metrics"]["main"] = {
        "name": "miou_per_task", "per_task": "miou", "higher_is_better": True
    }  # fmt: skip
    result["federation"]["kind"] = "segmentation"
    text = page(result)
    assert "mean intersection over union, mean over tasks" in text
    assert "Intersection over union of a class: pixels" in text
    assert "(segmentation, 2 heads)" in text
    assert "A head is a group of classes of pixels" in text
    assert "miou" not in re.sub(r"<[^>]*>", "", text)


@pytest.mark.parametrize(
    ("method", "warned"),
    [
        (tacit.FedMTL(lr=0.1, shared="equal", heads="equal", min_peers=1), True),
        (tacit.FedMTL(lr=0.1, shared="equal", heads="equal"), False),
        (tacit.FedFomo(lr=0.1, peers=2), True),
        (tacit.FedAMP(lr=0.1), False),
        (tacit.MOCHA(lr=0.1), False),
    ],
    ids=["single-peer", "guarded", "fedfomo", "fedamp", "mocha"],
)
def test_pages_of_real_runs(method, warned):
    # Six tasks with three sets of heads: two tasks each, so a mixture of equals is a pair.
    run = tacit.train(
        headed(6, validation=0.2, test=0.2), method, model="linear", rounds=2, seed=0,
        personalise="none", baselines=False,
    )  # fmt: skip
    result = json.loads(json.dumps(run.to_json()))
    text = page(result)
    parsed(text)
    assert ('class="told red"' in text) == warned
    assert ("Who is like whom" in text) == (result["exchange"]["similarity"] is not None)
    assert "Accuracy by head" in text
    assert page(result) == text
