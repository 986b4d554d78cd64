"""From the name of a figure to its files."""

from __future__ import annotations

import time
from pathlib import Path

from papers.common.cells import CellFile
from papers.common.devices import hardware, prepare_device
from papers.common.noise import FILE as NOISE_FILE
from papers.common.noise import NoiseTable
from papers.common.request import PageRequest
from papers.pmtl import choices, curves, noises
from papers.pmtl.claims import findings
from papers.pmtl.experiments import GRIDS, Experiment
from papers.pmtl.grid import FILE, PMTLBench, PMTLCell
from papers.pmtl.sets import PLACES, DataSet, find_sets, linear
from papers.pmtl.settings import CHOSEN, LINEAR, plan_of
from tacit.errors import TacitError
from tacit.privacy.guarantee import NOT_COVERED

OTHER = {
    "pmtl/figure2": (
        "Figure 2: training loss of PMTL and ε over rounds",
        ("femnist", "writers", "stackoverflow", "celeba"),
    ),
    "pmtl/figure4": (noises.TITLES["figure4"], ("femnist", "writers")),
    "pmtl/figure5": (noises.TITLES["figure5"], ("celeba",)),
    "pmtl/figure6": (noises.TITLES["figure6"], ("stackoverflow",)),
    "pmtl/settings": (
        "Settings chosen on validation rows",
        ("femnist", "writers"),
    ),
}
EXPERIMENTS = {name: e.title for name, e in GRIDS.items()} | {
    name: title for name, (title, _) in OTHER.items()
}
"""What can be reproduced, by name."""
SEEDS = 3


def reproduce(request: PageRequest) -> Path:
    """Run what is not yet in `request.out`, write the files, and return the Markdown page."""
    name, out = request.name, request.out
    request.check_seeds()
    if request.limit is not None or (request.pages and name not in GRIDS):
        raise TacitError(f"{name} knows no --limit, and --pages only where runs are a grid")
    keys = GRIDS[name].sets if name in GRIDS else OTHER[name][1]
    request.check_sets(keys)
    folder, where = request.need_data(), prepare_device(request.device)
    found = find_sets(folder, request.sets or keys, reduced=request.reduced, say=request.say)
    found = [linear(own) if name in LINEAR else own for own in found]
    cells = CellFile(out / FILE, PMTLCell)
    bench = PMTLBench(where, NoiseTable(out / NOISE_FILE), cells, request.say)
    if request.noise_only:
        _calibrate(request, bench, found)
        return out / NOISE_FILE
    started = time.monotonic()
    done: list[PMTLCell] = []
    note = text = ""
    if name == "pmtl/figure2":
        text = curves.figure2(bench, found, request.seeds, out)
    elif request.stem in noises.TITLES:
        note = noises.NOTE
        text = noises.noises(bench, found, request.seeds, out, request.stem)
    elif name == "pmtl/settings":
        note = choices.NOTE
        text = choices.settings(bench, found, out, together=request.together)
    else:
        experiment = GRIDS[name]
        note = experiment.note
        for own in found:
            wanted = experiment.trainings(request.seeds, request.reduced)
            done += bench.run(own, wanted, together=request.together, pages=request.pages)
        if not request.together:
            text = experiment.write(out, found, done, request.seeds)
    if request.together:
        return out / FILE
    took = sum(cell.seconds for cell in done) or time.monotonic() - started
    machines = sorted({cell.hardware for cell in done}) or [hardware(where)]
    if name == "pmtl/settings":
        machines = choices.machines(out)
    ran = f"{', '.join(machines)}; {took / 60:.1f} minutes of runs, one after another."
    made = _make(request, found, ran)
    page = request.write_page(f"# {EXPERIMENTS[name]}", note, request.picture, text, made)
    index(out)
    return page


def _calibrate(request: PageRequest, bench: PMTLBench, found: list[DataSet]) -> None:
    if request.name == "pmtl/figure2":
        curves.calibrate_figure2(bench, found)
    elif request.stem in noises.TITLES:
        noises.calibrate_noises(bench, found)
    elif request.name == "pmtl/settings":
        choices.calibrate(bench, found)
    else:
        for own in found:
            trainings = GRIDS[request.name].trainings(request.seeds, request.reduced)
            bench.calibrate(own, trainings)


def _make(request: PageRequest, found: list[DataSet], ran: str) -> str:
    """Command, hardware, seeds, settings, and what ε means here."""
    name, seeds = request.name, request.seeds
    options = ["--data DIR", f"--sets {','.join(data.key for data in found)}"]
    options += [f"--seeds {seeds}"] if name != "pmtl/settings" else []
    options += ["--device cuda"] if request.device == "cuda" or "NVIDIA" in ran else []
    lines = ["## How it was made", f"- Command: `{request.command(*options)}`"]
    if name == "pmtl/settings":
        lines += [f"- One run each with seed {choices.SEED}; test rows were not looked at."]
    else:
        lines += [
            f"- Hardware: {ran}",
            f"- Figures are mean ± sd over {_seeds(seeds)}; accuracy is the mean over tasks of "
            f"each task's share of right test rows, {NOT_COVERED}.",
        ]
    for data in found:
        lines.append(_planned(request, data))
    lines += [
        "- ε is for one task added or removed, Poisson cohorts, PLD accountant, δ = 1/tasks as in "
        "the paper. Runs are seeded: reproducible, and therefore not private.",
        "- Settings were fixed in advance or chosen on validation rows; that choice is not "
        "covered by ε.",
    ]
    return "\n".join(lines[:1]) + "\n\n" + "\n".join(lines[1:])


def _planned(request: PageRequest, data: DataSet) -> str:
    """A data set, and what its methods are trained with."""
    plan, tasks = plan_of(data.key, data.version), len(data.federation)
    local = ", ".join(f"{key} {value:g}" for key, value in plan.steps.items() if key != "lr")
    text = (
        f"- {data.title}: {tasks} tasks, {len(data.federation.train.y)} training rows, model "
        f"{plan.model}, Poisson cohorts of {plan.expected(tasks)} on average, {local}"
    )
    chosen = any((key, version) == (data.key, data.version) for key, version, *_ in CHOSEN)
    if request.name == "pmtl/settings":
        return f"{text}."
    if chosen and request.stem not in noises.TITLES:
        return (
            f"{text}; clip, pull, lr, noise and rounds of every method for every ε were chosen on "
            "validation rows ([settings](settings.md), one grid for all methods)."
        )
    used = GRIDS[request.name].methods if request.name in GRIDS else ("pmtl",)
    own = "; ".join(
        f"{method} " + ", ".join(f"{key} {value:g}" for key, value in plan.own[method].items())
        for method in used
    )
    return f"{text}, lr {plan.steps['lr']:g}, {plan.rounds} rounds; {own}."


def _seeds(count: int) -> str:
    return "seeds " + ", ".join(map(str, range(count))) if count > 1 else "seed 0 alone"


def index(out: Path) -> None:
    """README.md of the folder: every page that is in it."""
    lines = [
        "# Private multi-task learning: published and obtained here",
        "",
        "Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. *Private Multi-Task Learning: Formulation "
        "and Applications to Federated Learning.* Transactions on Machine Learning Research, "
        "04/2023.",
        "",
        "Each page has a plot, a table (published, ours, why they differ) and the command that "
        "made it. Titles say where a data set stands in for the paper's.",
        "",
    ]
    for name, title in EXPERIMENTS.items():
        stem = name.split("/")[1]
        if (out / f"{stem}.md").is_file():
            files = ", ".join(
                f"[{end.upper()}]({stem}.{end})"
                for end in ("csv", "png", "svg")
                if (out / f"{stem}.{end}").is_file()
            )
            lines.append(f"- [{title}]({stem}.md) ({files})")
    found = findings(out)
    if found:
        lines += ["", "## Which claims hold here", "", *found]
    lines += ["", f"All runs: [{FILE}]({FILE}). Noise: [{NOISE_FILE}]({NOISE_FILE})."]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


__all__ = ["EXPERIMENTS", "PLACES", "Experiment", "index", "reproduce"]
