"""Heart disease in four hospitals that predict different things.

Janosi, Steinbrunn, Pfisterer and Detrano, "Heart Disease", UCI Machine Learning Repository, 1988
(doi 10.24432/C52P4X): the 14 columns of `processed.cleveland.data`, `processed.hungarian.data`,
`processed.switzerland.data` and `processed.va.data`, with or without a header, cut by `,` or `;`,
gaps written `?`. A cholesterol or blood pressure of 0 is a gap too: nobody has that.

With heads="different" a hospital predicts one outcome; with "same" all four predict disease.

| hospital    | predicts      | which is                                    | patients | yes   |
|-------------|---------------|---------------------------------------------|----------|-------|
| cleveland   | disease       | `num` above 0: an artery narrowed by half   | 303      | 46 %  |
| hungarian   | disease       | the same                                    | 294      | 36 %  |
| switzerland | angina        | `exang`: chest pain during exercise         | 122      | 44 %  |
| va          | st-depression | `oldpeak` above 1: ST lowered by exercise   | 144      | 53 %  |

Patients whose outcome was not written down (1 and 56 of the last two) are left out. Inputs are what
is known before exercise and angiography: age, sex, pain type, blood pressure, cholesterol, blood
sugar, ECG at rest; and the highest heart rate. What is an outcome anywhere is an input nowhere, nor
are `slope` (of the same ST segment as `oldpeak`), `ca` and `thal` (which three hospitals lack).
Gaps are filled, and numbers scaled, by each hospital for itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.data.assemble import About, assemble
from tacit.data.federation import Federation
from tacit.data.folders import find
from tacit.data.preprocess import Scale
from tacit.data.schema import PUBLIC, Schema
from tacit.data.split import SplitRule
from tacit.data.targets import Target
from tacit.errors import TacitError

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
)  # fmt: skip
PAIN = ("typical", "atypical", "not anginal", "none")
ECG = ("normal", "ST-T", "hypertrophy")
OUTCOMES = ("disease", "angina", "st-depression")
PREDICTS = dict(zip(HOSPITALS, ("disease", "disease", "angina", "st-depression"), strict=True))
LEFT_OUT = "each hospital leaves out its patients without the outcome that it predicts"
GAPS = ("?", "", "-9", "-9.0")
RANGES = {"sex": (0, 1), "cp": (1, 4), "fbs": (0, 1), "restecg": (0, 2), "exang": (0, 1)}


def heart(
    path: str | Path | None = None,
    *,
    heads: Literal["different", "same"] = "different",
    scale: Scale = "task",
    **split: Any,
) -> Federation:
    """Patients: x [N, 18], one head of one label at each of four hospitals.

    `path` is the folder of the four files; `scale` is that of `tacit.data.from_table`.
    """
    rule = SplitRule(**split)
    if heads not in ("different", "same"):
        raise TacitError(f"heads is {heads!r}, expected 'different' or 'same'")
    read = _hospitals(path)
    hospital = np.repeat(HOSPITALS, [len(rows) for rows in read.values()])
    together = np.concatenate(list(read.values()))
    values: dict[str, np.ndarray] = dict(zip(COLUMNS, together.T, strict=True))
    outcome = np.stack(
        [
            _where(values["num"], values["num"] > 0),
            values["exang"],
            _where(values["oldpeak"], values["oldpeak"] > 1),
        ],
        axis=1,
    )
    predicts = PREDICTS if heads == "different" else dict.fromkeys(HOSPITALS, "disease")
    asked = np.array([OUTCOMES.index(predicts[name]) for name in hospital])
    known = ~np.isnan(outcome[np.arange(len(asked)), asked])
    used = OUTCOMES if heads == "different" else ("disease",)
    table = {name: column[known] for name, column in _inputs(values).items()}
    table["hospital"] = hospital[known]
    for k, name in enumerate(used):
        table[name] = outcome[known, k]
    schema = Schema.fit(table, "hospital", used)
    x, features = schema.matrix(table)
    about = About(
        source="UCI heart disease, four hospitals",
        features=features,
        schema=schema,
        assumptions=(PUBLIC, LEFT_OUT),
    )
    target = Target("multilabel", outcome[known, : len(used)], len(used), used)
    made = assemble(x, target, hospital[known], about, rule=rule, scale=scale)
    holds = {name: (predicts[name],) for name in HOSPITALS}
    return made.with_heads({name: (name,) for name in used}, holds)


def hospital_tables(path: str | Path | None = None) -> dict[str, dict[str, np.ndarray]]:
    """Each hospital's own table: the inputs, and `disease`, which all four can predict."""
    tables = {}
    for name, rows in _hospitals(path).items():
        known = rows[~np.isnan(rows[:, COLUMNS.index("num")])]
        values: dict[str, np.ndarray] = dict(zip(COLUMNS, known.T, strict=True))
        tables[name] = {**_inputs(values), "disease": (values["num"] > 0).astype(float)}
    return tables


def _hospitals(path: str | Path | None) -> dict[str, np.ndarray]:
    folder = find("heart", path, ("heart",))
    if not folder.is_dir():
        raise TacitError(f"{folder} is a file; pass the folder of the four hospitals' files")
    return {name: _read(folder / f"processed.{name}.data") for name in HOSPITALS}


def _where(present: np.ndarray, yes: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(present), np.nan, yes)


def _inputs(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What predictions are made from; categories by name."""
    numbers = {name: values[name] for name in ("age", "sex")}
    pain = _named(values["cp"] - 1, PAIN)
    measured = {
        name: np.where(values[name] == 0, np.nan, values[name]) for name in ("trestbps", "chol")
    }
    ecg = _named(values["restecg"], ECG)
    rest = {name: values[name] for name in ("fbs", "thalach")}
    return {**numbers, "cp": pain, **measured, **rest, "restecg": ecg}


def _named(codes: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    cells = np.empty(len(codes), dtype=object)
    cells[:] = [None if np.isnan(code) else names[int(code)] for code in codes]
    return cells


def _read(file: Path) -> np.ndarray:
    """float64 [patients, 14], NaN for gaps."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise TacitError(
            f"{file} does not exist; put processed.*.data of the four hospitals there"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise TacitError(f"{file} cannot be read: {error}; get it again") from None
    cells = [
        (number, [cell.strip() for cell in line.replace(";", ",").split(",")])
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if cells and _number(cells[0][1][0]) is None:
        cells = cells[1:]  # UCI's own files have no header
    if not cells:
        raise TacitError(f"{file} has no patients; get it again")
    rows = np.empty((len(cells), len(COLUMNS)))
    for row, (number, line) in enumerate(cells):
        found = [_number(cell) for cell in line]
        if len(found) != len(COLUMNS) or None in found:
            raise TacitError(
                f"line {number} of {file} does not have {len(COLUMNS)} numbers or gaps ('?'); get "
                "it again"
            )
        rows[row] = found
    for name, (low, high) in RANGES.items():
        column = rows[:, COLUMNS.index(name)]
        wrong = ~np.isnan(column) & ~np.isin(column, np.arange(low, high + 1))
        if wrong.any():
            raise TacitError(
                f"line {cells[int(np.argmax(wrong))][0]} of {file} has {name} "
                f"{column[wrong][0]:g}, expected {low} to {high}; is it another version?"
            )
    return rows


def _number(cell: str) -> float | None:
    if cell in GAPS:
        return np.nan
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
