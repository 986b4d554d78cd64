"""LSOA II: health of people over seventy, a task for each of 41 outcomes, in a MATLAB file.

The Second Longitudinal Study of Aging (US National Center for Health Statistics, 1994 to 2000), as
prepared by Liang et al. for `data_processed_LSOAII.mat`: `train_`, `valid_` and `test_` each with
`X` (a first column of 1, which is left out, then features), `Y` (44 targets) and `Omega` (1 where
the target was observed; elsewhere `Y` holds a 0 that means nothing). `task_type` numbers the kind
of each target, `task_type_name` names the kinds; "bnl" is yes or no.

A task's rows are the people whose outcome was observed, so most people are in many tasks.
MP-MTL speaks of 4299 people and 295 features; this file has 3988 and 292, and 498 of the people
have none of the 41 outcomes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from tacit.data.assemble import About, assemble
from tacit.data.federation import Federation
from tacit.data.folders import find, only
from tacit.data.sets.school import RowLength, check_rows, read_mat, shares
from tacit.data.split import SplitRule
from tacit.data.targets import Target
from tacit.errors import TacitError

FILE = "data_processed_LSOAII.mat"
FILE_PARTS = ("train", "valid", "test")
NEEDED = (
    *(f"{part}_{array}" for part in FILE_PARTS for array in ("X", "Y", "Omega")),
    "task_type",
    "task_type_name",
)
SAME_PEOPLE = (
    "the same people are in several tasks: what protects one task as a whole does not protect a "
    "person, whose answers are in the others too"
)
PREPARED = (
    "numbers were scaled, and their gaps filled, over all people by those who prepared the file; "
    "that is taken to be public, as published"
)


def lsoa2(
    path: str | Path | None = None,
    *,
    train: float = 0.3,
    split: Literal["file"] | None = None,
    validation: float = 0.0,
    split_seed: int = 0,
    rows: RowLength = "raw",
) -> Federation:
    """Health outcomes: x [N, 292], binary, a task for each outcome.

    Parameters
    ----------
    path : the file, or its folder.
    train : share of each task's rows to train on (MP-MTL has 30 %); the others are test rows.
    split : "file" keeps the three parts of the file; then `train` and `validation` are not used.
    validation : share of the training rows to hold back; 0 holds back none.
    rows : "unit" brings every row to length one, as MP-MTL does.
    """
    rule = shares(train, validation, split_seed)
    check_rows(rows)
    if split not in (None, "file"):
        raise TacitError(f"split is {split!r}, expected 'file' or none (then pass train=)")
    fixed = split == "file"
    if fixed:
        rule = SplitRule(0.0, 0.0, split_seed)
    place = find("lsoa2", path, ("lsoa2",))
    file = only(place, (FILE,), "LSOA II as one MATLAB file")
    x, y, observed, number, part = _read(file)
    _check_enough(observed, number, part if fixed else None, rule.needed, file)

    task, person = np.nonzero(observed.T)  # outcome after outcome
    where = part[person]
    made = assemble(
        x[person],
        Target("binary", y[person, task], 1, ("0", "1")),
        np.array([f"target-{k}" for k in number])[task],
        About(
            source="LSOA II, parts of the file" if fixed else "LSOA II",
            features=tuple(f"x{k + 1}" for k in range(x.shape[1])),
            assumptions=(SAME_PEOPLE, PREPARED),
        ),
        rule=rule,
        held=where == 2 if fixed else None,
    )
    if fixed:  # rows that are not held are still in the order of `where`
        later = torch.from_numpy(where[where != 2] == 1)
        made = replace(made, train=made.train.where(~later), validation=made.train.where(later))
    return made.through("unit") if rows == "unit" else made


def _read(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """People's features [n, p]; outcomes and whether observed [n, m]; the number of each of the m
    targets in the file, from 1; the part of each person, 0 to 2."""
    content = read_mat(file, (NEEDED,), FILE)
    try:
        x, y, omega = (
            np.concatenate([content[f"{part}_{array}"] for part in FILE_PARTS]).astype(np.float64)
            for array in ("X", "Y", "Omega")
        )
        part = np.repeat([0, 1, 2], [len(content[f"{name}_X"]) for name in FILE_PARTS])
        kinds = [str(name.item()) for name in content["task_type_name"].ravel()]
        binary = np.flatnonzero(content["task_type"].ravel() == kinds.index("bnl") + 1)
        y, observed = y[:, binary], omega[:, binary] == 1
        good = len(x) == len(y) == len(observed) and x.shape[1] > 1 and y.shape == observed.shape
        good = good and bool(np.isfinite(x).all() and (x[:, 0] == 1).all())
        good = good and bool(np.isin(y[observed], (0, 1)).all())
        if not good:
            raise ValueError
    except (AttributeError, TypeError, ValueError, IndexError):
        raise TacitError(
            f"{file} is not LSOA II as expected: X with a first column of 1, and Y of 0 and 1 "
            "where task_type says bnl and Omega is 1; get it again"
        ) from None
    return x[:, 1:].astype(np.float32), y, observed, binary + 1, part


def _check_enough(
    observed: np.ndarray, number: np.ndarray, part: np.ndarray | None, needed: int, file: Path
) -> None:
    """Every outcome has rows enough to split, or some in each part of the file."""
    if part is None:
        few = observed.sum(axis=0) < needed
        lack = f"for fewer than {needed} people, too few to split"
    else:
        few = (np.stack([observed[part == k].sum(axis=0) for k in range(3)]) == 0).any(axis=0)
        lack = "for nobody in one of the parts; pass train= to split it here"
    if few.any():
        raise TacitError(
            f"target-{number[int(np.argmax(few))]} of {file} was observed {lack} (is the file "
            "whole?)"
        )
