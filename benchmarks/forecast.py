"""What `tacit forecast` says of open tables before their rows are seen, and what runs then gain.

A forecast is told public facts (tasks, columns, kind of target) and the median rows of a task. The
run is `tacit.train` with nothing set by hand, beside the best that each task could do alone on the
same rows. Gain: by how much the pooled relative squared error, or log loss, is lower. What others
bring is the gain beyond that of the same run at ε = 0.01, where noise drowns all they say. Signs
agree where both or neither are more than 1 %. What runs gained is kept in a file, so that another
forecast need not wait for them.

    TACIT_DATA=DIR python benchmarks/forecast.py [--tables verbagg,school] [--obtained gains.json]
        [--plot forecast.svg]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

import mixed
import tacit
from tacit.data.federation import Federation
from tacit.engine.progress import silent
from tacit.experiment.forecast import HELPS, Outlook
from tacit.report.svg import GAIN, INK, MUTED, SERIES, axes, figure

EPSILONS = (1.0, 2.0, 8.0)
NOTHING = 0.01
"""ε at which nothing is heard of the others."""


class Pair(NamedTuple):
    """One run, foreseen and made."""

    name: str
    epsilon: float
    said: Outlook
    gain: float
    from_others: float


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


def draw(pairs: list[Pair], path: Path) -> None:
    """Foreseen across, obtained up."""
    fig = figure(6.5, 5.0)
    ax = axes(fig)
    for epsilon, colour in zip(EPSILONS, SERIES, strict=False):
        some = [pair for pair in pairs if pair.epsilon == epsilon]
        x, y = [pair.said.gain for pair in some], [pair.gain for pair in some]
        ax.scatter(x, y, s=28, color=colour, label=f"ε = {epsilon:g}")
        for pair, place in zip(some, zip(x, y, strict=True), strict=True):
            ax.annotate(pair.name, place, (4, 2), textcoords="offset points", size=7, color=MUTED)
    ends = (-0.2, 0.5)
    ax.plot(ends, ends, color=GAIN, linewidth=1)
    ax.axhline(HELPS, color=INK, linewidth=0.6)
    ax.axvline(HELPS, color=INK, linewidth=0.6)
    ax.set(xlabel="gain that was foreseen", ylabel="gain of the run", xlim=ends, ylim=ends)
    ax.legend(frameon=False)
    fig.savefig(path, facecolor="white")


def summarise(words: str, said: list[float], got: list[float]) -> None:
    """How far forecasts are right, beside guesses that know nothing of the table."""
    foreseen, found = np.array(said), np.array(got)
    helped = found > HELPS
    same, usual = ((foreseen > HELPS) == helped).sum(), np.abs(found - np.median(found)).mean()
    print(
        f"{words}: same sign in {same} of {len(got)} (always yes: {helped.sum()}), mean distance "
        f"{np.abs(foreseen - found).mean():.3f} (of their median: {usual:.3f}), rank correlation "
        f"{spearmanr(foreseen, found)[0]:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Forecasts beside runs.")
    parser.add_argument("--tables", default=",".join([*mixed.tables(), *mixed.NAMED, "digits"]))
    parser.add_argument("--obtained", type=Path, help="What runs gained, kept and read again.")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    place: Path | None = given.obtained
    gains = json.loads(place.read_text()) if place is not None and place.exists() else {}
    pairs = []
    print(
        "| set | tasks × rows × columns | ε | gain foreseen | obtained | from others | obtained |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in given.tables.split(","):
        found = federation(name)
        for epsilon in (NOTHING, *EPSILONS):
            if f"{name} {epsilon:g}" not in gains:
                gains[f"{name} {epsilon:g}"] = obtain(found, epsilon)
                if place is not None:
                    place.write_text(json.dumps(gains, indent=1))
        rows = int((found.train.counts + found.validation.counts).median())
        size = f"{len(found)} × {rows} × {found.train.x[0].numel()}"
        for epsilon in EPSILONS:
            said, gain = foresee(found, epsilon), gains[f"{name} {epsilon:g}"]
            pair = Pair(name, epsilon, said, gain, gain - gains[f"{name} {NOTHING:g}"])
            pairs.append(pair)
            print(
                f"| {name} | {size} | {epsilon:g} | {said.text} | {gain:.1%} "
                f"| {said.from_others:.1%} | {pair.from_others:.1%} |",
                flush=True,
            )
    print()
    summarise("gain", [pair.said.gain for pair in pairs], [pair.gain for pair in pairs])
    others = [pair.said.from_others for pair in pairs], [pair.from_others for pair in pairs]
    summarise("from others", *others)
    if given.plot is not None:
        draw(pairs, given.plot)


if __name__ == "__main__":
    main()
