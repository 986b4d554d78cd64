"""From the name of a figure to its files, for FedMTL."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tacit.errors import TacitError
from tacit.reproduce.fedmtl import curves, groups, remarks, table3
from tacit.reproduce.fedmtl.context import Context
from tacit.reproduce.fedmtl.grid import CELLS, ROUNDS, Cell, Grid
from tacit.reproduce.fedmtl.sets import CHOOSING, Plan
from tacit.reproduce.grid import hardware, prepare_device

FACES = ("lfwa", "facea")
FIGURES: dict[str, tuple[str, tuple[str, ...], Callable[[Context], str]]] = {
    "fedmtl/table3": (table3.TITLE, table3.SETS, table3.table3),
    "fedmtl/figure2": (
        "Figure 2: layers of clients in groups", ("figure2",), groups.figure2,
    ),
    "fedmtl/figure5": ("Figure 5: rows and heads as dealt", ("lfwa",), groups.figure5),
    "fedmtl/figure6": (
        "Figure 6: similarity of clients in groups", ("figure6",), groups.figure6,
    ),
    "fedmtl/figure7": ("Figure 7: accuracy during training", FACES, curves.figure7),
    "fedmtl/figure8": ("Figure 8: FedMTL and its variants", ("facea",), curves.figure8),
}  # fmt: skip
EXPERIMENTS = {name: title for name, (title, _, _) in FIGURES.items()}
SEEDS = 3
NEED_NO_DATA = ("fedmtl/figure5",)


def reproduce(
    name: str,
    data: Path | None,
    out: Path,
    *,
    sets: Sequence[str] | None = None,
    seeds: int = SEEDS,
    reduced: bool = False,
    device: str = "cpu",
    pages: bool = False,
    limit: float = math.inf,
    say: Callable[[str], None] = print,
) -> Path:
    """Run what is not yet in `out`, write the files, and return the Markdown page.

    With `pages` nothing is run; after `limit` seconds no further run is begun.
    """
    if name not in FIGURES:
        raise TacitError(f"there is no {name!r} to reproduce: choose {', '.join(FIGURES)}")
    if seeds < 1 or seeds > CHOOSING:
        raise TacitError(f"seeds={seeds}: from 1 to {CHOOSING} are possible")
    title, known, figure = FIGURES[name]
    for key in sets or ():
        if key not in known:
            raise TacitError(f"{name} does not use {key!r}: choose of {', '.join(known)}")
    if pages and name not in NEED_NO_DATA and not (out / CELLS).is_file():
        raise TacitError(f"there is no {CELLS} in {out}: leave --pages out to make runs")
    grid = Grid(
        out, prepare_device(device), data, say, reduced=reduced, pages_only=pages, limit=limit
    )
    # Always in this order: sets that cost most come last.
    context = Context(grid, tuple(key for key in known if key in (sets or known)), range(seeds))
    text = figure(context)
    stem = name.split("/")[1]
    picture = f"![{stem}]({stem}.png)" if (out / f"{stem}.png").is_file() else ""
    parts = [f"# {title}", picture, text, _made(name, context)]
    out.mkdir(parents=True, exist_ok=True)
    page = out / f"{stem}.md"
    page.write_text("\n\n".join(p.strip() for p in parts if p.strip()) + "\n", encoding="utf-8")
    index(out, context)
    return page


def _made(name: str, context: Context) -> str:
    """Command, hardware, seeds, and how settings came about."""
    command = f"tacit reproduce {name}"
    command += "" if name in NEED_NO_DATA else " --data DIR"
    if set(context.sets) != set(FIGURES[name][1]):
        command += f" --sets {','.join(context.sets)}"
    command += f" --seeds {len(context.seeds)}" + (" --reduced" if context.grid.reduced else "")
    lines = ["## How it was made", "", f"- Command: `{command}`"]
    if name == "fedmtl/figure5":
        return "\n".join([*lines, "- No model is trained, and no rows are read."])
    cells = context.used()
    machines = sorted({cell.hardware for cell in cells}) or [hardware(context.grid.device)]
    if any("CPU" not in machine for machine in machines):
        lines[-1] = f"- Command: `{command} --device cuda`"
    minutes = sum(cell.seconds for cell in cells) / 60
    lines += [
        f"- Hardware: {', '.join(machines)}; runs of these sets in "
        f"[{CELLS}]({CELLS}): {len(cells)}, {minutes:.1f} minutes.",
        *(f"- {_plan(context.plan(key))}" for key in _trained(context)),
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


def _trained(context: Context) -> list[str]:
    return [key for key in context.sets if any(cell.set == key for cell in context.used())]


def _plan(plan: Plan) -> str:
    return (
        f"{plan.title}: {plan.clients} clients, {plan.model}, {plan.rounds} rounds with everyone, "
        f"{plan.local_steps} local steps of {plan.batch} rows."
    )


def _seeds(context: Context) -> str:
    count = len(context.seeds)
    return "seeds " + ", ".join(map(str, context.seeds)) if count > 1 else "seed 0 alone"


def index(out: Path, context: Context) -> None:
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
    whole = Context(context.grid, table3.SETS, context.seeds)
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


__all__ = ["EXPERIMENTS", "FIGURES", "SEEDS", "Cell", "index", "reproduce"]
