"""`pmtl/settings`: every method's own settings for every ε, chosen on validation rows.

All methods are given the same grid of clip, pull and step size, and noises. A run with noise z is
looked at in each round in which it has just not spent more than one of the ε: to stop there is the
run for that ε. So one run serves several ε, and its rounds follow from z. The grid is searched in
two stages, because its product would take a day:

1. clip × pull × noise at the paper's step size;
2. the best of these with the other step sizes, and with pulls a third and three times as strong,
   for the ε of the paper's tables.

What costs less than an ε may be chosen for it as well. The second stage leaves out ε = ∞.

One run each, with a seed that no result is reported for; test rows are not looked at.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.common.cells import CellFile
from papers.common.devices import hardware
from papers.common.write import markdown_table, write_csv
from papers.pmtl.grid import PMTLBench, digest
from papers.pmtl.means import show_epsilon
from papers.pmtl.plots import NAMES
from papers.pmtl.sets import DataSet
from papers.pmtl.settings import EPSILONS, FEW, ChosenSetting, Setting, plan_of
from tacit.data.federation import Federation
from tacit.privacy import sampler_for

METHODS = ("pmtl", "fedavg", "fedprox")
RATES = (0.1, 0.03, 0.3)
"""The paper's step size, and others."""
CLIPS = (0.03, 0.2)
PULLS = (0.05, 0.5, 5.0)
NOISES = {"femnist": (4.0, 8.0, 16.0, 64.0), "writers": (4.0, 16.0, 64.0)}
"""With these, 10 to 1000 rounds spend each ε."""
LONGEST = 1000
"""Rounds, as in the paper."""
FREE = (50, 100, 200, 400, 700, 1000)
"""Rounds in which a run without privacy is looked at."""
SEED = 100
NOTE = (
    "All methods have the same grid: clips {clips}, pulls {pulls} where they have one, step size "
    "{lr:g}, and noises with which 10 to {longest} rounds spend each ε; then, for the ε of the "
    "tables, the best of these with step sizes {other} and with pulls a third and three times as "
    "strong. A run is looked at in the round where it has spent each ε. What costs less than an "
    "ε may be chosen for it as well (“tried” counts all that may). Lines of a second stage that "
    "was broken off are in the file, too."
).format(
    clips=" and ".join(map(str, CLIPS)),
    pulls=", ".join(map(str, PULLS)),
    lr=RATES[0],
    other=" and ".join(map(str, RATES[1:])),
    longest=LONGEST,
)
FILE = "settings.csv"
CHOSEN_FILE = "chosen.csv"


@dataclass(frozen=True)
class TriedSetting(Setting):
    """One line of settings.csv: accuracy on validation rows."""

    set: str
    version: str
    method: str
    epsilon: float
    accuracy: float
    hardware: str
    settings: str
    """A digest of all that decides the line."""

    @property
    def key(self) -> tuple[str, str, float, str]:
        return self.set, self.method, self.epsilon, self.settings


@dataclass(frozen=True)
class SearchRun:
    """One method on one data set, looked at for several ε."""

    data: DataSet
    method: str
    looks: tuple[tuple[float, Setting], ...]
    """For each ε the setting that it is then a run of, shortest first."""

    @property
    def longest(self) -> Setting:
        return self.looks[-1][1]

    def key(self, epsilon: float, setting: Setting) -> tuple[str, str, float, str]:
        """What its line in the file is called."""
        data = self.data
        plan = plan_of(data.key, data.version).with_setting(self.method, setting)
        return data.key, self.method, epsilon, digest(data, plan, self.method)


def settings(
    bench: PMTLBench, sets: Sequence[DataSet], out: Path, *, together: bool = False
) -> str:
    """Try and choose; returns Markdown. `together` with other processes, only one stage."""
    tried = CellFile(out / FILE, TriedSetting)
    for stage in (_first, _second):
        runs = [run for data in sets for run in stage(bench, tried, data)]
        runs.sort(key=lambda run: -run.longest.rounds)
        wanted = [run for run in runs if not _done(tried, run)]
        _try(bench, tried, wanted, together=together)
        if together and wanted:
            return ""
    return _write(tried, sets, out)


def calibrate(bench: PMTLBench, sets: Sequence[DataSet]) -> None:
    for data in sets:
        for noise in NOISES[data.key]:
            rounds = dict(_rounds(bench, data, noise))
            shown = ", ".join(f"ε={epsilon:g} {many}" for epsilon, many in rounds.items())
            bench.say(f"{data.key} noise {noise:g} × clip, rounds for {shown}")


def _rounds(bench: PMTLBench, data: DataSet, noise: float) -> list[tuple[float, int]]:
    """For each ε that it reaches, how many rounds this noise allows; without noise, all looks."""
    if not noise:
        return [(math.inf, rounds) for rounds in FREE]
    tasks = len(data.federation)
    sampler = sampler_for("poisson", plan_of(data.key, data.version).expected(tasks), tasks)
    spent = bench.noise.growth(noise, 1 / tasks, sampler, LONGEST)
    within = [(e, max(t for t, cost in enumerate(spent) if cost <= e)) for e in EPSILONS]
    return [(epsilon, rounds) for epsilon, rounds in within if 0 < rounds < LONGEST]


def _search(
    bench: PMTLBench, data: DataSet, method: str, lr: float, clip: float, pull: float, noise: float
) -> SearchRun:
    looks = [
        (epsilon, Setting(lr, clip, pull, noise, rounds))
        for epsilon, rounds in _rounds(bench, data, noise)
    ]
    return SearchRun(data, method, tuple(looks))


def _first(bench: PMTLBench, tried: CellFile[TriedSetting], data: DataSet) -> list[SearchRun]:
    found = []
    noisy = list(itertools.product(CLIPS, NOISES[data.key]))
    for method in METHODS:
        pulls = PULLS if method != "fedavg" else (0.0,)
        for pull, (clip, noise) in itertools.product(pulls, [*noisy, (0.0, 0.0)]):
            found.append(_search(bench, data, method, RATES[0], clip, pull, noise))
    return found


def _second(bench: PMTLBench, tried: CellFile[TriedSetting], data: DataSet) -> list[SearchRun]:
    """The best so far with one thing changed, only as long as it was best."""
    found: dict[tuple[str, Setting], SearchRun] = {}
    for best in _best(tried, data, first=True):
        if best.epsilon not in FEW:
            continue
        changed = [(lr, best.pull) for lr in RATES[1:]]
        changed += [(RATES[0], round(best.pull * k, 3)) for k in (1 / 3, 3)] if best.pull else []
        for lr, pull in changed:
            new = _search(bench, data, best.method, lr, best.clip, pull, best.noise)
            looks = tuple(look for look in new.looks if look[1].rounds <= best.rounds)
            key = best.method, dataclasses.replace(looks[0][1], rounds=0)
            if key not in found or len(looks) > len(found[key].looks):
                found[key] = SearchRun(data, best.method, looks)
    return list(found.values())


def _done(tried: CellFile[TriedSetting], run: SearchRun) -> bool:
    return all(run.key(*look) in tried.rows for look in run.looks)


def _try(
    bench: PMTLBench, tried: CellFile[TriedSetting], runs: Sequence[SearchRun], *, together: bool
) -> None:
    there: dict[str, Federation] = {}
    # Set after set: what was traced of a model serves all runs on it.
    for number, run in enumerate(sorted(runs, key=lambda run: run.data.key)):
        data = run.data
        if together and not tried.begin("-".join(map(str, run.key(*run.looks[-1])))):
            continue
        if data.key not in there:
            there = {data.key: data.federation.to(bench.device)}
        scores = _run(bench, there[data.key], run)
        for look, accuracy in zip(run.looks, scores, strict=True):
            (epsilon, setting), digested = look, run.key(*look)[-1]
            tried.add(
                TriedSetting(
                    **dataclasses.asdict(setting),
                    set=data.key,
                    version=data.version,
                    method=run.method,
                    epsilon=epsilon,
                    accuracy=accuracy,
                    hardware=hardware(bench.device),
                    settings=digested,
                )
            )
        s = run.longest
        bench.say(
            f"[{number + 1}/{len(runs)}] {data.key} {run.method} lr {s.lr:g} clip {s.clip:g} "
            f"pull {s.pull:g} noise {s.noise:g}: "
            + " ".join(
                f"ε={epsilon:g} {setting.rounds}: {score:.3f}"
                for (epsilon, setting), score in zip(run.looks, scores, strict=True)
            )
        )


def _run(bench: PMTLBench, federation: Federation, run: SearchRun) -> list[float]:
    """Accuracy on validation rows at each look."""
    plan = plan_of(run.data.key, run.data.version).with_setting(run.method, run.longest)
    simulation = bench.simulation(
        federation, plan, plan.method(run.method), run.longest.noise or None, SEED
    )
    seen: dict[int, float] = {}

    def look(round_: int) -> None:
        overall = simulation.measure("validation").overall
        seen[round_] = round(overall["accuracy_per_task"] or 0.0, 5)

    rounds = {setting.rounds for _, setting in run.looks}
    simulation.run(on_round=lambda at, _: look(at) if at in rounds else None)
    look(-1)  # where a run went astray, tasks keep what was before
    return [seen.get(setting.rounds, seen[-1]) for _, setting in run.looks]


def _best(
    tried: CellFile[TriedSetting], data: DataSet, *, first: bool = False
) -> list[ChosenSetting]:
    """For each method and ε, of the first stage or of both."""
    lines = [
        line
        for line in tried.rows.values()
        if (line.set, line.version) == (data.key, data.version)
        and not (first and (line.lr != RATES[0] or line.pull not in (0.0, *PULLS)))
    ]
    found = []
    for method, epsilon in itertools.product(METHODS, (*EPSILONS, math.inf)):
        free = math.isinf(epsilon)
        mine = [
            line
            for line in lines
            if line.method == method and line.epsilon <= epsilon and free == (not line.noise)
        ]
        if mine:
            best = max(mine, key=lambda line: line.accuracy)
            values: dict[str, Any] = dataclasses.asdict(best) | {"epsilon": epsilon}
            del values["settings"], values["hardware"]
            found.append(ChosenSetting(**values, tried=len(mine)))
    return found


def _write(tried: CellFile[TriedSetting], sets: Sequence[DataSet], out: Path) -> str:
    chosen = [line for data in sets for line in _best(tried, data)]
    columns = [field.name for field in dataclasses.fields(ChosenSetting)]
    write_csv(out / CHOSEN_FILE, columns, [dataclasses.astuple(line) for line in chosen])
    parts = []
    for data in sets:
        rows = [
            (
                NAMES[line.method],
                show_epsilon(line.epsilon),
                f"{line.tried}",
                f"{line.lr:g}",
                f"{line.clip:g}" if line.noise else "–",
                f"{line.pull:g}" if line.pull else "–",
                f"{line.noise:g}",
                f"{line.rounds}",
                f"{line.accuracy:.3f}",
            )
            for line in chosen
            if line.set == data.key
        ]
        head = ("", "ε", "tried", "lr", "clip", "pull", "noise × clip", "rounds", "accuracy")
        parts += [f"## {data.title}", markdown_table(head, rows)]
    parts += [
        f"All that was tried: [{FILE}]({FILE}), on {', '.join(machines(out))}. Chosen: "
        f"[{CHOSEN_FILE}]({CHOSEN_FILE})."
    ]
    return "\n\n".join(parts)


def machines(out: Path) -> list[str]:
    """Where settings were tried."""
    return sorted({line.hardware for line in CellFile(out / FILE, TriedSetting).rows.values()})
