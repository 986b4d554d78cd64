"""Outcomes over time: when something happened, or until when a row was seen without it.

Time is cut at public ends, never at quantiles of the rows. A row then is a list of cells, one for
each interval: how much of it the row lived through, from 0 to 1, with a minus where the event ended
it, and NaN after the end. So a row of the table stays one row, whatever the unit of privacy is.

    ends 10, 20, 30      seen until 25, no event: 1, 1, 0.5       event at 12: 1, −0.2, NaN

An end belongs to the interval before it. What happens after the last end is not looked at: such
rows are seen until there. `tacit.survival` reads the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.data.targets import Target
from tacit.errors import TacitError

LADDER = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
"""Ends of intervals where nobody gave any: they suit days, months and years."""
SHORTEST = 1e-3
"""A row lives through so much of its first interval at least, even where its time is 0."""
MOST = 100
EVENT = "write 1 where the event was seen at that time, and 0 where the row was seen until then"
CUTS = (
    "the ends of the intervals that time is cut into are taken to be public; what happens after "
    "the last is not looked at"
)


def check_cuts(cuts: Sequence[Any] | None) -> tuple[float, ...]:
    """The ends of intervals as they were given, or those that everybody knows."""
    if cuts is None:
        return tuple(map(float, LADDER))
    try:
        found = () if isinstance(cuts, (str, bytes)) else tuple(float(cut) for cut in cuts)
    except (TypeError, ValueError):
        found = ()
    rising = bool(np.isfinite(found).all() and (np.diff([0.0, *found]) > 0).all())
    if not 1 <= len(found) <= MOST or not rising:
        raise TacitError(
            f"cuts is {cuts!r}, expected the ends of 1 to {MOST} intervals of time: positive "
            "numbers that rise, such as 365, 730, 1095"
        )
    return found


def check_roles(kind: str | None, target: Any, event: Any, cuts: Any) -> None:
    """Which of the settings of an outcome over time go together."""
    if event is None and kind == "survival":
        raise TacitError(
            "kind='survival' needs a column that says whether the event was seen at the time in "
            "the target: pass event= (--event)"
        )
    if event is None and cuts is not None:
        raise TacitError("cuts are ends of intervals of time: pass event= (--event) too, or none")
    if event is not None and kind not in (None, "survival"):
        raise TacitError(f"event is for kind 'survival', but kind={kind!r}: leave one of them out")
    if event is not None and not (isinstance(target, str) and isinstance(event, str)):
        raise TacitError(
            "an outcome over time has one column of times (target) and one of events; name one each"
        )


def survival_target(
    time: np.ndarray, event: np.ndarray, cuts: Sequence[float], where: Any = None
) -> Target:
    """From numbers without gaps; `where` names a row by its number, for messages."""
    place = where or (lambda row: f"row {row + 1}")
    bad = ~(np.isfinite(time) & (time >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise TacitError(
            f"{place(row)} has the time {time[row]:g}, expected 0 or more; correct it, or remove "
            "the row"
        )
    other = (event != 0) & (event != 1)
    if other.any():
        row = int(np.argmax(other))
        raise TacitError(f"{place(row)} has the event {event[row]:g}; {EVENT}")
    y = cells(time, event > 0, cuts)
    return Target("survival", y, len(cuts), cut_labels(cuts), said=(CUTS,))


def cut_labels(cuts: Sequence[float]) -> tuple[str, ...]:
    """The ends of the intervals in words: the labels of an outcome over time."""
    return tuple(np.format_float_positional(cut, trim="-") for cut in cuts)


def with_events(target: Target) -> Target:
    """The same, where there is something to learn."""
    if not (target.y < 0).any():
        raise TacitError(
            "no row has an event until the last of the cuts, so there is nothing to learn; give "
            "other cuts, or another event"
        )
    return target


def cells(time: np.ndarray, event: np.ndarray, cuts: Sequence[float]) -> np.ndarray:
    """float64 [N, intervals], as the module says."""
    ends = np.asarray(cuts, dtype=np.float64)
    starts = np.append(0.0, ends[:-1])
    lived = (time[:, None] - starts) / (ends - starts)
    last = np.searchsorted(ends, time, side="left")[:, None]
    number = np.arange(len(ends))
    y = np.where(number < last, 1.0, np.nan)
    signed = np.clip(lived, SHORTEST, 1.0) * np.where(event, -1.0, 1.0)[:, None]
    return np.where(number == last, signed, y)
