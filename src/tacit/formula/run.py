"""`tacit.mixed`: from a formula and a table to a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.data.assemble import assemble
from tacit.data.common import in_original_units
from tacit.data.schema import PUBLIC
from tacit.data.split import SplitRule
from tacit.data.targets import KIND, Target, encode
from tacit.errors import TacitError
from tacit.federation import Federation, Kind
from tacit.formula.design import Design, design
from tacit.formula.text import Formula, parse
from tacit.methods import Mixed
from tacit.privacy import Privacy
from tacit.runtime.train import train

if TYPE_CHECKING:
    from tacit.runtime.progress import Progress
    from tacit.runtime.run import Run


def mixed(
    formula: str,
    table: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    kind: Kind | None = None,
    privacy: Privacy | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    test: float = 0.0,
    progress: Progress | None = None,
) -> Run:
    """A mixed model y = x'β + z'b + e, with a promise for whole tasks where ε is given.

    Counts, yes or no, and classes have such scores instead: of the logarithm of the expected count,
    of the log odds, and one for every class.

    Parameters
    ----------
    formula : `"lwage ~ educ + exper + union + (1 + exper | person)"`. Before the bar stand the
        effects that each task has of its own (the intercept always), after it the task column.
        Functions must work row by row: `log(x)`, `I(x**2)`, `a:b`, `a * b`, `C(x)`; not `scale(x)`
    table : path of a .csv, .csv.gz or .parquet file; a DataFrame; a mapping of columns
    epsilon, delta : what to promise; without epsilon there is no noise, and the result is REML
    kind : "regression", "count", "binary" or "multiclass"; None for binary where the target has
        two values, multiclass where it is text, and numbers otherwise
    privacy : a `tacit.Privacy` instead of epsilon and delta
    rounds, seed, out, progress : those of `tacit.train`
    test : share of each task's rows to hold back and measure on

    `run.predict` takes rows of the design (`run.federation.features`), not of the table.
    """
    parsed = parse(formula)
    privacy = _promise(epsilon, delta, privacy)
    found = design(parsed, table)
    slopes = ",".join(str(column) for column in found.slopes)
    return train(
        _federation(parsed, found, kind, SplitRule(0.0, test)),
        Mixed(slopes=slopes),
        privacy=privacy,
        rounds=rounds,
        seed=seed,
        out=out,
        personalise="none",
        baselines=test > 0,  # on the rows that it learned from, each task is best alone
        progress=progress,
        config={"formula": formula},
    )


def coefficients(run: Run) -> dict[str, float]:
    """β of a mixed model in the units of the table, the intercept first; covered by ε."""
    federation, beta = run.federation, run.simulation.shown["beta"].double().cpu()
    classes = federation.labels if federation.kind == "multiclass" else ("",)
    found: dict[str, float] = {}
    for label, own in zip(classes, beta.reshape(len(classes), -1), strict=True):
        *slopes, intercept = in_original_units(federation, own.unsqueeze(0))[0].tolist()
        of = f"{label}: " if label else ""
        found[f"{of}Intercept"] = intercept
        found |= {f"{of}{name}": at for name, at in zip(federation.features, slopes, strict=True)}
    return found


def _promise(epsilon: float | None, delta: float | None, privacy: Privacy | None) -> Privacy | None:
    if privacy is not None and (epsilon is not None or delta is not None):
        raise TacitError("privacy= says what to promise: leave epsilon and delta out, or privacy")
    if epsilon is None and delta is not None:
        raise TacitError("delta without epsilon promises nothing: pass epsilon too")
    return privacy if epsilon is None else Privacy(epsilon=epsilon, delta=delta)


def _federation(formula: Formula, found: Design, kind: Kind | None, rule: SplitRule) -> Federation:
    target = encode(found.y, kind, formula.target)
    if kind is None and target.kind == "multiclass" and found.y.dtype.kind in "iuf":
        # Grades are numbers to a statistician, however few there are; so are counts, unless said.
        target = Target("regression", found.y.astype(float), 1, said=(KIND,))
    return assemble(
        found.x,
        target,
        found.tasks,
        rule=rule,
        scale="auto",
        target_scale="auto",
        features=found.names,
        assumptions=(PUBLIC,),
        source=found.source,
    )
