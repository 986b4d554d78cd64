"""The HTML report: says what must be said, shows what is there, lets nothing in or out."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.colors import to_hex

from tacit.errors import TacitError
from tacit.report import plots, write_html
from tacit.report.html import page, summary
from tacit.report.scores import Comparison, Score
from tacit.report.tables import run_table


class Balanced(HTMLParser):
    """Checks that tags are closed in order and collects ids and references."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self._note(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._note(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def _note(self, tag, attrs):
        self.seen.append(tag)
        self.ids += [value for key, value in attrs if key == "id"]
        self.links += [value for key, value in attrs if key in ("href", "xlink:href", "src")]


def parsed(text: str) -> Balanced:
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    return parser


@pytest.mark.parametrize("kind", ["regression", "binary"])
@pytest.mark.parametrize("baselines", [True, False])
def test_page_is_whole_and_loads_nothing(rendered, kind, baselines):
    text = rendered(kind=kind, baselines=baselines)
    found = parsed(text)
    assert len(found.ids) == len(set(found.ids))
    assert all(link.removeprefix("#") in found.ids for link in found.links)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(found.seen)
    assert not re.findall(r"https?:|//[a-z]|@import|url\((?!#)", text)
    assert "default-src 'none'" in text


def test_guarantee_in_full(make):
    result = make()
    text = page(result)
    for word in (
        "Private: the promise below holds", 'class="box green"', "ε = 1.98", "δ = 0.00154",
        "odds that a given task took part", "e<sup>ε</sup> = 7.3", "Any one task added or removed",
        "Poisson cohorts q=0.5", "PLD", "200 noisy sums", "standard deviation 13.1 times as far",
        "clipped to length 0.5",
        "Protects each task from all others together", "The machine that sums sees",
        "The schema and the category names are public", result["guarantee"]["in_words"],
    ):  # fmt: skip
        assert word in text, word
    assert "not private" not in text.lower()


@pytest.mark.parametrize(
    ("state", "colour", "words"),
    [
        ("seeded", "amber", "Reproducible, not private: the noise comes from a seed"),
        ("leaks", "amber", "Not private: something was computed over several tasks"),
        ("weak", "amber", "That is a weak promise"),
        ("none", "red", "No privacy"),
        ("alone", "green", "Nothing released: every task trained alone"),
    ],
)
def test_other_states_are_said_aloud(rendered, state, colour, words):
    text = rendered(state=state)
    assert f'class="box {colour}"' in text
    assert words in text
    assert "Private: the promise below holds" not in text
    assert ('class="figures void"' in text) == (state in ("seeded", "leaks"))


def test_an_adaptive_clip_is_not_called_the_clip_of_every_release(make):
    result = make()
    result["config"]["clip_quantile"] = 0.5
    text = page(result)
    assert "by taking part; the clip followed a quantile" in text
    assert "clipped to length" not in text


def test_leaks_are_listed_and_no_privacy_has_no_epsilon(rendered):
    leak = "Scaling was fitted over all tasks without noise"
    assert f'<dd class="bad"><ul><li>{leak}</li></ul></dd>' in rendered(state="leaks")
    text = rendered(state="none")
    assert "ε = ∞" in text
    assert "ε spent" not in text
    assert "ε spent so far" in rendered()


def test_every_block_of_scores_is_labelled(make):
    result = make()
    result["metrics"]["label"] = "not covered by the <guarantee>"
    text = page(result)
    blocks = text.split("<h2>")[2:]  # the first is the guarantee
    assert len(blocks) == 7
    mark = '<span class="tag">not covered by the &lt;guarantee&gt;</span></h2>'
    for block in blocks[:-1]:  # the last holds settings, no scores
        assert mark in block
    # What the mark means is said once, before the first of them.
    note = "<b>Not covered by the &lt;guarantee&gt;</b>: computed from private data"
    assert text.count(note) == 1 and text.index(note) < text.index(mark)


@pytest.mark.parametrize("colour", ["green", "grey", "red"])
def test_the_verdict_stands_first_in_its_colour(make, colour):
    said = ["Something went wrong: <b>this</b>.", "Then that: this too."]
    label = "not covered by the guarantee"
    result = make() | {"verdict": {"colour": colour, "sentences": said, "label": label}}
    text = page(result)
    box = text.split(f'<div class="told {colour}"')[1].split("</div>")[0]
    assert '<b class="says">Something went wrong <span class="tag">not covered by' in box
    assert "&lt;b&gt;this&lt;/b&gt;. Then that: this too." in box
    assert text.index("Something went wrong") < text.index('aria-label="Guarantee"')
    shown = run_table(result).columns[0]._cells[0]
    assert shown.plain == " ".join(said)
    assert 'class="told' not in page(make())  # a result from before there were verdicts


def test_names_are_escaped_everywhere(make):
    # With matplotlib's formulas on, the dollars would be an error.
    evil = "$\\frac$ <script>alert('x')</script>& 学校"
    result = make(tasks=12, losers=12)
    for block in (result["metrics"], *result["metrics"]["baselines"].values()):
        block["per_task"] = {
            (evil if name == "school-3" else name): scores
            for name, scores in block["per_task"].items()
        }
    result["metrics"]["personal_models"] = {
        "mode": "best", "counts": {evil: 1}, "per_task": {evil: evil}
    }  # fmt: skip
    result["federation"]["source"] = evil
    result["federation"]["features"] = [evil]
    result["config"] |= {"method": evil, evil: evil}
    result["guarantee"] |= {"assumptions": [evil], "leaks": [evil], "in_words": evil}
    result["guarantee"] |= {"protects": evil, "trusts": evil, "sampling": evil, "accountant": evil}
    result["metrics"]["baselines"][evil] = result["metrics"]["baselines"]["global"]
    result["stopped"] = evil
    text = page(result)
    assert "script" not in parsed(text).seen
    assert "<script" not in text.lower()
    assert text.count("&lt;script&gt;alert") > 10
    assert "$\\frac$ &lt;script&gt;" in text.split('aria-label="Positive')[1].split("</svg>")[0]


def test_missing_baselines_leave_their_parts_out(make):
    for result in (make(baselines=False), make()):
        if "baselines" in result["metrics"]:
            result["metrics"]["baselines"] = {}
        text = page(result)
        assert "The tasks that lose" not in text
        assert "better than alone" not in text
        assert "best alone" not in text.lower()
        assert "without that baseline" in text
        assert "school-65" in text


def test_losers_in_words_and_numbers(rendered):
    text = rendered(losers=0, kind="binary")
    assert "of 65 tasks, none loses" in text
    assert "costs no privacy" in text
    one = rendered(losers=1)
    assert "1 of 65 tasks loses, by " in one
    lost = one.split("The tasks that lose")[1].split("<h2>")[0]
    assert "school-1<" in lost
    assert lost.count("<tr>") == 2  # the head and one task
    assert "costs no privacy" in lost
    many = rendered(losers=40).split("The tasks that lose")[1].split("<h2>")[0]
    assert "40 of 65 tasks lose" in many
    assert many.count("<tr>") == 16


def test_a_run_of_the_baseline_itself_has_nothing_to_compare(make):
    result = make(state="alone")
    result["metrics"]["baselines"]["local"] = {
        key: result["metrics"][key] for key in ("overall", "per_task")
    }
    text = page(result)
    assert "Task by task" not in text
    assert "none loses" in text


def test_the_curve_says_which_rows_it_is_about(make, rendered):
    assert "on validation rows" in rendered()
    result = make()
    result["federation"]["rows"]["validation"] = 0
    assert "on training rows" in page(result)


def test_what_the_tasks_ended_with_is_counted_whatever_the_strength(make, rendered):
    shown = rendered(tasks=10).split("What the tasks ended with")[1].split("<h2>")[0]
    assert "This last step cost no privacy: each task used its own rows" in shown
    assert "Each task chose the best of these" in shown
    rows = re.findall(r"<tr><td>(.*?)</td><td>(\d+)</td><td>(\d+) %", shown)
    assert rows == [
        ("trained alone", "2", "20"),
        ("billboard, fine-tuned freely", "2", "20"),
        ("billboard, fine-tuned near its weights", "4", "40"),
        ("own model as it is", "2", "20"),
    ]
    assert re.findall(r'style="width: (\d+)%"', shown) == ["50", "50", "100", "50"]
    result = make()
    result["metrics"]["personal_models"]["mode"] = "kl"
    assert "went on training the model that the method left it" in page(result)


def test_a_result_from_before_kinds_were_kept_still_opens(make):
    result = make(tasks=10)
    del result["metrics"]["personal_models"]["kinds"]
    shown = page(result).split("What the tasks ended with")[1].split("<h2>")[0]
    assert re.findall(r"<tr><td>(.*?)</td><td>(\d+)</td>", shown)[:2] == [
        ("trained alone", "2"), ("billboard, fine-tuned, mean 0.1", "2"),
    ]  # fmt: skip


@pytest.mark.parametrize("baselines", [True, False])
def test_each_task_says_what_it_ended_with(rendered, baselines):
    listed = rendered(tasks=10, baselines=baselines).split("<h2>All tasks ")[1]
    assert "ended with" in listed
    line = re.search(r"<tr><td>school-2</td>.*?</tr>", listed)
    assert line is not None and "billboard, fine-tuned, mean 0.1" in line.group()


def test_without_a_last_step_nothing_is_said_of_it(make):
    result = make(losers=1)
    result["metrics"]["personal_models"] = {"mode": "none", "counts": {}, "per_task": {}}
    text = page(result)
    assert "ended with" not in text
    assert "can keep the model it trained alone" in text
    assert "Training alone was among the choices" in page(make(losers=1))


def test_null_scores_do_not_stop_the_report(make):
    result = make(tasks=20, losers=2, kind="binary")
    result["metrics"]["per_task"]["school-9"]["accuracy"] = None
    text = page(result)
    assert "3 of 20 tasks lose" in text
    assert "no usable score" in text
    for name in result["metrics"]["overall"]:
        result["metrics"]["overall"][name] = None
    for block in (result["metrics"], *result["metrics"]["baselines"].values()):
        for scores in block["per_task"].values():
            scores["accuracy"] = None
    for point in result["curve"]:
        point["accuracy"] = point["loss"] = None
    text = page(result)
    parsed(text)
    assert "nan" not in text.lower()
    assert "How it learned" not in text


@pytest.mark.parametrize("tasks", [1, 2, 3000])
def test_few_and_many_tasks(rendered, tasks):
    text = rendered(tasks=tasks, kind="binary")
    parsed(text)
    assert ("Darker cells hold more tasks" in text) == (tasks == 3000)
    assert len(text) < 400_000
    if tasks == 3000:
        listed = text.split("<h2>All tasks ")[1].split("<h2>")[0]
        assert listed.count("<tr>") == 501
        assert "The first 500 of 3" in listed


def test_same_result_same_bytes(make, tmp_path):
    first, second = make(), make()
    for result in (first, second):
        result["timing"]["date"] = "2025-01-31"
    one = write_html(first, tmp_path / "deep" / "a.html")
    two = write_html(second, tmp_path / "b.html")
    assert one.read_bytes() == two.read_bytes()
    assert "2025-01-31" in one.read_text(encoding="utf-8")


def test_the_result_is_not_changed(make):
    result = make()
    page(result)
    assert result == make()


def test_a_path_that_cannot_be_written_is_a_sentence(make, tmp_path):
    with pytest.raises(TacitError, match="cannot be written"):
        write_html(make(), tmp_path)


def test_exact_counts_are_labelled_in_the_text(make):
    result = make()
    result["metrics"]["dropped_contributions"] = 0
    shown = page(result)
    terms = dict(re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", shown))
    for term in ("rows", "size of a task", "dropped contributions", "seconds"):
        assert terms[term].endswith("(not covered by the guarantee)"), term
    assert terms["device"] == "cpu"
    total = sum(result["federation"]["rows"].values())
    subtitle = re.search(r'<p class="sub">(.*?)</p>', shown)
    assert subtitle is not None and "row" not in subtitle[1] and str(total) not in subtitle[1]


def test_the_curve_says_that_it_is_before_the_last_step(make, rendered):
    assert ", before the last step that each task takes" in rendered()
    result = make()
    result["metrics"]["personal_models"] = {"mode": "none", "counts": {}, "per_task": {}}
    assert "before the last step" not in page(result)
    result["metrics"]["combined"] = {"shared": 0.5}  # tasks that combine end with others too
    assert "before the last step" in page(result)


def compared(gain):
    gain = np.array(gain, dtype=float)
    names, rows = tuple(f"s{k}" for k in range(len(gain))), np.ones(len(gain), dtype=int)
    return Comparison(names, rows, np.ones(len(gain)), 1 - gain, gain, 0)


def test_gains_of_zero_are_grey_and_far_ones_marked_where_they_would_be():
    kind = Score("mse", "mean squared error", False)
    near = np.linspace(-1, 1, 40)
    fig = plots.gains(compared([*near[near != 0], *[0.0] * 9, 50.0, 60.0, -70.0]), kind)
    ax = fig.axes[0]
    drawn = {to_hex(bar.get_facecolor()): 0.0 for bar in ax.patches}
    for bar in ax.patches:
        drawn[to_hex(bar.get_facecolor())] += bar.get_height()
    assert drawn == {plots.GAIN: 20, plots.LOSS: 20, plots.MUTED: 9}  # none of the far ones
    said = {text.get_text() for text in ax.texts}
    assert {"9 unchanged", "2 tasks further ▸", "◂ 1 task further"} <= said
    few = plots.gains(compared([0.5, 0.0, -0.5]), kind).axes[0]
    assert [to_hex(line.get_color()) for line in few.lines if line.get_marker() == "o"] == [
        plots.MUTED
    ]


def test_what_diverged_stands_in_a_red_box(make):
    result = make()
    assert 'class="told red"' not in page(result)
    result["stopped"] = "validation loss did not improve for 3 evaluations"
    assert 'class="told red"' not in page(result) and "Stopped early:</b>" in page(result)
    result["metrics"] |= {"diverged": ["<b>x</b>"], "dropped_contributions": 2}
    result["stopped"] = "the billboard diverged in round 3"
    box = page(result).split('<div class="told red"')[1].split("</div>")[0]
    assert "The training of 1 task (&lt;b&gt;x&lt;/b&gt;) diverged" in box
    assert (
        "2 contributions with numbers that are not finite were left out" in box
        and "in round 3" in box
    )


def test_settings_stand_once_and_without_folders(make):
    result = make()
    result["config"] |= {
        "tasks": 65,
        "privacy": {"epsilon": 2.0, "delta": None, "unit": "task"},
        "data": {"name": "exam", "file": "/home/me/secret/exam.csv", "task": "school"},
    }
    shown = page(result).split("Settings and timing")[1]
    assert "/home/me" not in shown and "exam.csv" in shown
    terms = re.findall(r"<dt>(.*?)</dt>", shown)
    assert len(terms) == len(set(terms))
    assert "delta" not in terms and "privacy" not in terms and "unit" in terms


def test_settings_that_nobody_types_are_in_words(make):
    result = make()
    result["config"] |= {"crowd": 65, "judged": True, "whole": False, "units": "none", "lr": 0.1}
    shown = page(result).split("Settings and timing")[1]
    listed = dict(re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", shown))
    assert listed["contributors"] == "65" and listed["own rows judge what was told"] == "yes"
    assert listed["information about coefficients"] == "released as one number"
    assert listed["units of columns"] == "every task&#x27;s own" and listed["lr"] == "0.1"
    assert not {"crowd", "judged", "whole", "units"} & listed.keys()


def test_a_heading_is_printed_with_its_figure_and_small_screens_have_their_own(rendered):
    text = rendered()
    for name in ("curve", "tasks"):
        before = text.split(f'id="{name}-')[0]
        assert before.count('<div class="together">') > 0
        assert before.rindex("<h2>") > before.rindex('<div class="together">')
    assert text.count('class="drawn slim"') == text.count("<figure") == 3  # none has to scroll
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert all('tabindex="0"' in tag for tag in re.findall(r'<div class="scroll"[^>]*>', text))


def test_the_summary_holds_what_one_page_can(make):
    text = summary(make(losers=3))
    for words in ("ε = 1.98", "Who is trusted", "What the tasks got", "Read by"):
        assert words in text
    for words in ("Assumptions", "<svg", "The tasks that lose", "Settings"):
        assert words not in text
    assert "Not covered by the guarantee" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser that prints")
@pytest.mark.parametrize("state", ["private", "seeded", "leaks"])
def test_the_summary_is_printed_on_one_page(make, state, tmp_path):
    result = make(state=state)
    said = ["Taking part helped: " + 40 * "much ", "Then that: this too."]
    result["verdict"] = {"colour": "green", "sentences": said, "label": "not covered"}
    (tmp_path / "summary.html").write_text(summary(result), encoding="utf-8")
    quiet = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    printed = tmp_path / "summary.pdf"
    subprocess.run(
        [*quiet, f"--print-to-pdf={printed}", (tmp_path / "summary.html").as_uri()],
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) == 1
