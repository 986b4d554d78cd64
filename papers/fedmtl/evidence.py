"""What decides FedMTL's accuracy: how high the threshold is, and what the guard costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from papers.common.write import markdown_table, write_csv, write_figure
from papers.fedmtl import plots
from papers.fedmtl.contenders import SWEEP, swept
from papers.fedmtl.context import NOT_RUN, FedMTLContext, score_of, shown
from papers.fedmtl.grid import WantedRun
from tacit.methods import FedMTL

SETS = ("lfwa", "facea")
GUARDED = ("lfwa",)
"""Where `min_peers` 1 and 2 are compared."""
COLUMNS = (
    "set",
    "threshold",
    "seeds",
    "validation",
    "validation sd",
    "test",
    "test sd",
    "peers",
    "kept",
    "revealed",
)


def sweep_jobs(context: FedMTLContext, key: str, threshold: float) -> list[WantedRun]:
    plan = context.plan(key)
    title = f"FedMTL, Z = {threshold:g} throughout"
    return [WantedRun(plan, swept(plan, threshold), seed, title=title) for seed in context.seeds]


def guard_jobs(context: FedMTLContext, key: str, peers: int) -> list[WantedRun]:
    """FedMTL as published, but for the guard."""
    jobs = context.chooser.jobs(key, ("fedmtl",), context.seeds, "D1")
    title = f"FedMTL, as published but min_peers {peers}"
    found = []
    for job in jobs:
        assert isinstance(job.method, FedMTL)
        method = dataclasses.replace(job.method, min_peers=peers)
        found.append(dataclasses.replace(job, method=method, title=title))
    return found


def run(context: FedMTLContext, key: str) -> None:
    if key in GUARDED:
        context.grid.run(guard_jobs(context, key, 2), "guard")
    if key in SETS:
        each = [sweep_jobs(context, key, threshold) for threshold in _levels(context)]
        by_seed = [job for jobs in zip(*each) for job in jobs]
        context.grid.run(by_seed, "thresholds")


def page(context: FedMTLContext) -> list[str]:
    """Two sections, from what is there."""
    return [*_thresholds(context), *_guard(context)]


def _levels(context: FedMTLContext) -> Sequence[float]:
    return SWEEP[:: len(SWEEP) - 1] if context.grid.reduced else SWEEP


def _thresholds(context: FedMTLContext) -> list[str]:
    rows, lines, curves = [], [], {}
    for key in [key for key in SETS if key in context.sets]:
        for threshold in _levels(context):
            cells = context.done(sweep_jobs(context, key, threshold))
            test, seen = (score_of(getattr(c, n) for c in cells) for n in ("score", "validation"))
            if test is None or seen is None:
                continue
            peers, kept, revealed = (
                sum(getattr(cell, name) for cell in cells) / len(cells)
                for name in ("peers", "kept", "revealed")
            )
            rows.append(
                (
                    key,
                    threshold,
                    test.seeds,
                    round(seen.mean, 5),
                    round(seen.sd, 5),
                    round(test.mean, 5),
                    round(test.sd, 5),
                    round(peers, 3),
                    round(kept, 4),
                    round(revealed, 4),
                )
            )
            lines.append(
                (
                    key,
                    f"{threshold:g}",
                    str(seen),
                    str(test),
                    f"{peers:.1f}",
                    f"{100 * kept:.0f} %",
                    f"{100 * revealed:.0f} %",
                )
            )
            curves.setdefault(key, []).append((threshold, test.mean, test.sd, peers))
    if not rows:
        return []
    write_csv(context.out / "evidence.csv", COLUMNS, rows)
    write_figure(context.out, "evidence", plots.thresholds(curves))
    head = (
        "set (stand-in)",
        "Z",
        "validation",
        "test",
        "peers in the last round",
        "answers without others",
        "answers that give a model away",
    )
    about = (
        "FedMTL with mixed statistics, step size 0.3 and a threshold that stays where it is; peers "
        "are other clients with a say in a client's shared layers. An answer gives a model away "
        "where a part of it depends on one other client alone."
    )
    return ["## Thresholds", "![evidence](evidence.png)", about, markdown_table(head, lines)]


def _guard(context: FedMTLContext) -> list[str]:
    lines = []
    for key in [key for key in GUARDED if key in context.sets]:
        for peers in (1, 2):
            cells = context.done(guard_jobs(context, key, peers))
            if cells:
                given = 100 * sum(cell.revealed for cell in cells) / len(cells)
                score = shown(score_of(cell.score for cell in cells))
                lines.append((key, f"{peers}", score, f"{given:.1f} %"))
    if not lines:
        return []
    head = ("set (stand-in)", "min_peers", "test", "answers that give a model away")
    about = (
        "FedMTL as published mixes with any one other client. With `min_peers = 2`, the library's "
        "default, a client with fewer than two others keeps its own layers, because a mixture with "
        "one other is that other's model up to one number."
    )
    return ["## What the guard costs", about, markdown_table(head, lines)]


__all__ = ["NOT_RUN", "guard_jobs", "page", "run", "sweep_jobs"]
