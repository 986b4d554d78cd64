"""Terminal tables and the comparison page."""

from __future__ import annotations

import re
import statistics

from rich.console import Console

from tacit.report import compare_table, run_table, write_comparison
from tacit.report.comparison import groups


def shown(table, width=200) -> str:
    console = Console(width=width, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def several(make):
    runs = {
        f"runs/{method}-{epsilon}-{seed}": make(
            method=method, epsilon=epsilon, seed=seed, state="seeded"
        )
        for method in ("pmtl", "fedavg")
        for epsilon in (0.5, 2.0)
        for seed in (0, 1, 2)
    }
    runs["runs/open"] = make(method="pmtl", state="none", epsilon=1e6)
    runs["runs/alone"] = make(method="local", state="alone")
    return runs


def test_run_table_says_guarantee_scores_and_label(make):
    text = shown(run_table(make(state="seeded")))
    for word in ("Reproducible, not private", "ε=1.98", "personal", "alone", "one model for all",
                 "not covered by the guarantee", "relative squared error ↓"):  # fmt: skip
        assert word in text, word
    assert re.search(r"billboard, fine-tuned near its weights +26 +■", text)
    assert "ended with (not covered by the guarantee)" in text
    assert "This last step cost no privacy" in text
    result = make()
    result["metrics"]["personal_models"] = {"mode": "none", "counts": {}, "per_task": {}}
    assert "ended with" not in shown(run_table(result))
    assert "better than alone" not in shown(run_table(make(baselines=False)))
    assert "No privacy" in shown(run_table(make(state="none")))
    assert "Nothing released" in shown(run_table(make(state="alone")))


def test_brackets_are_names_and_not_markup(make):
    result = make(method="[red]m[/red]")
    result["federation"]["source"] = "[bold]x[/nope]"
    assert "[bold]x[/nope]: [red]m[/red]" in shown(run_table(result))
    text = shown(compare_table({"runs/[a]": result, "runs/[/b]": make()}))
    assert "runs/[a]" in text
    assert "runs/[/b]" in text


def test_seeds_are_gathered_and_nothing_else(make):
    runs = several(make)
    made = groups(runs)
    assert sorted(len(group.names) for group in made) == [1, 1, 3, 3, 3, 3]
    group = next(g for g in made if g.series == "pmtl" and g.epsilon == 2.0)
    scores = [runs[name]["metrics"]["overall"]["nmse_pooled"] for name in group.names]
    assert group.main.mean == statistics.fmean(scores)
    assert group.main.sd == statistics.stdev(scores)
    adaptive = {name: make(seed=k) for k, name in enumerate("ab")}
    adaptive["a"]["guarantee"]["clip"] = 0.31  # where an adaptive clip ended is no choice
    assert len(groups(adaptive)) == 1
    changed = make(seed=5)
    changed["config"]["lr"] = 0.2
    labels = {group.series for group in groups({"a": make(), "b": changed})}
    assert labels == {"pmtl, lr = 0.1", "pmtl, lr = 0.2"}


def test_an_epsilon_of_persons_is_another_thing_than_one_of_tasks(make):
    of_persons = make()
    of_persons["guarantee"]["unit"] = "person"
    of_persons["config"]["privacy"] = {"unit": "person"}
    made = groups({"tasks": make(), "persons": of_persons})
    assert {group.series for group in made} == {"pmtl, unit = person", "pmtl, unit = task"}
    shown = {group.names[0]: group.epsilon_text for group in made}
    assert shown["persons"] == f"{shown['tasks']} (person)"


def test_one_seeded_run_does_not_hide_among_private_ones(make):
    runs = {"a": make(seed=0), "b": make(seed=1, state="seeded")}
    (group,) = groups(runs)
    assert group.state.key == "seeded"


def test_compare_table(make):
    text = shown(compare_table(several(make)))
    for word in ("runs/pmtl-2.0-0 and 2 more", "reproducible, not private", "no privacy", "∞",
                 "nothing released", "±", "not covered by the guarantee"):  # fmt: skip
        assert word in text, word
    # no ε without its terms
    assert "Every ε: add-remove" in text
    assert "PLD accountant" in text


def test_a_comparison_is_readable_at_80_columns(make):
    text = shown(compare_table(several(make) | {"runs/b": make(kind="binary")}), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for whole in ("relative squared error ↓", "accuracy ↑", "score", " ± ", "pmtl", "∞"):
        assert whole in text, whole


def test_comparison_page(make, tmp_path):
    runs = several(make) | {"<script>x": make(kind="binary", method="<script>$m$")}
    path = write_comparison(runs, tmp_path / "compare.html")
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("<svg") == 2  # two data sets are never drawn on one axis
    assert "one standard deviation over seeds" in text
    assert "Every ε: add-remove" in text
    assert "12 runs here draw the noise from a seed" in text
    assert "not covered by the guarantee" in text.lower()
    assert "no privacy" in text
    again = write_comparison(runs, tmp_path / "again.html")
    assert again.read_bytes() == path.read_bytes()


def test_comparison_of_one_run_and_of_runs_without_scores(make, tmp_path):
    broken = make(seed=3)
    broken["metrics"]["overall"]["nmse_pooled"] = None
    for state in ("private", "none", "alone"):
        write_comparison({"only": make(state=state)}, tmp_path / "one.html")
    text = write_comparison({"broken": broken}, tmp_path / "b.html").read_text(encoding="utf-8")
    assert "<svg" not in text
    assert "\N{EN DASH}" in text
    assert "broken" in shown(compare_table({"broken": broken}))
    assert shown(compare_table({}))
