"""Where federations come from: files, arrays, public data sets, made-up tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.data import synthetic
from tacit.data.arrays import from_arrays
from tacit.data.cells import hint
from tacit.data.digits import digits
from tacit.data.multilevel import RECIPES, multilevel
from tacit.data.npz import from_npz
from tacit.data.preprocess import Preprocessing
from tacit.data.schema import Schema
from tacit.data.tabular import SUFFIXES, from_table, read_table
from tacit.errors import TacitError
from tacit.federation import Federation

__all__ = [
    "Preprocessing",
    "Schema",
    "Source",
    "from_arrays",
    "from_npz",
    "from_table",
    "load",
    "read_table",
    "sources",
]


@dataclass(frozen=True)
class Source:
    """A data set that `load` knows by name; `needs` is what must be installed, or empty."""

    name: str
    title: str
    kind: str
    needs: str = ""


_MADE_UP: dict[str, tuple[Source, Callable[..., synthetic.Synthetic]]] = {
    "low-rank": (
        Source("low-rank", "made-up tasks with low-rank weights (MP-MTL 4.4)", "regression"),
        synthetic.low_rank,
    ),
    "group-sparse": (
        Source(
            "group-sparse", "made-up tasks with few relevant features (MP-MTL 4.4)", "regression"
        ),
        synthetic.group_sparse,
    ),
    "personal-shift": (
        Source("personal-shift", "made-up tasks around common weights", "regression or binary"),
        synthetic.personal_shift,
    ),
}
_DIGITS = Source("digits", "handwritten digits dealt to simulated writers", "multiclass")


def sources() -> list[Source]:
    """Every data set that `load` knows by name."""
    real = [Source(n, r.title, r.kind, "tacit[data]") for n, r in RECIPES.items()]
    return [*real, _DIGITS, *(source for source, _ in _MADE_UP.values())]


def load(name_or_path: str | Path, **options: Any) -> Federation:
    """A federation by name (see `sources`) or from a .csv, .csv.gz, .parquet or .npz file.

    Options are those of the function that reads it: `from_table` for tables (which need `task` and
    `target`), `from_arrays` for .npz, or the generator's sizes and seed.
    """
    name = str(name_or_path)
    if name in RECIPES:
        _check_options(options, _keywords(from_table) - {"task", "target"}, name)
        return multilevel(name, **options)
    if name == "digits":
        _check_options(options, _keywords(digits), name)
        return digits(**options)
    if name in _MADE_UP:
        make = _MADE_UP[name][1]
        _check_options(options, _keywords(make), name)
        return make(**options).federation
    if name.lower().endswith(".npz"):
        _check_options(options, _keywords(from_arrays) - {"x", "y", "tasks"}, name)
        return from_npz(name, **options)
    if name.lower().endswith(SUFFIXES):
        _check_options(options, _keywords(from_table) - {"table"}, name)
        absent = [f"{key}=" for key in ("task", "target") if key not in options]
        if absent:
            raise TacitError(
                f"{name} is a table, so say which columns hold the task and the target: pass "
                f"{' and '.join(absent)} (--task, --target)"
            )
        return from_table(name, **options)
    if Path(name).exists() or Path(name).suffix or len(Path(name).parts) > 1:
        raise TacitError(
            f"{name} is not a file that can be read; expected {', '.join(SUFFIXES)} or .npz"
        )
    raise TacitError(
        f"there is no data set {name!r}{hint(name, [s.name for s in sources()])} (or pass a file)"
    )


def _keywords(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}


def _check_options(options: Iterable[str], known: set[str], name: str) -> None:
    for option in options:
        if option not in known:
            raise TacitError(f"{name} takes no option {option!r}{hint(option, sorted(known), 20)}")
