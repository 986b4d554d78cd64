"""From the name of a figure to its files."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from papers.common.cells import CellFile
from papers.common.devices import hardware, prepare_device
from papers.common.noise import FILE as NOISE_FILE
from papers.common.noise import NoiseTable
from papers.common.request import PageRequest
from papers.pmtl import curves, noises
from papers.pmtl.experiments import GRIDS, Experiment
from papers.pmtl.grid import FILE, PMTLBench, PMTLCell
from papers.pmtl.networks import NETWORKS, STROKES
from papers.pmtl.sets import PLACES, DataSet, find_sets
from papers.pmtl.settings import plan_of
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
        ("writers", "femnist", "stackoverflow"),
    ),
}
EXPERIMENTS = {name: e.title for name, e in GRIDS.items()} | {
    name: title for name, (title, _) in OTHER.items()
}
"""What can be reproduced, by name."""
SEEDS = 3


def reproduce(request: PageRequest) -> Path:
    """Run what is not yet in `request.out`, write the files, and return the Markdown page."""
    name, out, model = request.name, request.out, request.model
    request.check_seeds()
    if request.pages or request.limit is not None:
        raise TacitError(f"{name} knows neither --pages nor --limit: finished runs are kept anyway")
    keys = GRIDS[name].sets if name in GRIDS else OTHER[name][1]
    request.check_sets(keys)
    if model is not None and model not in NETWORKS:
        raise TacitError(f"model={model!r}: choose one of {', '.join(NETWORKS)}")
    folder, where = request.need_data(), prepare_device(request.device)
    found = find_sets(folder, request.sets or keys, reduced=request.reduced, say=request.say)
    found = [_seen(own, model) for own in found]
    cells = CellFile(out / FILE, PMTLCell)
    bench = PMTLBench(where, NoiseTable(out / NOISE_FILE), cells, request.say, model)
    if request.noise_only:
        _calibrate(request, bench, found)
        return out / NOISE_FILE
    started = time.monotonic()
    done: list[PMTLCell] = []
    note = ""
    if name == "pmtl/figure2":
        text = curves.figure2(bench, found, request.seeds, out)
    elif request.stem in noises.TITLES:
        note = noises.NOTE
        text = noises.noises(bench, found, request.seeds, out, request.stem)
    elif name == "pmtl/settings":
        text = curves.settings(bench, found, out)
    else:
        experiment = GRIDS[name]
        note = experiment.note
        for own in found:
            plan = plan_of(own.key, own.version, model)
            done += bench.run(own, plan, experiment.trainings(request.seeds, request.reduced))
        text = experiment.write(out, found, done)
    took = sum(cell.seconds for cell in done) or time.monotonic() - started
    machines = sorted({cell.hardware for cell in done}) or [hardware(where)]
    ran = f"{', '.join(machines)}; {took / 60:.1f} minutes of runs."
    made = _make(request, found, ran)
    page = request.write_page(f"# {EXPERIMENTS[name]}", note, request.picture, text, made)
    index(out)
    return page


def _seen(own: DataSet, model: str | None) -> DataSet:
    """The data set as its model sees it."""
    if plan_of(own.key, own.version, model).model != STROKES:
        return own
    return dataclasses.replace(own, federation=own.federation.through(STROKES))


def _calibrate(request: PageRequest, bench: PMTLBench, found: list[DataSet]) -> None:
    if request.name == "pmtl/figure2":
        curves.calibrate_figure2(bench, found)
    elif request.stem in noises.TITLES:
        noises.calibrate_noises(bench, found)
    elif request.name == "pmtl/settings":
        curves.calibrate_settings(bench, found)
    else:
        for own in found:
            trainings = GRIDS[request.name].trainings(request.seeds, request.reduced)
            bench.calibrate(own, plan_of(own.key, own.version, bench.model), trainings)


def _make(request: PageRequest, found: list[DataSet], ran: str) -> str:
    """Command, hardware, seeds, settings, and what ε means here."""
    name, seeds = request.name, request.seeds
    options = ["--data DIR", f"--sets {','.join(data.key for data in found)}"]
    options += [f"--seeds {seeds}"] if name != "pmtl/settings" else []
    options += [f"--model {request.model}"] if request.model else []
    options += ["--device cuda"] if request.device == "cuda" else []
    lines = [
        "## How it was made",
        f"- Command: `{request.command(*options)}`",
        f"- Hardware: {ran}",
        f"- Figures are mean ± sd over {_seeds(seeds)}; accuracy is the mean over tasks of "
        f"each task's share of right test rows, {NOT_COVERED}.",
    ]
    if name == "pmtl/settings":
        lines[3] = f"- One run each with seed {curves.SEARCH_SEED}; test rows were not looked at."
    for data in found:
        plan, tasks = plan_of(data.key, data.version, request.model), len(data.federation)
        used = GRIDS[name].methods if name in GRIDS else ("pmtl",)
        own = "; ".join(
            f"{method} " + ", ".join(f"{key} {value:g}" for key, value in plan.own[method].items())
            for method in used
        )
        local = ", ".join(f"{key} {value:g}" for key, value in plan.steps.items())
        lines.append(
            f"- {data.title}: {tasks} tasks, {len(data.federation.train.y)} training rows, model "
            f"{plan.model}, {plan.rounds} rounds, Poisson cohorts of {plan.expected(tasks)} on "
            f"average, {local}; {own}."
        )
    models = {plan_of(data.key, data.version, request.model).model for data in found}
    if STROKES in models:
        lines.append(
            f"- Model {STROKES} is a linear layer on a fixed public representation of the images "
            "(`tacit.data.representation`), not the paper's network."
        )
    lines += [
        "- ε is for one task added or removed, Poisson cohorts, PLD accountant, δ = 1/tasks as in "
        "the paper. Runs are seeded: reproducible, and therefore not private.",
        "- Settings were fixed in advance or chosen on validation rows (`pmtl/settings`), the same "
        "for every ε; that choice is not covered by ε.",
    ]
    return "\n".join(lines[:1]) + "\n\n" + "\n".join(lines[1:])


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
    for folder in sorted(path.parent for path in out.glob("*/README.md")):
        lines.append(f"- [{folder.name}]({folder.name}/README.md): the same with this model")
    lines += ["", f"All runs: [{FILE}]({FILE}). Noise: [{NOISE_FILE}]({NOISE_FILE})."]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


__all__ = ["EXPERIMENTS", "PLACES", "Experiment", "index", "reproduce"]
