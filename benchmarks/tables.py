"""The first run on one's own table: the default at several ε, beside the best that tasks do alone.

*Alone* is the best of a constant, an exact linear model and randomised trees, as each task's own
cross-validation says. Scores are the mean loss over tasks (squared error in the target's variance,
or log loss); `worse` is how far ours is above alone in per cent, `errors` in standard errors of the
paired difference over tasks. Nothing is set by hand.

    python benchmarks/tables.py [--seeds 3] [--tables psid,school] [--epsilons 1,8,none] [--jobs 2]
                                [--model mlp]

Names such as `made-classes-bent-12-alike` are made up (`made_up.py`).
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
from tacit.engine.progress import silent

NAMED = ("exam", "star", "hsb82", "verbagg", "digits", "lsoa2")


def federation(name: str, seed: int) -> Any:
    if name.startswith("made-"):
        return made_up.federation(name, seed)
    if name in NAMED:
        return tacit.data.load(name, split_seed=seed)
    if name.split("-")[0] in strange.TABLES:
        return strange.federation(name, seed)
    return mixed.federation(name, seed)


def measure(work: tuple[str, float | None, int, str]) -> tuple[str, float | None, list[float]]:
    name, epsilon, seed, model = work
    torch.set_num_threads(1)
    privacy = None if epsilon is None else tacit.Privacy(epsilon=epsilon)
    found = federation(name, 1000 + seed)
    run = tacit.train(found, model=model, privacy=privacy, seed=seed, progress=silent)
    ours, alone = (one.per_task["loss"] for one in (run.measured, run.baselines["local"]))
    there = np.isfinite(ours) & np.isfinite(alone)
    gap = (ours - alone)[there]
    error = gap.std(ddof=1) / np.sqrt(len(gap))
    used = 0.0 if run.blend is None else 1 - run.blend.shares["shared"]
    scores = [float(one.overall["loss"] or 0) for one in (run.measured, run.baselines["local"])]
    broken = float((~np.isfinite(ours)).sum() + len(run.diverged))
    return name, epsilon, [*scores, float(gap.mean() / error) if error > 0 else 0.0, used, broken]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--tables", default=",".join([*mixed.tables(), "school", *NAMED]))
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
    print("     table     ε      ours     alone  worse %  errors  not shared")
    for name, epsilon, row in pool.imap_unordered(measure, work):
        rows = found.setdefault((name, epsilon), [])
        rows.append(row)
        if len(rows) < given.seeds:
            continue
        ours, alone, errors, used, broken = np.mean(rows, axis=0)
        worse = 100 * (ours / alone - 1)
        shown = "none" if epsilon is None else f"{epsilon:g}"
        note = f"  {broken:.1f} tasks diverged" if broken else ""
        bad = "  !" if worse > 1 and errors > 1 else ""
        print(
            f"{name:>10} {shown:>5} {ours:9.4f} {alone:9.4f} {worse:8.1f} {errors:7.1f} "
            f"{100 * used:9.0f} %{note}{bad}",
            flush=True,
        )


if __name__ == "__main__":
    main()
