"""Figure 2: training loss and ε over rounds. And `pmtl/settings`: the choice on validation rows."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from papers.common.write import markdown_table, write_csv, write_figure
from papers.pmtl.grid import PMTLBench
from papers.pmtl.plots import NAMES, over_rounds
from papers.pmtl.sets import DataSet
from papers.pmtl.settings import (
    SEARCH,
    SEARCH_EPSILONS,
    SEARCH_TEXT,
    PMTLPlan,
    plan_of,
)
from tacit.privacy import sampler_for

TOTAL = 2.0
"""The ε that the noise of figure 2 is calibrated to."""
POINTS = 30
SEARCH_SEED = 100
"""None of the seeds that results are reported for."""
Curve = list[tuple[int, float, float, float]]


def figure2(bench: PMTLBench, sets: Sequence[DataSet], seeds: int, out: Path) -> str:
    """Loss of PMTL over rounds at fixed noise, and the ε spent; returns Markdown."""
    rows: list[tuple[Any, ...]] = []
    curves: dict[str, Curve] = {}
    for data in sets:
        losses = [_losses(bench, data, seed) for seed in range(seeds)]
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


def _spent(bench: PMTLBench, data: DataSet) -> list[float]:
    plan, tasks = plan_of(data.key, data.version, bench.model), len(data.federation)
    noise = bench.multiplier(data, plan, TOTAL)
    sampler = sampler_for("poisson", plan.expected(tasks), tasks)
    return bench.noise.growth(noise, 1 / tasks, sampler, plan.rounds)


def _losses(bench: PMTLBench, data: DataSet, seed: int) -> list[tuple[int, float]]:
    """Mean over tasks of the training loss of the personal models, at some rounds."""
    plan = plan_of(data.key, data.version, bench.model)
    noise = bench.multiplier(data, plan, TOTAL)
    federation = data.federation.to(bench.device)
    simulation = bench.simulation(federation, plan, plan.method("pmtl"), noise, seed)
    every, found = max(1, plan.rounds // POINTS), []

    def look(round_: int, _: Any) -> None:
        if round_ % every == 0 or round_ == plan.rounds:
            loss = simulation.measure("train").overall["loss_per_task"]
            found.append((round_, float(loss if loss is not None else "nan")))

    simulation.run(on_round=look)
    bench.say(f"{data.key} seed {seed}: training loss {found[-1][1]:.3f} after {found[-1][0]}")
    return found


def settings(bench: PMTLBench, sets: Sequence[DataSet], out: Path) -> str:
    """Clip and pull by validation accuracy, one seed that no result is reported for."""
    rows: list[tuple[Any, ...]] = []
    parts = []
    for data in sets:
        plan = plan_of(data.key, data.version, bench.model)
        search = SEARCH_TEXT if data.key == "stackoverflow" else SEARCH
        methods = (
            ("pmtl", "ppsgd") if data.key == "stackoverflow" else ("pmtl", "fedavg", "fedprox")
        )
        federation = data.federation.to(bench.device)
        best = []
        for method in methods:
            known = {name: values for name, values in search.items() if _has(plan, method, name)}
            tried = []
            for values in itertools.product(*known.values()):
                chosen = dict(zip(known, values, strict=True))
                scores = []
                for epsilon in SEARCH_EPSILONS:
                    noise = bench.multiplier(data, plan, epsilon)
                    made = plan.method(method, **chosen)
                    simulation = bench.simulation(federation, plan, made, noise, SEARCH_SEED)
                    simulation.run()
                    overall = simulation.measure("validation").overall
                    scores.append(overall["accuracy_per_task"] or 0.0)
                tried.append((statistics.mean(scores), chosen))
                words = ", ".join(f"{name} {value:g}" for name, value in chosen.items())
                shown = " ".join(f"{score:.3f}" for score in scores)
                bench.say(f"{data.key} {method} {words}: {shown}, mean {tried[-1][0]:.4f}")
                rows.append((data.key, data.version, method, words, *(round(s, 5) for s in scores)))
            score, chosen = max(tried, key=lambda pair: pair[0])
            words = ", ".join(f"{name} {value:g}" for name, value in chosen.items())
            best.append((NAMES[method], f"{len(tried)}", words, f"{score:.3f}"))
        head = ("", "tried", "best", "validation accuracy, mean over ε")
        parts += [f"## {data.title}", "", markdown_table(head, best), ""]
    columns = ("set", "version", "method", "settings", *(f"ε={e:g}" for e in SEARCH_EPSILONS))
    write_csv(out / "settings.csv", columns, rows)
    return "\n".join(parts)


def calibrate_settings(bench: PMTLBench, sets: Sequence[DataSet]) -> None:
    for data in sets:
        for epsilon in SEARCH_EPSILONS:
            bench.multiplier(data, plan_of(data.key, data.version, bench.model), epsilon)


def _has(plan: PMTLPlan, method: str, setting: str) -> bool:
    return hasattr(plan.method(method), setting)
