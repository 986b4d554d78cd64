"""Figures 7 and 8: accuracy over rounds, of all methods and of FedMTL's own variants."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from papers.common.write import markdown_table, write_csv, write_figure
from papers.fedmtl import plots, remarks
from papers.fedmtl.contenders import ABLATIONS, AS_PUBLISHED, CONTENDERS, SHOWN
from papers.fedmtl.context import FedMTLContext, score_of, shown, title_of
from papers.fedmtl.grid import WantedRun
from papers.fedmtl.published import DRAWN, FIGURE_8
from papers.fedmtl.sets import WHY, Distribution
from tacit.methods import FedMTL

Curve = list[tuple[int, float, float]]
"""Round, mean and sd."""
COLUMNS = ("set", "distribution", "method", "round", "seeds", "validation", "sd")
WITHIN = 0.01
"""A curve has arrived once it is as near as this to the mean of its last five points."""


def figure7(context: FedMTLContext) -> str:
    """The same runs as table 3."""
    panels, rows, lines = [], [], []
    for key in context.sets:
        context.chooser.search(key)
        jobs = context.chooser.jobs(key, SHOWN[key], context.seeds, "D1")
        context.grid.run(jobs, "figure 7")
        curves = {}
        for name in SHOWN[key]:
            own = context.chooser.jobs(key, (name,), context.seeds, "D1")
            curve, seeds = curve_of(context, own)
            if curve:
                curves[name] = curve
                rows += [
                    (key, "D1", title_of(name), r, seeds, round(m, 5), round(s, 5))
                    for r, m, s in curve
                ]
                level = statistics.mean(m for _, m, _ in curve[1:][-5:])
                arrived = next(r for r, m, _ in curve if m >= level - WITHIN)
                lines.append((key, title_of(name), DRAWN, f"{100 * level:.1f}", f"{arrived}"))
        if curves:
            panels.append((context.plan(key).title, curves))
    context.chooser.write()
    if not panels:
        return _nothing()
    write_csv(context.out / "figure7.csv", COLUMNS, rows)
    title = "Figure 7: validation accuracy during training"
    write_figure(context.out, "figure7", plots.over_rounds(panels, title, plots.STYLES, TITLES))
    head = (
        "set (stand-in)",
        "",
        "published",
        "ours: mean of the last five rounds",
        "first round within one point of that",
    )
    why = (
        "The paper draws test accuracy by round; here it is that of validation rows, because test "
        "rows are looked at only at the end (table 3). Round 0 is before the first round. CelebA "
        "was not run."
    )
    return "\n\n".join(
        [
            markdown_table(head, lines),
            "## Why they differ",
            why,
            *(WHY[key] for key in context.sets),
        ]
    )


TITLES = {name: own.title for name, own in CONTENDERS.items()}


def curve_of(context: FedMTLContext, jobs: Sequence[WantedRun]) -> tuple[Curve, int]:
    """Mean validation score by round over the runs that are there, and how many they are."""
    done = [job for job in jobs if context.grid.get(job) is not None]
    curves = [curve for curve in map(context.grid.curve, done) if curve]
    found = []
    for each in zip(*curves):
        score = score_of(point.validation for point in each)
        if score is not None:
            found.append((each[0].round, score.mean, score.sd))
    return found, len(curves)


def ablation_jobs(context: FedMTLContext, distribution: Distribution, name: str) -> list[WantedRun]:
    """A variant as published, with the step size that was chosen for FedMTL as published."""
    plan = context.plan("facea")
    choice = context.chooser.choice("facea", "fedmtl")
    if choice is None:
        return []
    settings = {**AS_PUBLISHED, **choice.settings, **ABLATIONS[name]}
    method = FedMTL(local_steps=plan.local_steps, batch=plan.batch, **settings)
    return [WantedRun(plan, method, seed, distribution, title=name) for seed in context.seeds]


def figure8(context: FedMTLContext) -> str:
    """FedMTL and its ablations, two heads each (D1) and a random number (D2)."""
    context.chooser.search("facea")
    context.chooser.write()
    both: tuple[Distribution, ...] = ("D1", "D2")
    each = [ablation_jobs(context, d, name) for d in both for name in ABLATIONS]
    context.grid.run([job for jobs in zip(*each) for job in jobs], "figure 8")
    panels, rows, lines = [], [], []
    for distribution in both:
        curves = {}
        for name in ABLATIONS:
            jobs = ablation_jobs(context, distribution, name)
            curve, seeds = curve_of(context, jobs)
            if not curve:
                continue
            curves[name] = curve
            rows += [
                ("facea", distribution, name, r, seeds, round(m, 5), round(s, 5))
                for r, m, s in curve
            ]
            cells = context.done(jobs)
            peers = statistics.mean(cell.peers for cell in cells)
            known = f"{FIGURE_8[distribution]:.1f}" if name == "FedMTL" else DRAWN
            test, seen = (score_of(getattr(c, n) for c in cells) for n in ("score", "validation"))
            lines.append((distribution, name, known, shown(test), shown(seen), f"{peers:.1f}"))
        if curves:
            panels.append((f"{distribution}: {_heads(distribution)}", curves))
    if not panels:
        return _nothing()
    write_csv(context.out / "figure8.csv", COLUMNS, rows)
    title = "Figure 8: FedMTL and its variants on FaceA (stand-in)"
    styles = plots.ablation_styles(ABLATIONS)
    names = {name: name for name in ABLATIONS}
    write_figure(context.out, "figure8", plots.over_rounds(panels, title, styles, names))
    head = (
        "",
        "",
        "published",
        "ours (stand-in): test",
        "validation, last five rounds",
        "peers in the last round",
    )
    why = (
        "All as published (statistics stay with their client, anybody is mixed with), with the "
        "step size that validation rows chose for FedMTL. The paper draws test accuracy by round, "
        "the plot here has that of validation rows; the table has both."
    )
    runs = remarks.figure8(context, lambda d, n: ablation_jobs(context, d, n))  # type: ignore[arg-type]
    said = "\n".join(f"- {sentence}" for sentence in runs)
    return "\n\n".join([markdown_table(head, lines), "## Why they differ", why, WHY["facea"], said])


def _heads(distribution: Distribution) -> str:
    return {"D1": "two heads each", "D2": "a random number of heads"}[distribution]


def _nothing() -> str:
    return "Nothing was run yet: there is nothing to show."
