"""`tacit.mixed`: from a formula and a table to a finished run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.data.assemble import About, assemble
from tacit.data.federation import Federation, Kind
from tacit.data.schema import PUBLIC
from tacit.data.split import SplitRule
from tacit.data.targets import KIND, Target, encode
from tacit.errors import TacitError
from tacit.experiment.train import SETTINGS, train
from tacit.formula import Design, design, parse
from tacit.methods import Mixed
from tacit.privacy import Privacy

if TYPE_CHECKING:
    from tacit.engine.progress import Progress
    from tacit.experiment.run import Run


def mixed(
    formula: str,
    table: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    kind: Kind | None = None,
    privacy: Privacy | None = None,
    test: float = 0.0,
    **settings: Any,
) -> Run:
    """A mixed model y = x'β + z'b + e, with a promise for whole tasks where ε is given.

    Counts, yes or no, and classes have such scores instead: of the logarithm of the expected count,
    of the log odds, and one for every class.

    Parameters
    ----------
    formula : `"lwage ~ educ + exper + union + (1 + exper | person)"`. Before the bar stand the
        effects that each task has of its own (the intercept always), after it the task column.
        Functions must work row by row: `log(x)`, `I(x**2)`, `a:b`, `a * b`, `C(x)`; not `scale(x)`
    table : path of a .csv, .tsv, .parquet or .xlsx file; a DataFrame; a mapping of columns
    epsilon, delta : what to promise; without epsilon there is no noise, and the result is REML
    kind : "regression", "count", "binary" or "multiclass"; None for binary where the target has
        two values, multiclass where it is text, and numbers otherwise
    privacy : a `tacit.Privacy` instead of epsilon and delta
    test : share of each task's rows to hold back and measure on
    rounds, seed, out, resume, progress, and all others : those of `tacit.train`

    `run.predict(table)` reads new tables by the same formula.
    """
    if kind == "survival":
        raise TacitError(
            "a formula has one outcome, and one over time is a time and an event: use tacit.train "
            "(tacit train) with target and event, which fits a mixed model too"
        )
    parsed = parse(formula)
    privacy = _promise(epsilon, delta, privacy)
    found = design(parsed, table)
    slopes = ",".join(str(column) for column in found.slopes)
    place = str(table) if isinstance(table, str | Path) else None
    return train(
        _federation(found, kind, SplitRule(0.0, test)),
        Mixed(slopes=slopes),
        privacy=privacy,
        config={"formula": formula, "table": place, "kind": kind, "test": test},
        # On the rows that it learned from, each task is best alone.
        **{"personalise": "none", "baselines": test > 0, **settings},
    )


def resume_mixed(folder: Path, progress: Progress | None = None) -> Run:
    """Go on with a run of `mixed` on a file, with the settings that its folder has."""
    path = folder / "checkpoint" / SETTINGS
    if not path.is_file():
        raise TacitError(f"{folder} holds no run to resume: give the folder that --out named")
    given = json.loads(path.read_text(encoding="utf-8"))["settings"]
    if given.get("table") is None:
        raise TacitError(
            f"the run in {folder} was not made by `tacit mixed`: use tacit train --resume {folder}"
        )
    return mixed(
        given["formula"],
        given["table"],
        kind=given["kind"],
        privacy=None if given["privacy"] is None else Privacy(**given["privacy"]),
        rounds=given["rounds"],
        seed=given["seed"],
        out=folder,
        resume=True,
        test=given["test"],
        progress=progress,
    )


def _promise(epsilon: float | None, delta: float | None, privacy: Privacy | None) -> Privacy | None:
    if privacy is not None and (epsilon is not None or delta is not None):
        raise TacitError("privacy= says what to promise: leave epsilon and delta out, or privacy")
    if epsilon is None and delta is not None:
        raise TacitError("delta without epsilon promises nothing: pass epsilon too")
    return privacy if epsilon is None else Privacy(epsilon=epsilon, delta=delta)


def _federation(found: Design, kind: Kind | None, rule: SplitRule) -> Federation:
    target = encode(found.y, kind, found.schema.target[0])
    if kind is None and target.kind == "multiclass" and found.y.dtype.kind in "iuf":
        # Grades are numbers to a statistician, however few there are; so are counts, unless said.
        target = Target("regression", found.y.astype(float), 1, said=(KIND,))
    about = About(source=found.source, features=found.names, assumptions=(PUBLIC,))
    made = assemble(
        found.x, target, found.tasks, about, rule=rule, scale="auto", target_scale="auto"
    )
    classes = (made.labels,) if made.labels else ()
    return replace(made, schema=replace(found.schema, kind=made.kind, classes=classes))
