"""Open tables that the last step was not made on, in raw units, and ways to make them awkward.

Constants were chosen on `LOOKED_AT` and the made-up tables; `KEPT` and, later, `FRESH` say whether
they hold. A name such as `radon-outlier` is a table after one of `AWKWARD`.
`python benchmarks/tables.py --tables looked-at` measures them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tacit
from mixed import frame
from tacit.data.federation import Kind

Table = tuple[str, str, str, str, Kind, tuple[str, ...]]
"""Package, item, task, target, kind, and columns that are left out."""
LOOKED_AT: dict[str, Table] = {
    "radon": ("HLMdiag", "radon", "county", "log.radon", "regression", ("county.name",)),
    "dietox": ("geepack", "dietox", "Pig", "Weight", "regression", ("Litter",)),
    "empluk": ("plm", "EmplUK", "firm", "emp", "regression", ()),
    "produc": ("Ecdat", "Produc", "state", "gsp", "regression", ()),
    "houses": ("ggplot2", "txhousing", "city", "median", "regression", ("date",)),
    "breath": ("HSAUR", "respiratory", "subject", "status", "binary", ()),
    "births": ("mlmRev", "Contraception", "district", "use", "binary", ("woman",)),
    "fits": ("MASS", "epil", "subject", "y", "count", ("V4", "lbase", "lage")),
    "cracker": ("Ecdat", "Cracker", "id", "choice", "multiclass", ()),
}
KEPT: dict[str, Table] = {
    "oxboys": ("nlme", "Oxboys", "Subject", "height", "regression", ()),
    "spruce": ("nlme", "Spruce", "Tree", "logSize", "regression", ("plot",)),
    "munexp": ("Ecdat", "MunExp", "id", "expend", "regression", ()),
    "lives": ("gapminder", "gapminder", "country", "lifeExp", "regression", ("continent",)),
    "running": ("mosaicData", "TenMileRace", "state", "net", "regression", ("time",)),
    "wheeze": ("geepack", "ohio", "id", "resp", "binary", ()),
    "prenatal": ("mlmRev", "guPrenat", "cluster", "prenat", "binary", ("kid", "mom")),
    "churn": ("modeldata", "mlc_churn", "state", "churn", "binary", ()),
    "stays": ("COUNT", "azpro", "hospital", "los", "count", ()),
    "catsup": ("Ecdat", "Catsup", "id", "choice", "multiclass", ()),
}
FRESH: dict[str, Table] = {
    "pupils": ("MASS", "nlschools", "class", "lang", "regression", ()),
    "roads": ("AER", "Fatalities", "state", "fatal", "regression", ()),
    "sport": ("carData", "Blackmore", "subject", "exercise", "regression", ()),
    "ticks": ("lme4", "grouseticks", "BROOD", "TICKS", "count", ("INDEX",)),
    "weight": ("geepack", "muscatine", "id", "numobese", "binary", ("obese",)),
    "scots": ("mlmRev", "ScotsSec", "second", "attain", "regression", ()),
    "papers": ("mlmRev", "Gcsemv", "school", "course", "regression", ("student",)),
    "petrol": ("Ecdat", "Gasoline", "country", "lgaspcar", "regression", ()),
    "teeth": ("nlme", "Orthodont", "Subject", "distance", "regression", ()),
    "rats": ("nlme", "BodyWeight", "Rat", "weight", "regression", ()),
    "crime": ("Ecdat", "Crime", "county", "crmrte", "regression", ()),
    "pups": ("nlme", "RatPupWeight", "Litter", "weight", "regression", ()),
    "milk": ("nlme", "Milk", "Cow", "protein", "regression", ()),
}
TABLES = LOOKED_AT | KEPT | FRESH
NOT_NUMBERS = {"births": ("livch",)}


def federation(name: str, seed: int) -> Any:
    """40 % of each task's rows are held out; nothing else is said."""
    plain, _, how = name.partition("-")
    package, item, task, target, kind, without = TABLES[plain]
    table = frame(package, item).drop(columns=list(without))
    if how:
        table = AWKWARD[how](table, task, target, np.random.default_rng(seed))
    return tacit.data.from_table(
        table,
        task=task,
        target=target,
        kind=kind,
        test=0.4,
        split_seed=seed,
        min_rows=3,
        categorical=NOT_NUMBERS.get(plain, ()),
    )


def _times(factor: float) -> Callable[..., Any]:
    def change(table: Any, task: str, target: str, _: Any) -> Any:
        return table.assign(
            **{name: factor * table[name] for name in _numbers(table, task, target)}
        )

    return change


def _constant(table: Any, task: str, target: str, _: Any) -> Any:
    """A column that says nothing, one that is said twice, and a sum."""
    first, last = (table[_numbers(table, task, target)[k]] for k in (0, -1))
    return table.assign(same=3.0, twice=2 * first + 1, total=first + last)


def _outlier(table: Any, task: str, target: str, random: Any) -> Any:
    """A row where the first column has five more digits."""
    name = _numbers(table, task, target)[0]
    values = table[name].to_numpy(dtype=float, copy=True)
    values[random.integers(len(values))] *= 1e5
    return table.assign(**{name: values})


def _wild(table: Any, task: str, target: str, random: Any) -> Any:
    """A row whose target has three more digits."""
    values = table[target].to_numpy(dtype=float, copy=True)
    values[random.integers(len(values))] *= 1e3
    return table.assign(**{target: values})


def _few(table: Any, task: str, target: str, random: Any) -> Any:
    """One to five rows a task."""
    names, of = np.unique(table[task].astype(str), return_inverse=True)
    order = random.permutation(len(table))
    place = np.empty(len(table), dtype=int)
    for k in range(len(names)):
        mine = order[of[order] == k]
        place[mine] = np.arange(len(mine))
    return table[place < random.integers(1, 6, size=len(names))[of]]


AWKWARD: dict[str, Callable[..., Any]] = {
    "large": _times(1e4),
    "small": _times(1e-4),
    "constant": _constant,
    "outlier": _outlier,
    "wild": _wild,
    "few": _few,
}


def _numbers(table: Any, task: str, target: str) -> list[str]:
    found = table.select_dtypes("number").columns
    return [name for name in found if name not in (task, target)]
