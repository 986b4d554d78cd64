"""From the name of a figure to its files, for FedMTL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from papers.common.devices import hardware, prepare_device
from papers.common.request import PageRequest
from papers.fedmtl import curves, groups, remarks, shares, table3
from papers.fedmtl.context import FedMTLContext
from papers.fedmtl.grid import CELLS, ROUNDS, FedMTLGrid
from papers.fedmtl.sets import CHOOSING, FedMTLPlan
from tacit.errors import TacitError

FACES = ("lfwa", "facea")
FIGURES: dict[str, tuple[str, tuple[str, ...], Callable[[FedMTLContext], str]]] = {
    "fedmtl/table3": (table3.TITLE, table3.SETS, table3.table3),
    "fedmtl/figure2": (
        "Figure 2: layers of clients in groups",
        ("figure2",),
        groups.figure2,
    ),
    "fedmtl/figure5": ("Figure 5: rows and heads as dealt", ("lfwa",), groups.figure5),
    "fedmtl/figure6": (
        "Figure 6: similarity of clients in groups",
        ("figure6",),
        groups.figure6,
    ),
    "fedmtl/figure7": ("Figure 7: accuracy during training", FACES, curves.figure7),
    "fedmtl/figure8": ("Figure 8: FedMTL and its variants", ("facea",), curves.figure8),
    "fedmtl/figure9": ("Figure 9: time on shares and in the clear", (), shares.figure9),
}
EXPERIMENTS = {name: title for name, (title, _, _) in FIGURES.items()}
SEEDS = 3
NEED_NO_DATA = ("fedmtl/figure5", "fedmtl/figure9")


def reproduce(request: PageRequest) -> Path:
    """Run what is not yet in `request.out`, write the files, and return the Markdown page."""
    name, out = request.name, request.out
    if request.together or request.noise_only:
        raise TacitError(f"{name} has models of its own and no noise: leave that option out")
    request.check_seeds(CHOOSING)
    title, known, figure = FIGURES[name]
    request.check_sets(known)
    if request.pages and name not in NEED_NO_DATA and not (out / CELLS).is_file():
        raise TacitError(f"there is no {CELLS} in {out}: leave --pages out to make runs")
    grid = FedMTLGrid(request, prepare_device(request.device))
    # Always in this order: sets that cost most come last.
    sets = tuple(key for key in known if key in (request.sets or known))
    context = FedMTLContext(grid, sets, range(request.seeds))
    text = figure(context)
    page = request.write_page(f"# {title}", request.picture, text, _make(request, context))
    index(out, context)
    return page


def _make(request: PageRequest, context: FedMTLContext) -> str:
    """Command, hardware, seeds, and how settings came about."""
    name = request.name
    options = [] if name in NEED_NO_DATA else ["--data DIR"]
    if set(context.sets) != set(FIGURES[name][1]):
        options += [f"--sets {','.join(context.sets)}"]
    options += [f"--seeds {request.seeds}"]
    lines = ["## How it was made", "", f"- Command: `{request.command(*options)}`"]
    if name == "fedmtl/figure5":
        return "\n".join([*lines, "- No model is trained, and no rows are read."])
    if name == "fedmtl/figure9":
        return "\n".join([*lines, f"- Every round: [{shares.FILE}]({shares.FILE})."])
    cells = context.used()
    machines = sorted({cell.hardware for cell in cells}) or [hardware(context.grid.device)]
    if any("CPU" not in machine for machine in machines):
        lines[-1] = f"- Command: `{request.command(*options, '--device cuda')}`"
    minutes = sum(cell.seconds for cell in cells) / 60
    lines += [
        f"- Hardware: {', '.join(machines)}; runs of these sets in "
        f"[{CELLS}]({CELLS}): {len(cells)}, {minutes:.1f} minutes.",
        *(f"- {_plan(context.plan(key))}" for key in _train(context)),
    ]
    if name in ("fedmtl/figure2", "fedmtl/figure6"):
        lines += [f"- One run with seed 0 and step size {groups.LR:g}, fixed in advance."]
    else:
        lines += [
            f"- A seed deals rows and heads, splits each client's rows (70 % training, 15 % "
            f"validation, 15 % test) and starts training: {_seeds(context)}.",
            f"- Settings are chosen by validation rows of another dealing (seed {CHOOSING}), mean "
            "of the last five rounds ([settings.csv](settings.csv)); test rows are looked at once, "
            "at the end, and not at all in those runs.",
            "- Every round of every run: [rounds.csv](rounds.csv).",
        ]
    lines += ["- Nothing is private here: no noise, and the curator sees all models."]
    return "\n".join(lines)


def _train(context: FedMTLContext) -> list[str]:
    return [key for key in context.sets if any(cell.set == key for cell in context.used())]


def _plan(plan: FedMTLPlan) -> str:
    return (
        f"{plan.title}: {plan.clients} clients, {plan.model}, {plan.rounds} rounds with everyone, "
        f"{plan.local_steps} local steps of {plan.batch} rows."
    )


def _seeds(context: FedMTLContext) -> str:
    count = len(context.seeds)
    return "seeds " + ", ".join(map(str, context.seeds)) if count > 1 else "seed 0 alone"


def index(out: Path, context: FedMTLContext) -> None:
    """README.md of the folder: every page that is in it, which bars hold, what came out."""
    lines = [
        "# FedMTL: published and obtained here",
        "",
        "Pritam Sen, Cristian Borcea. *FedMTL: Privacy-Preserving Federated Multi-Task Learning.* "
        "European Conference on Artificial Intelligence, 2024.",
        "",
        "All data sets are stand-ins: LFW with predicted attributes for LFWA, the same with "
        "negatives as a second domain for FaceA, made-up scenes for NYUD2. CelebA was not run. "
        "Each page has a plot, a table (published, ours, why they differ) and the command that "
        "made it.",
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
    whole = FedMTLContext(context.grid, table3.SETS, context.seeds)
    held = table3.summary(whole)
    if held:
        lines += ["", "## Bars", "", table3.BARS, "", held]
    said = [*(f"- {each}" for each in remarks.FOUND), *(f"- {s}" for s in remarks.table3(whole))]
    if said:
        lines += ["", "## What came out", "", *said]
    ends = [
        f"[{name}]({name})" for name in (CELLS, ROUNDS, "settings.csv") if (out / name).is_file()
    ]
    if ends:
        lines += ["", f"All runs: {', '.join(ends)}."]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


__all__ = ["EXPERIMENTS", "FIGURES", "SEEDS", "index", "reproduce"]
