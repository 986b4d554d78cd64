"""School: exam scores of 15 362 London pupils, a task for each of 139 schools, in MATLAB files.

Pupils of the Inner London Education Authority in 1985 to 1987 (Goldstein, "Multilevel modelling of
survey data", The Statistician 40, 1991). Read are both files in use, which hold the same rows in
the same order: `school_b.mat` (`x` [28, N], `y`, and `task_indexes`, where each school begins, from
1) and `school.mat` (`X` and `Y`, a cell for each school). `school_1_indexes.mat` to
`school_10_indexes.mat` beside them are ten fixed splits, about 75 to 25, with `tr` and `tst`
numbering the rows from 1.

The code book lists boys before girls, of pupils as of schools, but nearly everybody in the schools
of its code for boys has the second gender column. One of the two stands the other way round; girls
did better in these exams, so it is taken to be the pupils'. Fifteen pupils have no band. The last
column is 1 for everybody and is left out: models have an intercept of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.data.assemble import About, assemble
from tacit.data.federation import Federation
from tacit.data.folders import find, only
from tacit.data.preprocess import Scale, TargetScaling
from tacit.data.split import SplitRule
from tacit.data.targets import Target
from tacit.errors import TacitError

FEATURES = (
    *(f"year={year}" for year in (1985, 1986, 1987)),
    "% free meals",
    "% band 1",
    *(f"gender={gender}" for gender in ("female", "male")),
    *(f"band={band}" for band in (3, 1, 2)),
    *(
        f"ethnic={group}"
        for group in (
            "ESWI", "African", "Arab", "Bangladeshi", "Caribbean", "Greek", "Indian", "Pakistani",
            "SE Asian", "Turkish", "other",
        )
    ),
    *(f"school={gender}" for gender in ("mixed", "male", "female")),
    *(f"church={church}" for church in ("none", "England", "Rome")),
)  # fmt: skip
"""The columns without the last one; band 1 is the best."""

PERCENTAGES = {"% free meals": (50.0, 25.0), "% band 1": (25.0, 12.5)}
"""Centre and scale of the only two columns that are not 0 or 1, from what they mean: a percentage
lies around 50, and band 1 is meant for the best quarter of pupils. They are not those of the rows:
means over all schools would tell every school about the others."""

SPLITS = 10
RowLength = Literal["raw", "unit"]


def school(
    path: str | Path | None = None,
    *,
    train: float = 0.3,
    split: int | None = None,
    validation: float = 0.0,
    split_seed: int = 0,
    min_rows: int = 0,
    rows: RowLength = "raw",
    scale: Scale | None = None,
    target_scale: TargetScaling = "none",
) -> Federation:
    """Exam scores from 1 to 70: x [N, 27], regression, a task for each school.

    Parameters
    ----------
    path : a folder with the files, or one of them.
    train : share of each school's rows to train on (MP-MTL has 30 %); the others are test rows.
    split : 1 to 10, one of the fixed splits; then `train` is not used.
    validation : share of the training rows to hold back; 0 holds back none.
    rows : "unit" brings every row, once scaled, to length one; MP-MTL does so with rows as they
        are in the file (scale="none"), which costs much of what they tell.
    scale : how features are scaled, as in `from_arrays`; by default the two percentages by public
        constants. Scaled inside a school ("task") they are mostly 0: they hardly vary there.
    target_scale : as in `from_arrays`; by default scores stay as they are.
    """
    rule = shares(train, validation, split_seed, min_rows)
    check_rows(rows)
    if split is not None:
        if not isinstance(split, (int, np.integer)) or not 1 <= split <= SPLITS:
            raise TacitError(
                f"split is {split!r}, expected the number of a fixed split, 1 to {SPLITS}, or none"
            )
        rule = SplitRule(validation, 0.0, split_seed, min_rows)
    place = find("school", path, ("school",))
    file = only(place, ("school_b.mat", "school.mat"), "the School data")
    x, y, counts = _read(file)
    said: tuple[str, ...] = ()
    if scale is None:
        scale = PERCENTAGES
        said = ("percentages are scaled by what they mean, not by what schools have",)
    source = "School" if split is None else f"School, fixed split {split}"
    made = assemble(
        x,
        Target("regression", y, 1),
        np.repeat([f"school-{k + 1}" for k in range(len(counts))], counts),
        About(source=source, features=FEATURES, assumptions=said),
        rule=rule,
        scale=scale,
        target_scale=target_scale,
        held=None if split is None else _held(file.parent, int(split), len(y)),
    )
    return made.through("unit") if rows == "unit" else made


def shares(train: float, validation: float, seed: int, min_rows: int = 0) -> SplitRule:
    """`train` of each task's rows are for training, and `validation` of those are held back."""
    if not isinstance(train, (int, float)) or not 0 < train < 1:
        raise TacitError(f"train is {train!r}, expected a share of rows between 0 and 1, like 0.3")
    if not isinstance(validation, (int, float)) or not 0 <= validation < 1:
        raise TacitError(
            f"validation is {validation!r}, expected a share of the training rows from 0 to below 1"
        )
    return SplitRule(validation * train, 1 - train, seed, min_rows)


def check_rows(rows: str) -> None:
    if rows not in ("raw", "unit"):
        raise TacitError(f"rows={rows!r}: choose raw or unit")


def read_mat(file: Path, layouts: Sequence[Sequence[str]], what: str) -> dict[str, Any]:
    """The variables of a MATLAB file that has at least those of one layout."""
    from scipy.io import loadmat  # takes long to load, and few sets need it

    try:
        content = loadmat(file, appendmat=False)
    except Exception as error:  # a damaged file can raise nearly anything
        why = " ".join(str(error).split()) or type(error).__name__
        raise TacitError(f"{file} cannot be read as a MATLAB file: {why}; get it again") from None
    held = {name: value for name, value in content.items() if not name.startswith("__")}
    if not any(set(layout) <= set(held) for layout in layouts):
        wanted = " or ".join(", ".join(layout) for layout in layouts)
        raise TacitError(
            f"{file} holds {', '.join(held) or 'nothing'}, expected {wanted}; pass the path of "
            f"{what}"
        )
    return held


def _read(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x float32 [N, 27], y [N], rows of each school."""
    content = read_mat(file, (("x", "y", "task_indexes"), ("X", "Y")), "the School data")
    try:
        if "task_indexes" in content:
            x, y = content["x"].T.astype(np.float64), content["y"].astype(np.float64).ravel()
            counts = np.diff(content["task_indexes"].astype(np.int64).ravel() - 1, append=len(y))
            whole = counts.sum() == len(y)
        else:
            cells = [cell.astype(np.float64) for cell in content["X"].ravel()]
            scores = [cell.astype(np.float64).ravel() for cell in content["Y"].ravel()]
            x, y = np.concatenate(cells), np.concatenate(scores)
            counts = np.array([len(cell) for cell in cells])
            whole = np.array_equal(counts, [len(cell) for cell in scores])
        whole = bool(whole) and len(x) == len(y) and bool((counts > 0).all())
        good = whole and _is_school(x) and bool(np.isfinite(y).all())
    except (AttributeError, TypeError, ValueError, IndexError):
        good = False
    if not good:
        raise TacitError(
            f"{file} is not the School data, which has for each pupil a score, {len(FEATURES)} "
            "columns of 0 and 1 or a percentage, and a last column of 1; get it again"
        )
    return x[:, :-1].astype(np.float32), y, counts


def _is_school(x: np.ndarray) -> bool:
    if x.shape[1] != len(FEATURES) + 1 or not (x[:, -1] == 1).all():
        return False
    most = np.array([100 if name in PERCENTAGES else 1 for name in FEATURES])
    values = x[:, :-1]
    return bool(((values >= 0) & (values <= most) & (values == np.floor(values))).all())


def _held(folder: Path, number: int, count: int) -> np.ndarray:
    """Which rows a fixed split tests on."""
    file = folder / f"school_{number}_indexes.mat"
    if not file.is_file():
        raise TacitError(f"{folder} holds no {file.name}; put split {number} there, or pass train=")
    content = read_mat(file, (("tr", "tst"),), f"split {number} of the School data")
    try:
        tr, tst = (content[name].astype(np.int64).ravel() - 1 for name in ("tr", "tst"))
        good = np.array_equal(np.sort(np.concatenate([tr, tst])), np.arange(count))
    except (AttributeError, TypeError, ValueError):
        tst, good = np.zeros(0, dtype=np.int64), False
    if not good:
        raise TacitError(
            f"tr and tst of {file} do not have each of the {count} rows once; get it again, with "
            "the data it belongs to"
        )
    held = np.zeros(count, dtype=bool)
    held[tst] = True
    return held
