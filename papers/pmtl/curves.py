"""Figure 2: training loss and ε over rounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.common.cells import CellFile
from papers.common.write import markdown_table, write_csv, write_figure
from papers.pmtl.grid import PMTLBench, digest
from papers.pmtl.plots import over_rounds
from papers.pmtl.sets import DataSet
from papers.pmtl.settings import PMTLPlan, chosen_plan
from tacit.privacy import sampler_for

TOTAL = 2.0
"""The ε that the noise of figure 2 is calibrated to."""
POINTS = 30
FILE = "losses.csv"
Curve = list[tuple[int, float, float, float]]


@dataclass(frozen=True)
class LossPoint:
    """One line of losses.csv."""

    set: str
    seed: int
    round: int
    loss: float
    settings: str

    @property
    def key(self) -> tuple[str, int, int, str]:
        return self.set, self.seed, self.round, self.settings


def figure2(bench: PMTLBench, sets: Sequence[DataSet], seeds: int, out: Path) -> str:
    """Loss of PMTL over rounds at fixed noise, and the ε spent; returns Markdown."""
    rows: list[tuple[Any, ...]] = []
    curves: dict[str, Curve] = {}
    kept = CellFile(out / FILE, LossPoint)
    for data in sets:
        losses = [_losses(bench, kept, data, seed) for seed in range(seeds)]
        spent = _spent(bench, data)
        curves[data.key] = []
        for point, (round_, _) in enumerate(losses[0]):
            values = [run[point][1] for run in losses]
            sd = statistics.stdev(values) if seeds > 1 else 0.0
            curves[data.key].append((round_, statistics.mean(values), sd, spent[round_]))
        rows += [(data.key, data.version, *point) for point in curves[data.key]]
    columns = ("set", "version", "round", "loss", "sd", "epsilon")
    rounded = [(*row[:3], *(round(value, 5) for value in row[3:])) for row in rows]
    write_csv(out / "figure2.csv", columns, rounded)
    title = "Figure 2: training loss of PMTL and ε over rounds"
    write_figure(out, "figure2", over_rounds(sets, curves, title))
    lines = []
    for data in sets:
        first, last = curves[data.key][0], curves[data.key][-1]
        half = curves[data.key][len(curves[data.key]) // 2]
        lines += [
            (
                data.title,
                f"{at}",
                "–",
                f"{loss:.3f} ± {sd:.3f}",
                f"{epsilon:.3f}",
                f"drawn in the paper, not printed; {data.differs}",
            )
            for at, loss, sd, epsilon in (first, half, last)
        ]
    head = ("", "round", "published", "ours: training loss", "ours: ε", "why they differ")
    reasons = "\n\n".join(data.why for data in sets)
    return f"{markdown_table(head, lines)}\n\n{reasons}\n"


def calibrate_figure2(bench: PMTLBench, sets: Sequence[DataSet]) -> None:
    for data in sets:
        curve = _spent(bench, data)
        bench.say(f"{data.key} {data.version}: ε={curve[-1]:.4g} after {len(curve) - 1} rounds")


def _plan(data: DataSet) -> PMTLPlan:
    return chosen_plan(data.key, data.version, "pmtl", TOTAL)


def _spent(bench: PMTLBench, data: DataSet) -> list[float]:
    plan, tasks = _plan(data), len(data.federation)
    noise = bench.multiplier(data, plan, TOTAL)
    sampler = sampler_for("poisson", plan.expected(tasks), tasks)
    return bench.noise.growth(noise, 1 / tasks, sampler, plan.rounds)


def _losses(
    bench: PMTLBench, kept: CellFile[LossPoint], data: DataSet, seed: int
) -> list[tuple[int, float]]:
    """Mean over tasks of the training loss of the personal models, at some rounds."""
    plan, name = _plan(data), digest(data, _plan(data), "pmtl")
    every = max(1, plan.rounds // POINTS)
    rounds = sorted({*range(0, plan.rounds, every), plan.rounds})
    keys = [(data.key, seed, round_, name) for round_ in rounds]
    if not all(key in kept.rows for key in keys):
        noise, federation = bench.multiplier(data, plan, TOTAL), data.federation.to(bench.device)
        simulation = bench.simulation(federation, plan, plan.method("pmtl"), noise, seed)

        def look(round_: int, _: Any) -> None:
            if round_ in rounds:
                loss = simulation.measure("train").overall["loss_per_task"]
                shown = round(float(loss if loss is not None else "nan"), 5)
                kept.add(LossPoint(data.key, seed, round_, shown, name))

        simulation.run(on_round=look)
        last = kept.rows[keys[-1]]
        bench.say(f"{data.key} seed {seed}: loss {last.loss:.3f} after {last.round} rounds")
    return [(round_, kept.rows[key].loss) for round_, key in zip(rounds, keys, strict=True)]
