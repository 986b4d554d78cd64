"""`python -m docs.make.pictures`: the chart of the forecast, and the report with numbers beside it.

The pictures are kept in docs/pictures, because the README shows them. The report is photographed by
Chromium, which must be on the path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import tacit
from docs.make.links import DOCS

FOLDER = DOCS / "pictures"
TASKS = (10, 20, 40, 80, 160, 320, 640, 1280)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
ROWS = (5, 20, 80)
COLOURS = ("#9bbcd6", "#5b93bf", "#1f6aa5", "#0b3a63")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
PARTS = {
    '<div class="told': 1,
    "<h2>Private": 2,
    "<dt>Who is protected": 3,
    "<dt>Assumptions": 4,
    "<h2>Shared coefficients": 5,
}
"""What the page about the report explains, by how it begins in its source."""
BADGE = (
    '<span style="float:left;margin:.1em .5em 0 -1.9em;width:1.4em;height:1.4em;border-radius:50%;'
    "background:#b3261e;color:#fff;font:700 15px/1.4em sans-serif;text-align:center;"
    'position:relative;z-index:1">{}</span>'
)


def forecast_chart(place: Path) -> None:
    """The gain that is to be expected, over tasks, for several ε and numbers of rows."""
    plt.rcParams["svg.hashsalt"] = "tacit"
    figure, axes = plt.subplots(1, len(ROWS), figsize=(7.6, 3.2), sharey=True)
    for axis, rows in zip(axes, ROWS):
        for epsilon, colour in zip(EPSILONS, COLOURS):
            gains = [
                100
                * tacit.forecast(tasks=n, rows=rows, features=10, epsilon=epsilon).here.from_others
                for n in TASKS
            ]
            axis.plot(
                TASKS, gains, marker="o", markersize=3.5, color=colour, label=f"ε = {epsilon:g}"
            )
        axis.set_xscale("log")
        axis.set_xticks([10, 100, 1000], ["10", "100", "1000"])
        axis.set_title(f"{rows} rows a task", fontsize=10)
        axis.set_xlabel("tasks")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("error lower than the\nbest model alone, in %")
    axes[-1].legend(frameon=False, fontsize=9, loc="upper left")  # where no curve is
    figure.tight_layout()
    figure.savefig(place, metadata={"Date": None})
    plt.close(figure)


def report_picture(report: Path, place: Path) -> None:
    """The upper part of a report, with numbers at what the page explains."""
    text = report.read_text(encoding="utf-8")
    for start, number in PARTS.items():
        at = text.find(start)
        if at >= 0:
            end = at + re.match(r"<[^>]*>", text[at:]).end()  # type: ignore[union-attr]
            text = f"{text[:end]}{BADGE.format(number)}{text[end:]}"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(text, encoding="utf-8")
        subprocess.run(
            ["chromium", *QUIET, "--window-size=1000,1562", f"--screenshot={place}", page.as_uri()],
            check=True,
            capture_output=True,
        )


def example_report(folder: Path) -> Path:
    """The report of the run that the first page makes."""
    out = folder / "runs" / "patients"
    table = folder / "patients.csv"
    shutil.copy(DOCS / "patients.csv", table)
    patients = tacit.data.from_table(table, task="hospital", target="outcome")
    tacit.train(patients, privacy=tacit.Privacy(epsilon=2.0), out=out)
    return out / "report.html"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    forecast_chart(FOLDER / "forecast.svg")
    with tempfile.TemporaryDirectory() as made:
        report_picture(example_report(Path(made)), FOLDER / "report.png")
