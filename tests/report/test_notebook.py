"""What a notebook shows: the look of the report, escaped, with the label on what ε leaves out."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tacit.errors import TacitError
from tacit.experiment.plan import Plan
from tacit.privacy.guarantee import Promise
from tacit.report import notebook
from tacit.report.page import STYLE, embedded

EVIL = "<script>alert(1)</script>\"'>"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def test_a_run_shows_verdict_promise_and_scores_with_their_label(make):
    result = make()
    said = {"colour": "green", "sentences": ["It helped: by much."], "label": "not covered"}
    shown = notebook.run(result | {"verdict": said})
    assert "It helped" in shown and "ε = 1.98" in shown and "What the tasks got" in shown
    assert shown.count('class="tag">not covered') == 2
    assert "What it rests on</summary><dl>" in shown and "Who is trusted" in shown


def test_metrics_say_that_they_are_not_covered(make):
    shown = notebook.metrics(make(tasks=30)["metrics"])
    assert "<b>Not covered by the guarantee</b>" in shown
    assert "best alone" in shown and "The first 10 of 30 tasks" in shown
    assert "school-10<" in shown and "school-11<" not in shown


def test_nothing_that_a_table_or_a_file_says_becomes_a_tag(make):
    result = make(tasks=3)
    result["config"]["method"] = result["federation"]["source"] = EVIL
    result["guarantee"]["in_words"] = result["guarantee"]["trusts"] = EVIL
    for block in (result["metrics"], *result["metrics"]["baselines"].values()):
        block["per_task"] = {name + EVIL: task for name, task in block["per_task"].items()}
    federation = {
        "source": EVIL,
        "tasks": 3,
        "features": [EVIL],
        "rows": {EVIL: 3},
        "smallest": 1,
        "largest": 2,
        "heads": None,
        "assumptions": [EVIL],
        "leaks": [EVIL],
    }
    plain = {"chosen": {EVIL: EVIL}, "usual": {EVIL: [EVIL]}}
    for shown in (
        notebook.run(result),
        notebook.metrics(result["metrics"]),
        Promise(result["guarantee"])._repr_html_(),
        notebook.federation(federation),
        notebook.plan(plain),
    ):
        assert "script" not in Tags(shown).seen
        assert "&lt;script&gt;" in shown


def test_styles_stay_inside():
    """A rule outside of `.tacit { … }` would change the notebook around it."""
    shown = embedded("<p>x</p>")
    style = re.search(r"<style>(.*)</style>", shown, re.S)[1]
    assert style.startswith(".tacit {") and style.count("{") == style.count("}")
    depth = 0
    for place, letter in enumerate(style):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth > 0 or place < len(".tacit ") or not style[place + 1 :].strip()
    assert ":root" not in style and "body {" not in style and ":root" in STYLE


def test_a_plan_shows_what_was_chosen_apart_from_the_rest():
    shown = Plan.of(rounds=7, model="mlp")._repr_html_()
    chosen, usual = shown.split("Settings left as they are")
    assert "<dt>rounds</dt>" in chosen and "mlp" in chosen
    assert "<dt>rounds</dt>" not in usual and "<dt>seed</dt>" in usual


def test_figures_carry_the_label_and_show_themselves(make):
    plot = notebook.Plots(make())
    for fig in (plot.curve(), plot.tasks(), plot.gains()):
        assert fig.get_suptitle() == "not covered by the guarantee"
    assert "<svg" in plot.gains()._repr_html_()
    assert repr(plot) == "Plots(curve(), tasks(), gains(), coefficients(), shapes(), over_time())"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tasks", "baselines=True"),
        ("gains", "baselines=True"),
        ("coefficients", "only mixed models"),
        ("shapes", "only runs of additive"),
        ("over_time", "only outcomes over time"),
    ],
)
def test_a_figure_that_the_run_does_not_have_is_a_sentence(make, name, why):
    with pytest.raises(TacitError, match=why):
        getattr(notebook.Plots(make(baselines=False)), name)()
