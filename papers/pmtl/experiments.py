"""The paper's figures and tables: which runs they need, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.common.write import markdown_table, write_csv, write_figure
from papers.pmtl import published
from papers.pmtl.grid import ALONE, PMTLCell, Training
from papers.pmtl.means import Mean, means, show_epsilon
from papers.pmtl.plots import MODES, NAMES, against_epsilon
from papers.pmtl.sets import DataSet
from papers.pmtl.settings import EPSILONS, FEW, LEFT_OUT, REDUCED
from tacit.engine.personalise import Personalise

COLUMNS = ("set", "version", "method", "mode", "epsilon", "seeds", "mean", "sd", "published")
FINE_TUNINGS: tuple[Personalise, ...] = ("vanilla", "mean", "kl", "ewc")


@dataclass(frozen=True)
class Experiment:
    """A figure or table that comes from a grid of runs."""

    name: str
    title: str
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    epsilons: tuple[float, ...] = EPSILONS
    modes: tuple[Personalise, ...] = ("none",)
    alone: bool = False
    panels: tuple[str, ...] = ("",)
    note: str = ""

    def trainings(self, seeds: int, reduced: bool) -> list[Training]:
        """Seed after seed, so that a grid that was stopped is a whole one with fewer seeds."""
        wanted = [e for e in self.epsilons if not reduced or e in REDUCED or math.isinf(e)]
        methods = [m for m in self.methods if not reduced or m not in LEFT_OUT]
        found = []
        for seed in range(seeds):
            found += [Training(ALONE, 0.0, seed)] if self.alone else []
            found += [Training(m, e, seed, self.modes) for m in methods for e in wanted]
        return found

    def write(self, out: Path, sets: Sequence[DataSet], records: Sequence[PMTLCell]) -> str:
        """CSV, PNG and SVG; returns the Markdown of the tables."""
        found, version = means(records), {data.key: data.version for data in sets}
        stem = self.name.split("/")[1]
        rows = []
        for mean in found:
            known = published.published(mean.set, mean.method, mean.mode, mean.epsilon)
            rows.append(
                (
                    mean.set,
                    version[mean.set],
                    mean.method,
                    mean.mode,
                    mean.epsilon,
                    mean.seeds,
                    round(mean.mean, 5),
                    round(mean.sd, 5),
                    "" if known is None else known[0],
                )
            )
        write_csv(out / f"{stem}.csv", COLUMNS, rows)
        write_figure(out, stem, against_epsilon(sets, found, self.panels, self.title))
        parts = []
        for data in sets:
            own = [mean for mean in found if mean.set == data.key]
            parts += [f"## {data.title}{', reduced' if data.version == 'reduced' else ''}", ""]
            columns = ("", "ε", "published", "ours", "why they differ")
            parts += [markdown_table(columns, [_row(data, mean) for mean in own]), "", data.why, ""]
            parts += [line for line in (_guard(own), _ahead(own)) if line]
            parts += [""]
        return "\n".join(parts)


def _row(data: DataSet, mean: Mean) -> tuple[str, ...]:
    mode = MODES[mean.mode]
    name = f"{NAMES[mean.method]}, {mode}" if mode else NAMES[mean.method]
    known = published.published(mean.set, mean.method, mean.mode, mean.epsilon)
    if known is None:
        drawn = mean.mode == "none"
        why = "drawn in the paper, not printed" if drawn else "not in the paper"
        return name, show_epsilon(mean.epsilon), "–", str(mean), why
    score, where = known
    why = data.differs
    if where == "Table 3" and mean.mode == "best":
        why += "; there the best fine-tuning by test accuracy, here by each task's validation rows"
    return name, show_epsilon(mean.epsilon), f"{score:.3f} ({where})", str(mean), why


def _guard(own: Sequence[Mean]) -> str:
    """How far each task's best own model falls short of training alone, at worst."""
    alone = next((mean for mean in own if mean.method == ALONE), None)
    best = [mean for mean in own if mean.mode == "best"]
    if alone is None or not best:
        return ""
    worst = min(best, key=lambda mean: mean.mean)
    return (
        f"Against training alone, the best own model is worst for {NAMES[worst.method]} at "
        f"ε = {worst.epsilon:g}: {worst.mean - alone.mean:+.4f} in accuracy.\n"
    )


def _ahead(own: Sequence[Mean]) -> str:
    """In how many pairs PMTL is ahead of the global model after the same fine-tuning."""
    score = {(m.mode, m.method, m.epsilon): m.mean for m in own if m.mode in FINE_TUNINGS}
    pairs = [(mode, e) for mode, method, e in score if method == "pmtl"]
    pairs = [(mode, e) for mode, e in pairs if (mode, "fedavg", e) in score]
    if not pairs:
        return ""
    table = published.TABLE_1
    ours = sum(score[m, "pmtl", e] > score[m, "fedavg", e] for m, e in pairs)
    theirs = sum(table[m, "pmtl", e] > table[m, "fedavg", e] for m, e in pairs)
    return (
        f"After the same fine-tuning, PMTL is ahead of the global model in {ours} of {len(pairs)} "
        f"pairs (published: {theirs}).\n"
    )


_ALL = ("writers", "femnist", "stackoverflow", "celeba")
GRIDS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "pmtl/figure1",
            "Figure 1: naive DP of all models, against joint DP",
            ("femnist",),
            ("pmtl", "fedavg", "naive"),
            (0.1, 0.8, 2.0, 4.0),
            alone=True,
            note="Naive DP publishes every personal model with noise: nothing is averaged.",
        ),
        Experiment(
            "pmtl/figure3",
            "Figure 3: PMTL and private global models",
            _ALL,
            ("pmtl", "fedavg", "fedprox"),
            modes=("none", "best"),
            alone=True,
            panels=("none", "best"),
            note="The paper draws PMTL and FedAvg; added are FedProx, training alone, and each "
            "task's best own model, chosen on its own validation rows at no privacy cost.",
        ),
        Experiment(
            "pmtl/figure7",
            "Figure 7: PMTL, FedAvg and FedProx",
            _ALL,
            ("pmtl", "fedavg", "fedprox"),
        ),
        Experiment(
            "pmtl/figure8",
            "Figure 8: PMTL and PP-SGD on tags of posts",
            ("stackoverflow",),
            ("pmtl", "ppsgd"),
        ),
        Experiment(
            "pmtl/table1",
            "Table 1: PMTL and a private global model, then fine-tuned",
            ("femnist", "writers"),
            ("pmtl", "fedavg"),
            (*FEW, math.inf),
            FINE_TUNINGS,
            panels=FINE_TUNINGS,
            note="The strength of each fine-tuning and its length are chosen by each task on its "
            "own validation rows. ε = ∞ is without noise and clipping.",
        ),
        Experiment(
            "pmtl/table3",
            "Table 3: training alone, PMTL, PMTL and best own model",
            ("stackoverflow", "femnist", "celeba", "writers"),
            ("pmtl",),
            FEW,
            ("none", "best"),
            alone=True,
        ),
    )
}
