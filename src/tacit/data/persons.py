"""Whose rows they are, where persons (or single rows) are protected inside their tasks.

Then nothing that is shared may depend on two persons but the sum that is released with noise. Tasks
prepare rows before that, and what they do is checked here, too:

| what tasks did for themselves          | what is done instead                                  |
|----------------------------------------|-------------------------------------------------------|
| deal rows to parts by their number     | every person by who it is (`split.apart`)             |
| stand in the order of their first rows | in that of their names                                |
| scale columns by their own rows        | public constants; without any, units that a run finds |
|                                        | privately (`local.ranges`)                            |
| fill gaps with their own mean          | the centre of the column that everybody knows         |

A task's own last step may look at all of its rows: what it finds stays there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tacit.data.cells import text_of
from tacit.data.federation import PARTS, Federation, Rows, TargetScale
from tacit.data.preprocess import CONSTANTS, Fitted, Preprocessing, Scale, fit
from tacit.errors import TacitError
from tacit.randomness import digests, scramble

DEALT = (
    "a person's rows were dealt to training or testing by who the person is, and nobody else; that "
    "every task has somebody in each part is taken to be public"
)
LARGEST_NUMBER = 2.0**53
"""Beyond that two whole numbers may be the same in floating point."""
FOUND = "columns (and a numeric target) are in common units that releases of this run found"


class Owners(NamedTuple):
    """Whose each row is."""

    keys: np.ndarray
    """int64 [N]: hashed from who the person is alone, so the same for all of its rows."""
    single: bool
    """Whether every row is a person, who is known by what the row holds."""

    def at(self, rows: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """The keys of these rows, of these tasks; equal rows of a task are told apart by number.

        So taking a row away takes one of its equals away, and changes the key of no other.
        """
        keys = self.keys[rows]
        if not self.single:
            return keys
        order = np.lexsort((keys, tasks))
        same = (np.diff(keys[order]) == 0) & (np.diff(tasks[order]) == 0)
        place = np.arange(len(order))
        first = np.maximum.accumulate(np.where(np.append(False, same), 0, place))
        number = np.empty(len(order), dtype=np.int64)
        number[order] = place - first
        return scramble(torch.from_numpy(keys), torch.from_numpy(number)).numpy()


def owners_of(names: Any, x: np.ndarray, y: np.ndarray) -> Owners | None:
    """From a name (or number) of the person of each row; True where every row is one."""
    if names is None or names is False:
        return None
    if names is True:
        return _each_row(x, y)
    cells = [_name_of(cell) for cell in np.asarray(names, dtype=object).tolist()]
    for row, cell in enumerate(cells):
        if not cell:
            raise TacitError(f"row {row + 1} has no person; give it one or remove the row")
    distinct, numbers = np.unique(np.array(cells, dtype=np.str_), return_inverse=True)
    return Owners(digests(name.encode() for name in distinct.tolist())[numbers], single=False)


def _name_of(cell: Any) -> str | None:
    """However it was written: 17 and 17.0 are the same person, who is bounded once."""
    text = text_of(cell)
    try:
        number = float(text or "")
    except ValueError:
        return text
    whole = number.is_integer() and abs(number) < LARGEST_NUMBER
    return str(int(number)) if whole else text


def _each_row(x: np.ndarray, y: np.ndarray) -> Owners:
    """Every row is a person; what it holds is who it is.

    Rows of the same key are told apart by number. So keys must not be such that anybody can make
    rows of the same key as another one's: all of them would change with it.
    """
    flat = np.ascontiguousarray(x.reshape(len(x), -1), dtype=np.float64)
    targets = (" ".join(map(repr, cells)) for cells in y.reshape(len(y), -1).tolist())
    rows = (row.tobytes() + cells.encode() for row, cells in zip(flat, targets, strict=True))
    return Owners(digests(rows), single=True)


def fit_publicly(
    columns: int,
    scale: Scale,
    names: Sequence[str],
    indicators: np.ndarray | None,
    scales: Mapping[str, tuple[float, float]] | None,
) -> tuple[Fitted, tuple[int, ...]]:
    """Scaling by public constants alone, and the columns that have none."""
    if isinstance(scale, str) and scale not in ("auto", "none"):
        raise TacitError(
            f"scale={scale!r} looks at all rows of a task, which would tell about persons: give "
            "constants (in the schema, or scale={column: (mean, sd)}), or leave it out"
        )
    shift, spread = np.zeros((1, columns)), np.ones((1, columns))
    known = np.zeros(columns, dtype=bool) if indicators is None else indicators.copy()
    said: tuple[str, ...] = ()
    if not isinstance(scale, str):
        given = fit(np.zeros((1, columns)), np.array([0, 1]), scale, names).preprocessing
        shift, spread = given.shift.numpy().copy(), given.scale.numpy().copy()
        known = known | (np.ones(columns, bool) if not isinstance(scale, Mapping) else False)
        known |= np.isin(names, list(scale) if isinstance(scale, Mapping) else [])
        said = (CONSTANTS,)
    for name, pair in (scales or {}).items():
        place = list(names).index(name)
        (shift[:, place], spread[:, place]), known[place], said = pair, True, (CONSTANTS,)
    if scale == "none":
        known[:] = True
    made = Preprocessing(torch.from_numpy(shift), torch.from_numpy(spread))
    return Fitted(made, said), tuple(np.flatnonzero(~known).tolist())


def most_tasks(federation: Federation) -> int:
    """At how many tasks one person is, at most: its name is the same everywhere."""
    persons, tasks = [], []
    for rows in (federation.part(name) for name in PARTS):
        assert rows.persons is not None
        persons.append(rows.persons.cpu().numpy())
        tasks.append(np.repeat(np.arange(len(federation)), rows.counts.cpu().numpy()))
    who, task = np.concatenate(persons), np.concatenate(tasks)
    order = np.lexsort((task, who))
    again = (np.diff(who[order]) == 0) & (np.diff(task[order]) == 0)
    places = who[order][~np.append(False, again)] if len(who) else who
    return int(np.unique(places, return_counts=True)[1].max(initial=1))


@dataclass(frozen=True)
class Unscaled:
    """Columns whose unit nobody knows yet; their gaps are NaN. -1 is the target."""

    columns: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.columns)

    def values(self, rows: Rows) -> Tensor:
        """[N, columns], as they are."""
        x = [rows.x[:, k] if k >= 0 else rows.y for k in self.columns]
        return torch.stack(x, dim=1).double()


def in_found_units(federation: Federation, centre: Tensor, spread: Tensor) -> Federation:
    """The same rows with these constants for the columns of `federation.unscaled`.

    A column without a unit (NaN) is left out, and so is a target's: it keeps what it has.
    """
    unscaled, made = federation.unscaled, federation.preprocessing
    assert unscaled is not None and made is not None
    centre = torch.where(spread.isnan(), 0.0, centre).double().cpu()
    wide = torch.where(spread.isnan(), torch.inf, spread).double().cpu()
    shift, scale, target = made.shift.clone(), made.scale.clone(), federation.target_scale
    parts = {name: federation.part(name) for name in PARTS}
    for place, column in enumerate(unscaled.columns):
        middle, unit = float(centre[place]), float(wide[place])
        if column < 0:
            unit = unit if np.isfinite(unit) else 1.0
            parts = {
                name: replace(rows, y=((rows.y.double() - middle) / unit).to(rows.y.dtype))
                for name, rows in parts.items()
            }
            many = torch.ones(len(federation), dtype=torch.float64)
            target = TargetScale(many * middle, many * unit)
            continue
        for name, rows in parts.items():
            x = rows.x.clone()
            x[:, column] = ((x[:, column].double() - middle) / unit).nan_to_num(0.0).to(x.dtype)
            parts[name] = replace(rows, x=x)
        shift[:, column], scale[:, column] = middle, unit
    return replace(
        federation,
        **parts,
        preprocessing=Preprocessing(shift, scale),
        target_scale=target,
        unscaled=None,
        assumptions=(*federation.assumptions, FOUND),
    )
