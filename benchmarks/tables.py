"""The first run on one's own table: the default at several ε, beside the best that tasks do alone.

*Alone* is the best of a constant, an exact linear model and randomised trees, as each task's own
cross-validation says. *Untold* is the lower of alone and our own last step by tasks that heard
nothing from others; which is lower, test rows say. Scores are the mean loss over tasks (squared
error in the target's variance, or log loss); `worse` is how far ours is above the other in per
cent, `errors` in standard errors of the paired difference over tasks. Nothing is set by hand.

    python benchmarks/tables.py [--seeds 3] [--tables psid,school] [--epsilons 1,8,none] [--jobs 2]
                                [--model mlp]

Names such as `made-classes-bent-12-alike` are made up (`made_up.py`). `brca`, `writers` and
`travel` are files in $TACIT_DATA (docs/data.md): whether a patient died within three years, without
those who were not seen so long; a tenth of each writer's images, seen through `strokes`, to learn
from; tags of posts, for which the model is `bag`.
"""

from __future__ import annotations

import argparse
import multiprocessing
from typing import Any

import numpy as np
import torch

import made_up
import mixed
import strange_tables as strange
import tacit
from tacit.data.folders import find
from tacit.data.reading import read_table
from tacit.engine.progress import silent

NAMED = ("exam", "star", "hsb82", "digits", "lsoa2")
FILES = ("school", "brca", "writers", "travel")
YEARS = 3 * 365.25


def federation(name: str, seed: int) -> Any:
    if name.startswith("made-"):
        return made_up.federation(name, seed)
    if name in NAMED:
        return tacit.data.load(name, split_seed=seed)
    if name == "brca":
        return within_three_years(seed)
    if name == "writers":  # as in past_the_paper.py
        shares = {"validation": 0.03, "test": 0.9, "min_rows": 10}
        return tacit.data.load(name, represent="strokes", split_seed=seed, **shares)
    if name == "travel":
        return tacit.data.load("stackexchange", split_seed=seed)
    if name.split("-")[0] in strange.TABLES:
        return strange.federation(name, seed)
    return mixed.federation(name, seed)


def within_three_years(seed: int) -> Any:
    """Patients of six regions, and who of them died within three years."""
    folder = find("tcga_brca", None, ("tcga_brca",))
    patients, centres = (read_table(folder / name) for name in ("brca.csv", "centers.csv"))
    region = dict(zip(centres["TSS Code"], centres["Region"], strict=True))
    days = np.array(patients["T"], dtype=float)
    died = (np.array(patients["E"], dtype=float) == 1) & (days <= YEARS)
    of = np.array([region.get(str(pid)[5:7], "Other") for pid in patients["pid"]], dtype=object)
    kept = np.flatnonzero((died | (days > YEARS)) & (of != "Other"))
    table = patients.only(kept)
    table["region"], table["died"] = of[kept], died[kept].astype(int)
    return tacit.data.from_table(
        table, task="region", target="died", drop=("pid", "E", "T"), test=0.4, split_seed=seed
    )


def measure(work: tuple[str, float | None, int, str]) -> tuple[str, float | None, list[float]]:
    name, epsilon, seed, model = work
    torch.set_num_threads(1)
    privacy = None if epsilon is None else tacit.Privacy(epsilon=epsilon)
    found = federation(name, 1000 + seed)
    model = "bag" if name == "travel" else model
    run = tacit.train(found, model=model, privacy=privacy, seed=seed, progress=silent)
    ours, untold, ended = run.measured, run.baselines["local"], run.personalised.ended
    tasks = run.simulation.tasks
    alone = untold if ended is None else tasks.measure(tasks.test_part, blend=ended.alone)
    used = 0.0 if run.blend is None else 1 - run.blend.shares["shared"]
    broken = float((~np.isfinite(ours.per_task["loss"])).sum() + len(run.diverged))
    apart = [far(ours.per_task["loss"], other.per_task["loss"]) for other in (alone, untold)]
    scores = [float(one.overall["loss_per_task"] or 0) for one in (ours, alone, untold)]
    return name, epsilon, [*scores, *apart, used, broken]


def far(ours: np.ndarray, other: np.ndarray) -> float:
    """In standard errors of the paired difference over tasks."""
    gap = (ours - other)[np.isfinite(ours) & np.isfinite(other)]
    error = gap.std(ddof=1) / np.sqrt(len(gap))
    return float(gap.mean() / error) if error > 0 else 0.0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--tables", default=",".join([*mixed.tables(), *NAMED, *FILES]))
    arguments.add_argument("--epsilons", default="1,2,8,none")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--model", default="linear")
    given = arguments.parse_args()
    groups = {"looked-at": strange.LOOKED_AT, "kept": strange.KEPT, "fresh": strange.FRESH}
    names = [one for name in given.tables.split(",") for one in groups.get(name, [name])]
    epsilons = [None if text == "none" else float(text) for text in given.epsilons.split(",")]
    seeds = range(given.seeds)
    work = [(name, e, seed, given.model) for name in names for e in epsilons for seed in seeds]
    pool = multiprocessing.get_context("spawn").Pool(given.jobs)
    found: dict[tuple[str, float | None], list[list[float]]] = {}
    print(
        "     table     ε      ours     alone  worse %  errors    untold  worse %  errors  not"
        " shared"
    )
    for name, epsilon, row in pool.imap_unordered(measure, work):
        rows = found.setdefault((name, epsilon), [])
        rows.append(row)
        if len(rows) < given.seeds:
            continue
        ours, *others, first, second, used, broken = np.mean(rows, axis=0)
        shown = "none" if epsilon is None else f"{epsilon:g}"
        note = f"  {broken:.1f} tasks diverged" if broken else ""
        line = f"{name:>10} {shown:>5} {ours:9.4f}"
        for other, errors in zip(others, (first, second), strict=True):
            worse = 100 * (ours / other - 1)
            bad = "!" if worse > 1 and errors > 1 else " "
            line += f" {other:9.4f} {worse:7.1f}{bad} {errors:7.1f}"
        print(f"{line} {100 * used:9.0f} %{note}", flush=True)


if __name__ == "__main__":
    main()
