"""What `tacit forecast` says of open tables before their rows are seen, and what runs then gain.

A forecast is told public facts (tasks, columns, kind of target) and the median rows of a task. The
run is `tacit.train` with nothing set by hand, beside the best that each task could do alone on the
same rows. Gain: by how much the pooled relative squared error, or log loss, is lower. Signs agree
where both or neither gain more than 1 %. What runs gained is kept in a file, so that another
forecast need not wait for them.

    TACIT_DATA=DIR python benchmarks/forecast.py [--tables verbagg,school] [--obtained gains.json]
        [--plot forecast.svg]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mixed
import tacit
from tacit.data.federation import Federation
from tacit.engine.progress import silent
from tacit.experiment.forecast import HELPS, Outlook
from tacit.report.svg import GAIN, INK, MUTED, SERIES, axes, figure

EPSILONS = (1.0, 2.0, 8.0)


def federation(name: str) -> Federation:
    return tacit.data.load(name) if name == "digits" else mixed.federation(name, 0)


def score(overall: Mapping[str, Any]) -> float:
    return overall["nmse_pooled"] if "nmse_pooled" in overall else overall["loss"]


def obtain(found: Federation, epsilon: float) -> float:
    """How much lower the error is than that of the best alone."""
    run = tacit.train(found, privacy=tacit.Privacy(epsilon=epsilon), seed=0, progress=silent)
    return 1 - score(run.measured.overall) / score(run.baselines["local"].overall)


def foresee(found: Federation, epsilon: float) -> Outlook:
    """What is told of it: public facts, and the rows of the median task."""
    classes = {"binary": 2, "multiclass": found.outputs}.get(found.kind)
    return tacit.forecast(
        tasks=len(found),
        rows=int((found.train.counts + found.validation.counts).median()),
        features=found.train.x[0].numel(),
        classes=classes,
        numbers=0 if found.units is None else len(found.units.columns),
        epsilon=epsilon,
    ).here


def draw(points: list[tuple[str, float, Outlook, float]], path: Path) -> None:
    """Foreseen across, obtained up."""
    fig = figure(6.5, 5.0)
    ax = axes(fig)
    for epsilon, colour in zip(EPSILONS, SERIES, strict=False):
        some = [point for point in points if point[1] == epsilon]
        x, y = [said.gain for _, _, said, _ in some], [got for *_, got in some]
        ax.scatter(x, y, s=28, color=colour, label=f"ε = {epsilon:g}")
        for (name, *_), place in zip(some, zip(x, y, strict=True), strict=True):
            ax.annotate(name, place, (4, 2), textcoords="offset points", size=7, color=MUTED)
    ends = (-0.2, 0.5)
    ax.plot(ends, ends, color=GAIN, linewidth=1)
    ax.axhline(HELPS, color=INK, linewidth=0.6)
    ax.axvline(HELPS, color=INK, linewidth=0.6)
    ax.set(xlabel="gain that was foreseen", ylabel="gain of the run", xlim=ends, ylim=ends)
    ax.legend(frameon=False)
    fig.savefig(path, facecolor="white")


def main() -> None:
    parser = argparse.ArgumentParser(description="Forecasts beside runs.")
    parser.add_argument("--tables", default=",".join([*mixed.tables(), *mixed.NAMED, "digits"]))
    parser.add_argument("--obtained", type=Path, help="What runs gained, kept and read again.")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    place: Path | None = given.obtained
    gains = json.loads(place.read_text()) if place is not None and place.exists() else {}
    points = []
    print("| set | tasks × rows × columns | ε | foreseen | from others | obtained |")
    print("|---|---|---|---|---|---|")
    for name in given.tables.split(","):
        found = federation(name)
        for epsilon in EPSILONS:
            said = foresee(found, epsilon)
            key = f"{name} {epsilon:g}"
            if key not in gains:
                gains[key] = obtain(found, epsilon)
            if place is not None:
                place.write_text(json.dumps(gains, indent=1))
            points.append((name, epsilon, said, gains[key]))
            rows = int((found.train.counts + found.validation.counts).median())
            size = f"{len(found)} × {rows} × {found.train.x[0].numel()}"
            told = f"{said.text} | {said.from_others:.0%} | {gains[key]:.1%}"
            print(f"| {name} | {size} | {epsilon:g} | {told} |", flush=True)
    same = sum((said.gain > HELPS) == (got > HELPS) for _, _, said, got in points)
    words = sum((said.likely != "unlikely") == (got > HELPS) for _, _, said, got in points)
    within = sum(abs(said.gain - got) <= 0.1 for _, _, said, got in points)
    many = len(points)
    print(f"\nsame sign {same} of {many} ({same / many:.0%}); the sentence's word agrees {words}")
    print(f"within 10 points {within}")
    if given.plot is not None:
        draw(points, given.plot)


if __name__ == "__main__":
    main()
