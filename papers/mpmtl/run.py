"""From the name of a figure to its files, for MP-MTL."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

from papers.common.devices import hardware, prepare_device
from papers.common.noise import FILE as NOISE_FILE
from papers.common.noise import NoiseTable
from papers.common.request import PageRequest
from papers.common.write import markdown_table
from papers.mpmtl import examples, remarks, tradeoff
from papers.mpmtl.compare import EPSILONS, MPMTLGrid
from papers.mpmtl.fits import FOLDS, MPMTLBench
from papers.mpmtl.trials import CHOOSING_SETS
from tacit.errors import TacitError
from tacit.privacy import Everyone
from tacit.privacy.guarantee import NOT_COVERED

SYNTHETIC = ("low-rank", "group-sparse")
REAL = ("school", "school-fixed", "lsoa2")
FIGURES: dict[str, tuple[str, tuple[str, ...], Callable[[tradeoff.MPMTLContext], str]]] = {
    "mpmtl/figure2": ("Figure 2: a model that leaks", (), examples.figure2),
    "mpmtl/figure3": ("Figure 3: relations and models", SYNTHETIC[:1], examples.figure3),
    "mpmtl/figure4": ("Figure 4: spreading the budget", SYNTHETIC[:1], examples.figure4),
    "mpmtl/figure5": ("Figure 5: noise to signal", SYNTHETIC[:1], examples.figure5),
    "mpmtl/figure6": (
        "Figure 6: privacy and accuracy, synthetic data",
        SYNTHETIC,
        tradeoff.figure6,
    ),
    "mpmtl/figure7": ("Figure 7: the number of tasks", SYNTHETIC[:1], tradeoff.figure7),
    "mpmtl/figure8": ("Figure 8: privacy and accuracy, real data", REAL, tradeoff.figure8),
}
EXPERIMENTS = {name: title for name, (title, _, _) in FIGURES.items()}
SEEDS = 20
FEW_TASKS, FEW_EPSILONS = 40, (0.1, 1.0)
"""The reduced version: fewer tasks and ε."""


def reproduce(request: PageRequest) -> Path:
    """Run what is not yet in `request.out`, write the files, and return the Markdown page."""
    name, out = request.name, request.out
    request.check_seeds()
    if request.together:
        raise TacitError(f"{name} knows no --together")
    if request.pages or request.limit is not None:
        raise TacitError(f"{name} knows neither --pages nor --limit: finished runs are kept anyway")
    title, known, figure = FIGURES[name]
    request.check_sets(known)
    sets = request.sets or known
    if set(sets) & set(REAL):
        request.need_data()
    bench = MPMTLBench(NoiseTable(out / NOISE_FILE), prepare_device(request.device))
    context = tradeoff.MPMTLContext(MPMTLGrid(bench, out, request.say), request, sets)
    if request.reduced:
        context.tasks, context.epsilons = FEW_TASKS, FEW_EPSILONS
        context.steps = tuple(m for m in tradeoff.STEPS if m <= FEW_TASKS)
    if request.noise_only:
        for key in sets:
            delta = context.trial(key, 0).delta
            for epsilon in context.epsilons:
                bench.noise.multiplier(epsilon, delta, Everyone(), 1)
        return out / NOISE_FILE
    started = time.monotonic()
    text = figure(context)
    made = _make(context, time.monotonic() - started)
    page = request.write_page(f"# {title}", request.picture, text, made)
    index(out)
    return page


def _make(context: tradeoff.MPMTLContext, seconds: float) -> str:
    """Command, hardware, repetitions, settings, and what ε means here."""
    request, name = context.request, context.request.name
    options = ["--data DIR"] if set(context.sets) & set(REAL) else []
    command = request.command(*options, f"--seeds {request.seeds}")
    machines = [hardware(context.grid.bench.device)]
    if name in ("mpmtl/figure6", "mpmtl/figure8"):
        machines = context.grid.machines(context.sets) or machines
        seconds = context.grid.seconds(context.sets)
    lines = [
        "## How it was made",
        "",
        f"- Command: `{command}`",
        f"- Hardware: {', '.join(machines)}; {seconds / 60:.1f} minutes of runs.",
        f"- Figures are mean ± sd over {context.repetitions} repetitions (fresh data sets or "
        f"splits, and fresh noise){_fewer(context)}; scores are on test rows, {NOT_COVERED}.",
        "- ε is for one task added or removed, δ = 1/(m log m) as in the paper; Gaussian releases "
        "over all tasks, composed exactly. Figures with Wishart noise have no ε at all: the number "
        "beside them is the one that the paper would print. Runs are seeded: reproducible, and "
        "therefore not private.",
    ]
    if name == "mpmtl/figure2":
        return "\n".join(lines)
    lines += [
        f"- Settings of private methods (strength, clip, rounds, schedule, step strategy) are "
        f"chosen for each ε without test rows: on {CHOOSING_SETS} other data sets of the same "
        "generator for synthetic data ([settings.csv](settings.csv)), inside the training part of "
        "each split for real data (in [cells.csv](cells.csv)). As in the paper, that choice is not "
        "booked. Ours has settings fixed in advance.",
        f"- Strengths of methods without privacy: {FOLDS}-fold cross-validation on the training "
        "rows (the paper has 5 folds); MTL is the multi-task method that it prefers.",
        "- MP-MTL's iterations are computed for all tasks at once (`fast.py`), with the library's "
        "operator, schedule and noise; a test holds them against the library's engine.",
    ]
    return "\n".join(lines)


def _fewer(context: tradeoff.MPMTLContext) -> str:
    """Sets with fewer repetitions than asked for."""
    fewer = {k: tradeoff.AT_MOST[k] for k in context.sets if k in tradeoff.AT_MOST}
    said = [f"{n} of {tradeoff.TITLES[k]}" for k, n in fewer.items() if n < context.repetitions]
    return f", {' and '.join(said)}" if said else ""


def index(out: Path) -> None:
    """README.md of the folder: what came out, which bars hold, every page that is in it."""
    lines = [
        "# Model-protected multi-task learning: published and obtained here",
        "",
        "Jian Liang, Ziqi Liu, Jiayu Zhou, Xiaoqian Jiang, Changshui Zhang, Fei Wang. "
        "*Model-Protected Multi-Task Learning.* IEEE Transactions on Pattern Analysis and Machine "
        "Intelligence, 2020.",
        "",
        "The paper's noise is not private at any ε (the claim in `wishart.py`). So its "
        "figures are repeated three times: *as printed*, on the *valid mechanism*, and with "
        "*ours*, the private prior `SharedPrior`. The paper draws its results and prints few "
        "numbers.",
        "",
    ]
    for name, title in EXPERIMENTS.items():
        stem = name.split("/")[1]
        if (out / f"{stem}.md").is_file():
            files = ", ".join(f"[{end.upper()}]({stem}.{end})" for end in ("csv", "png", "svg"))
            lines.append(f"- [{title}]({stem}.md) ({files})")
    held = _bars(out)
    if held:
        head = ("", "aimed at", "obtained (mean)", "holds")
        lines += ["", "## Bars", "", "Set before the runs. nMSE, lower is better.", ""]
        lines += [markdown_table(head, held)]
    lines += ["", *remarks.FOUND, ""]
    lines += [
        "All runs: [cells.csv](cells.csv). Settings: [settings.csv](settings.csv). Noise of "
        "one release: [noise.json](noise.json)."
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _bars(out: Path) -> list[tuple[str, ...]]:
    """From the CSV files of figures 6 and 8."""
    means: dict[str, tradeoff.Scores] = {}
    for stem in ("figure6", "figure8"):
        path = out / f"{stem}.csv"
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    own = means.setdefault(row["set"], {})
                    own[row["method"], float(row["epsilon"])] = [float(row["mean"])]
    return [line for key, scores in means.items() for line in tradeoff.bars(key, scores)]


__all__ = ["EPSILONS", "EXPERIMENTS", "FIGURES", "SEEDS", "index", "reproduce"]
