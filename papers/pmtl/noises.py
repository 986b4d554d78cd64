"""Figures 4 to 6: test accuracy and ε over rounds, for each clip γ and each noise σ.

The paper's appendix A.5 shows what a user chooses among: σ is the deviation of the noise on the
mean update of a cohort of q tasks, so the noise multiplier is σ q / γ. The data sets are FEMNIST,
CelebA and StackOverflow in turn, with the paper's values of σ and γ. What it calls non-private has
neither noise nor clip, and is the same line in each panel.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.common.cells import CellFile
from papers.common.write import markdown_table, write_csv, write_figure
from papers.pmtl.grid import PMTLBench, digest
from papers.pmtl.means import NoiseCurve
from papers.pmtl.plots import by_noise
from papers.pmtl.sets import DataSet
from papers.pmtl.settings import PMTLPlan, plan_of
from tacit.data.federation import Federation
from tacit.privacy import sampler_for

FILE = "noises.csv"
POINTS = 12
GRIDS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "femnist": ((0.2, 0.5, 1.0), (0.02, 0.05, 0.1)),
    "writers": ((0.2, 0.5, 1.0), (0.02, 0.05, 0.1)),
    "celeba": ((0.2, 0.5, 1.0), (0.02, 0.05, 0.1)),
    "stackoverflow": ((0.1, 0.5, 1.0), (0.01, 0.05, 0.1)),
}
"""The paper's clips γ and noises σ (appendix A.5)."""
TITLES = {
    "figure4": "Figure 4: PMTL by clip and noise, images of writers",
    "figure5": "Figure 5: PMTL by clip and noise, faces",
    "figure6": "Figure 6: PMTL by clip and noise, tags of posts",
}
NOTE = (
    "Above the mean over tasks of each task's accuracy on test rows, below the ε that was spent so "
    "far; σ is the deviation of the noise on the mean update of a cohort. Without privacy there is "
    "neither noise nor clip. The paper's own ε are of 1000 rounds (600 for tags) and are drawn, "
    "not printed; fine-tuning over ε is in [table 1](table1.md)."
)
FREE = (math.inf, 0.0)
"""Clip and noise of the run without privacy."""


@dataclass(frozen=True)
class NoisePoint:
    """One line of noises.csv: test accuracy in a round, which no ε covers."""

    set: str
    clip: float
    sigma: float
    seed: int
    round: int
    accuracy_per_task: float
    settings: str

    @property
    def key(self) -> tuple[Any, ...]:
        return self.set, self.clip, self.sigma, self.seed, self.round, self.settings


def noises(bench: PMTLBench, sets: Sequence[DataSet], seeds: int, out: Path, stem: str) -> str:
    """All curves of these sets; returns Markdown."""
    kept = CellFile(out / FILE, NoisePoint)
    found = {data.key: _curves(bench, kept, data, seeds) for data in sets}
    rows = [
        (key, curve.clip, curve.sigma, round_, seeds, *(round(v, 5) for v in rest))
        for key, curves in found.items()
        for curve in curves
        for round_, *rest in curve.points
    ]
    columns = ("set", "clip", "sigma", "round", "seeds", "accuracy", "sd", "epsilon")
    write_csv(out / f"{stem}.csv", columns, rows)
    write_figure(out, stem, by_noise(sets, found, TITLES[stem]))
    parts = []
    for data in sets:
        lines = [_line(curve, seeds) for curve in found[data.key]]
        head = ("γ", "σ", "published", "ours: accuracy at the end", "ours: ε at the end")
        parts += [f"## {data.title}", markdown_table(head, lines), data.why]
    return "\n\n".join(parts)


def calibrate_noises(bench: PMTLBench, sets: Sequence[DataSet]) -> None:
    for data in sets:
        for clip, sigma in _settings(data):
            spent = _spent(bench, data, clip, sigma)[-1]
            bench.say(f"{data.key} {data.version}: γ={clip:g} σ={sigma:g} costs ε={spent:.4g}")


def _settings(data: DataSet) -> list[tuple[float, float]]:
    clips, sigmas = GRIDS[data.key]
    return [*((clip, sigma) for clip in clips for sigma in sigmas), FREE]


def _curves(
    bench: PMTLBench, kept: CellFile[NoisePoint], data: DataSet, seeds: int
) -> list[NoiseCurve]:
    federation, found = data.federation.to(bench.device), []
    for clip, sigma in _settings(data):
        spent = _spent(bench, data, clip, sigma)
        runs = [_run(bench, kept, data, federation, (clip, sigma), seed) for seed in range(seeds)]
        points = []
        for same_round in zip(*runs, strict=True):
            scores = [point.accuracy_per_task for point in same_round]
            sd = statistics.stdev(scores) if seeds > 1 else 0.0
            round_ = same_round[0].round
            points.append((round_, statistics.mean(scores), sd, spent[round_]))
        found.append(NoiseCurve(clip, sigma, tuple(points)))
    return found


def _run(
    bench: PMTLBench,
    kept: CellFile[NoisePoint],
    data: DataSet,
    federation: Federation,
    setting: tuple[float, float],
    seed: int,
) -> list[NoisePoint]:
    """The points of one training, from the file where they are in it."""
    (clip, sigma), plan = setting, plan_of(data.key, data.version)
    rounds = sorted({max(1, round(plan.rounds * k / POINTS)) for k in range(1, POINTS + 1)})
    about, name = (data.key, clip, sigma, seed), digest(data, plan, "pmtl")
    keys = [(*about, round_, name) for round_ in rounds]
    if not all(key in kept.rows for key in keys):
        noise = None if sigma == 0 else multiplier(plan, len(federation), clip, sigma)
        # Without privacy nothing is clipped, whatever the method's clip is.
        method = plan.method("pmtl", **({} if noise is None else {"clip": clip}))
        simulation = bench.simulation(federation, plan, method, noise, seed)

        def look(round_: int, _: Any) -> None:
            if round_ in rounds:
                score = simulation.measure("test").overall["accuracy_per_task"] or 0.0
                kept.add(NoisePoint(*about, round_, round(score, 5), name))

        simulation.run(on_round=look)
        last = kept.rows[keys[-1]].accuracy_per_task
        bench.say(f"{data.key} γ={clip:g} σ={sigma:g} seed {seed}: accuracy {last:.3f}")
    return [kept.rows[key] for key in keys]


def multiplier(plan: PMTLPlan, tasks: int, clip: float, sigma: float) -> float:
    """σ is of the mean over q tasks, a multiplier of the sum in units of the clip."""
    return sigma * plan.expected(tasks) / clip


def _spent(bench: PMTLBench, data: DataSet, clip: float, sigma: float) -> list[float]:
    """ε after each round; infinite after the first where nothing is added."""
    plan, tasks = plan_of(data.key, data.version), len(data.federation)
    if sigma == 0:
        return [0.0] + [math.inf] * plan.rounds
    sampler = sampler_for("poisson", plan.expected(tasks), tasks)
    noise = multiplier(plan, tasks, clip, sigma)
    return bench.noise.growth(noise, 1 / tasks, sampler, plan.rounds)


def _line(curve: NoiseCurve, seeds: int) -> tuple[str, ...]:
    _, accuracy, sd, epsilon = curve.points[-1]
    ours = f"{accuracy:.3f} ± {sd:.3f}" if seeds > 1 else f"{accuracy:.3f}"
    if curve.sigma == 0:
        return "–", "0", "drawn", ours, "∞"
    return f"{curve.clip:g}", f"{curve.sigma:g}", "drawn", ours, f"{epsilon:.3g}"
