"""What the runs say, in sentences that are computed from the files: none where runs are missing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from papers.fedmtl.contenders import ABLATIONS, SWEEP
from papers.fedmtl.context import FedMTLContext, SeedScore, score_of
from papers.fedmtl.evidence import guard_jobs, sweep_jobs
from papers.fedmtl.grid import FedMTLCell, Point, WantedRun

FOUND: tuple[str, ...] = (
    "The paper's order is reproduced where its baselines are run as in the paper. FedAvg that "
    "averages the first and the second task layers of all clients, whatever they predict, is worse "
    "than training alone; FedMTL as published is above all six baselines.",
    "Most of that gap is not about similarity. Once a head is averaged among those who hold it, "
    "FedAvg is above FedMTL as published on LFWA's stand-in and level with it on FaceA's. There, "
    "only heads differ, not what is to be learned: whoever is left out by the threshold takes rows "
    "away. At the last threshold two others are left of 59, and in the sweep of thresholds "
    "accuracy falls with the clients that are left out.",
    "What FedMTL gains over FedAvg by task (*ours*: threshold 0, chosen on validation rows) it "
    "gains by mixing the statistics of BatchNorm with the layers they belong to: FedMTL-G with "
    "mixed statistics is level with it. FedAvg on the billboard cannot do that, because statistics "
    "would be a further release.",
    "With two domains (FaceA) and two heads each, thresholds do help a little as long as "
    "statistics stay with their clients: FedMTL is the best of its variants, as in the paper, by "
    "less than a standard deviation. With a random number of heads (D2) mixing everybody "
    "(FedMTL-G) is better by 2.6 points.",
    "Two domains do not show in the task layers here: photographs and negatives with the same "
    "heads are as similar (0.99) as clients of one domain. The paper's figure 6 tells CelebA and "
    "LFWA apart.",
    "FedFomo looks better on validation rows than on test rows by 4 to 7 points: it chooses "
    "models by some fifteen validation rows of a client. MOCHA is level with training alone.",
    "Step sizes 0.1, 0.3 and 1 were tried; FedAvg, FedProx, FedMTL with threshold 0 and training "
    "alone chose the largest. A larger one might be better for all of them.",
    "Tables are of three seeds; curves of figures 7 and 8 are of one to three (their CSV files say "
    "of how many).",
)
"""What there is to say about the runs in `papers/fedmtl` beyond that; shown in the index."""


def table3(context: FedMTLContext) -> list[str]:
    """About each set in turn."""
    about: tuple[Callable[[FedMTLContext, str], str | None], ...] = (
        position,
        alone,
        best,
        everyone,
        mixing,
        alike,
        thresholds,
        guard,
    )
    found = (say(context, key) for key in context.sets for say in about)
    return [sentence for sentence in found if sentence]


def position(context: FedMTLContext, key: str) -> str | None:
    """How much of FedAvg's low score is that heads were averaged by position."""
    gap = paired(context, key, "fedavg", "fedavg-position")
    if gap is None:
        return None
    return f"{key}: FedAvg with heads by task against heads by position: {points(gap)}."


def alone(context: FedMTLContext, key: str) -> str | None:
    gaps = {
        words: paired(context, key, name, "local")
        for words, name in (("as published", "fedmtl"), ("ours", "fedmtl-ours"))
    }
    said = [f"{words} {points(gap)}" for words, gap in gaps.items() if gap is not None]
    return f"{key}: FedMTL against training alone: {', '.join(said)}." if said else None


def best(context: FedMTLContext, key: str) -> str | None:
    """Ours against FedAvg by task, on the same dealings."""
    gap = paired(context, key, "fedmtl-ours", "fedavg")
    if gap is None:
        return None
    return f"{key}: FedMTL, ours, against FedAvg by task: {points(gap)} (paired by dealing)."


def everyone(context: FedMTLContext, key: str) -> str | None:
    """Whether telling clients apart helps at all: everybody weighs the same in FedMTL-G."""
    gap = paired(context, key, "fedmtl-ours", "fedmtl-g")
    if gap is None:
        return None
    return (
        f"{key}: FedMTL, ours, against mixing everybody (FedMTL-G, statistics mixed): "
        f"{points(gap)}."
    )


def mixing(context: FedMTLContext, key: str) -> str | None:
    """With how many others FedMTL as published mixes as the threshold rises."""
    curves = _curves(context, context.chooser.jobs(key, ("fedmtl",), context.seeds, "D1"))
    if not curves:
        return None
    last = len(curves[0]) - 1
    said = []
    for at in dict.fromkeys((1, (last + 1) // 2, last)):
        peers, kept = (
            statistics.mean(getattr(curve[at], name) for curve in curves)
            for name in ("peers", "kept")
        )
        said.append(f"round {at} with {peers:.1f} others ({100 * kept:.0f} % with nobody)")
    return f"{key}: FedMTL as published mixes a client's shared layers in {', '.join(said)}."


def alike(context: FedMTLContext, key: str) -> str | None:
    """How similar clients are on average, beside the threshold they would have to reach."""
    curves = _curves(context, context.chooser.jobs(key, ("fedmtl",), context.seeds, "D1"))
    if not curves:
        return None
    first, last = (statistics.mean(c[k].similarity for c in curves) for k in (1, -1))
    return (
        f"{key}: the mean similarity of two clients is {first:.2f} after the first round and "
        f"{last:.2f} after the last, where the threshold is 0.75 and 0.95."
    )


def thresholds(context: FedMTLContext, key: str) -> str | None:
    """The best fixed threshold by validation rows, and the highest one."""
    found = {}
    for z in SWEEP:
        cells = context.done(sweep_jobs(context, key, z)) if key != "nyud2" else []
        if cells:
            found[z] = cells
    if len(found) < 2:
        return None
    good = max(found, key=lambda z: statistics.mean(cell.validation for cell in found[z]))
    high = max(found)
    words = f"{key}: of fixed thresholds, validation rows prefer Z = {good:g}"
    gap = _paired(found[good], found[high])
    if good == high or gap is None:
        return f"{words}, the highest."
    return f"{words}: {points(gap)} on test rows against Z = {high:g}."


def guard(context: FedMTLContext, key: str) -> str | None:
    if key != "lfwa":
        return None
    one, two = (context.done(guard_jobs(context, key, peers)) for peers in (1, 2))
    gap = _paired(two, one)
    if gap is None:
        return None
    given = 100 * statistics.mean(cell.revealed for cell in one)
    return (
        f"{key}: as published, {given:.0f} % of the answers give another client's model away up "
        f"to one number; the guard against that changes accuracy by {points(gap)}."
    )


def figure8(context: FedMTLContext, jobs: Callable[[str, str], Sequence[WantedRun]]) -> list[str]:
    """FedMTL against its ablations; `jobs(distribution, name)` are their runs."""
    said = []
    for distribution in ("D1", "D2"):
        full = context.done(jobs(distribution, "FedMTL"))
        gaps = {
            name: gap
            for name in ABLATIONS
            if name != "FedMTL"
            and (gap := _paired(full, context.done(jobs(distribution, name)))) is not None
        }
        if gaps:
            low = min(gaps, key=lambda name: gaps[name].mean)
            verdict = "FedMTL is the best, then" if gaps[low].mean >= 0 else "the best is"
            said.append(
                f"{distribution}: {verdict} {low}; FedMTL against it: {points(gaps[low])} (paired "
                "by dealing)."
            )
    return said


def paired(context: FedMTLContext, key: str, first: str, second: str) -> SeedScore | None:
    """The first contender's test score minus the second's, on the same dealings."""
    return _paired(context.cells(key, first), context.cells(key, second))


def _paired(first: Sequence[FedMTLCell], second: Sequence[FedMTLCell]) -> SeedScore | None:
    other = {cell.seed: cell.score for cell in second}
    return score_of(cell.score - other[cell.seed] for cell in first if cell.seed in other)


def points(gap: SeedScore) -> str:
    spread = f" ± {100 * gap.sd:.1f}" if gap.seeds > 1 else ""
    return f"{100 * gap.mean:+.1f}{spread} points"


def _curves(context: FedMTLContext, jobs: Sequence[WantedRun]) -> list[list[Point]]:
    found = [context.grid.curve(job) for job in jobs if context.grid.get(job) is not None]
    return [curve for curve in found if len(curve) > 1]
