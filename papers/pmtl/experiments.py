"""The paper's figures and tables: which runs they need, and how they are shown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.common.write import markdown_table, write_csv, write_figure
from papers.pmtl import published
from papers.pmtl.claims import FINE_TUNINGS, sentences
from papers.pmtl.grid import ALONE, PMTLCell, Training
from papers.pmtl.means import Mean, means, show_epsilon
from papers.pmtl.plots import MODES, NAMES, against_epsilon
from papers.pmtl.sets import DataSet
from papers.pmtl.settings import EPSILONS, FEW, LEFT_OUT, REDUCED
from tacit.engine.personalise import Personalise

COLUMNS = ("set", "version", "method", "mode", "epsilon", "seeds", "mean", "sd", "published")


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
    best_of_modes: bool = False
    """Of the fine-tunings show only the best by test accuracy, as the paper's table 3 does."""
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

    def write(
        self, out: Path, sets: Sequence[DataSet], records: Sequence[PMTLCell], seeds: int
    ) -> str:
        """CSV, PNG and SVG; returns the Markdown of the tables."""
        found, version = means(records), {data.key: data.version for data in sets}
        if self.best_of_modes:
            found = _best_of_modes(found)
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
            parts += [f"{line}\n" for line in sentences(own)]
            parts += [self._fewer(own, seeds)]
        return "\n".join(parts)

    def _fewer(self, own: Sequence[Mean], seeds: int) -> str:
        """What was run with fewer seeds, or not at all."""
        ran = {(mean.method, mean.epsilon): mean.seeds for mean in own}
        fewer = [
            f"{NAMES[method]} at ε = {show_epsilon(epsilon)} ({ran.get((method, epsilon), 0)})"
            for method in self.methods
            for epsilon in self.epsilons
            if ran.get((method, epsilon), 0) < seeds
        ]
        return f"Fewer runs than {seeds}: {', '.join(fewer)}.\n" if fewer else ""


def _row(data: DataSet, mean: Mean) -> tuple[str, ...]:
    mode = MODES[mean.mode]
    name = f"{NAMES[mean.method]}, {mode}" if mode else NAMES[mean.method]
    known = published.published(mean.set, mean.method, mean.mode, mean.epsilon)
    if known is None:
        drawn = mean.mode == "none"
        why = "drawn in the paper, not printed" if drawn else "not in the paper"
        return name, show_epsilon(mean.epsilon), "–", str(mean), why
    score, where = known
    return name, show_epsilon(mean.epsilon), f"{score:.3f} ({where})", str(mean), data.differs


def _best_of_modes(found: Sequence[Mean]) -> list[Mean]:
    """For each method and ε, its own models and the best of its fine-tunings."""
    kept: dict[tuple[str, str, float, bool], Mean] = {}
    for mean in found:
        tuned = mean.mode != "none"
        key = mean.set, mean.method, mean.epsilon, tuned
        if key not in kept or mean.mean > kept[key].mean:
            kept[key] = dataclasses.replace(mean, mode="best") if tuned else mean
    return list(kept.values())


_ALONE = (
    " On FEMNIST's test part training alone is no fair rival: each task stops by the log loss of "
    "its own rows, and that is at once."
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
            ("pmtl", "fedavg"),
            alone=True,
            note="The paper draws PMTL and FedAvg; training alone is added. FedProx is in "
            f"[figure 7](figure7.md).{_ALONE}",
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
            ("none", *FINE_TUNINGS),
            panels=FINE_TUNINGS,
            note="Beside the paper's four fine-tunings stands what the methods leave. The strength "
            "of each fine-tuning and its length are chosen by each task on its own validation "
            "rows. ε = ∞ is without noise and clipping.",
        ),
        Experiment(
            "pmtl/table3",
            "Table 3: training alone, PMTL, PMTL and the best fine-tuning",
            ("stackoverflow", "femnist", "celeba", "writers"),
            ("pmtl",),
            FEW,
            ("none", *FINE_TUNINGS),
            alone=True,
            best_of_modes=True,
            note="As in the paper, the best of the four fine-tunings is that by test accuracy, "
            f"which flatters it a little.{_ALONE}",
        ),
    )
}
