"""From the name of a figure to its files."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tacit.errors import TacitError
from tacit.privacy.guarantee import NOT_COVERED
from tacit.reproduce import curves
from tacit.reproduce.experiments import GRIDS, Experiment
from tacit.reproduce.grid import FILE, Bench, Record, Records, hardware, prepare_device
from tacit.reproduce.networks import NETWORKS, STROKES
from tacit.reproduce.noise import FILE as NOISE_FILE
from tacit.reproduce.noise import NoiseTable
from tacit.reproduce.sets import PLACES, DataSet, find_sets
from tacit.reproduce.settings import plan_of

OTHER = {
    "pmtl/figure2": (
        "Figure 2: training loss of PMTL and ε over rounds",
        ("femnist", "writers", "stackoverflow", "celeba"),
    ),
    "pmtl/settings": (
        "Settings chosen on validation rows",
        ("writers", "femnist", "stackoverflow"),
    ),
}
EXPERIMENTS = {name: e.title for name, e in GRIDS.items()} | {
    name: title for name, (title, _) in OTHER.items()
}
"""What can be reproduced, by name."""


def reproduce(
    name: str,
    data: Path,
    out: Path,
    *,
    sets: Sequence[str] | None = None,
    seeds: int = 3,
    reduced: bool = False,
    device: str = "cpu",
    model: str | None = None,
    noise_only: bool = False,
    say: Callable[[str], None] = print,
) -> Path:
    """Run what is not yet in `out`, write the files, and return the Markdown page."""
    if name not in EXPERIMENTS:
        raise TacitError(f"there is no {name!r} to reproduce: choose {', '.join(EXPERIMENTS)}")
    if seeds < 1:
        raise TacitError(f"seeds={seeds}: at least 1 is needed")
    keys = GRIDS[name].sets if name in GRIDS else OTHER[name][1]
    for key in sets or ():
        if key not in keys:
            raise TacitError(f"{name} does not use {key!r}: choose of {', '.join(keys)}")
    if model is not None and model not in NETWORKS:
        raise TacitError(f"model={model!r}: choose one of {', '.join(NETWORKS)}")
    where = prepare_device(device)
    found = find_sets(data, tuple(sets or keys), reduced=reduced, say=say)
    found = [_seen(own, model) for own in found]
    bench = Bench(where, NoiseTable(out / NOISE_FILE), Records(out / FILE), say, model)
    if noise_only:
        _calibrate(name, bench, found, seeds, reduced)
        return out / NOISE_FILE
    started = time.monotonic()
    page = out / f"{name.split('/')[1]}.md"
    records: list[Record] = []
    note = ""
    if name == "pmtl/figure2":
        text = curves.figure2(bench, found, seeds, out)
    elif name == "pmtl/settings":
        text = curves.settings(bench, found, out)
    else:
        experiment = GRIDS[name]
        note = experiment.note
        for own in found:
            plan = plan_of(own.key, own.version, model)
            records += bench.run(own, plan, experiment.cells(seeds, reduced))
        text = experiment.write(out, found, records)
    made = _made(name, found, records, seeds, reduced, bench, time.monotonic() - started)
    parts = [f"# {EXPERIMENTS[name]}", note, _picture(out, page.stem), text, made]
    page.write_text("\n\n".join(part.strip() for part in parts if part) + "\n", encoding="utf-8")
    index(out)
    return page


def _seen(own: DataSet, model: str | None) -> DataSet:
    """The data set as its model sees it."""
    if plan_of(own.key, own.version, model).model != STROKES:
        return own
    return dataclasses.replace(own, federation=own.federation.through(STROKES))


def _calibrate(name: str, bench: Bench, found: list[DataSet], seeds: int, reduced: bool) -> None:
    if name == "pmtl/figure2":
        curves.calibrate_figure2(bench, found)
    elif name == "pmtl/settings":
        curves.calibrate_settings(bench, found)
    else:
        for own in found:
            cells = GRIDS[name].cells(seeds, reduced)
            bench.calibrate(own, plan_of(own.key, own.version, bench.model), cells)


def _picture(out: Path, stem: str) -> str:
    return f"![{stem}]({stem}.png)" if (out / f"{stem}.png").is_file() else ""


def _made(
    name: str,
    found: list[DataSet],
    records: list[Record],
    seeds: int,
    reduced: bool,
    bench: Bench,
    seconds: float,
) -> str:
    """Command, hardware, seeds, settings, and what ε means here."""
    command = f"tacit reproduce {name} --data DIR --sets {','.join(d.key for d in found)}"
    command += f" --seeds {seeds}" if name != "pmtl/settings" else ""
    command += " --reduced" if reduced else ""
    command += f" --model {bench.model}" if bench.model else ""
    command += " --device cuda" if bench.device.type == "cuda" else ""
    machines = sorted({record.hardware for record in records}) or [hardware(bench.device)]
    took = sum(record.seconds for record in records) or seconds
    lines = [
        "## How it was made",
        f"- Command: `{command}`",
        f"- Hardware: {', '.join(machines)}; {took / 60:.1f} minutes of runs.",
        f"- Figures are mean ± sd over {_seeds(seeds)}; accuracy is the mean over tasks of "
        f"each task's share of right test rows, {NOT_COVERED}.",
    ]
    if name == "pmtl/settings":
        lines[3] = f"- One run each with seed {curves.SEARCH_SEED}; test rows were not looked at."
    for data in found:
        plan, tasks = plan_of(data.key, data.version, bench.model), len(data.federation)
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
    models = {plan_of(data.key, data.version, bench.model).model for data in found}
    if STROKES in models:
        lines.append(
            f"- Model {STROKES} is a linear layer on a fixed public representation of the images "
            "(`tacit.features`), not the paper's network."
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
