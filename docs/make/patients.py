"""`python -m docs.make.patients`: the made-up table that the site's commands read.

150 hospitals with 12 to 30 patients each. What age, pressure and smoking do is nearly the same
everywhere; how many fall ill is not.
"""

from __future__ import annotations

import csv

import numpy as np

from docs.make.links import DOCS

PLACE = DOCS / "patients.csv"


def rows() -> list[list[str | int]]:
    draw = np.random.default_rng(7)
    made: list[list[str | int]] = []
    for hospital in range(150):
        level, slopes = 0.8 * draw.normal(), 0.25 * draw.normal(size=4)
        for _ in range(int(draw.integers(12, 31))):
            age, pressure = int(draw.normal(58, 13)), int(draw.normal(138, 20))
            sex, smoker = str(draw.choice(["f", "m"])), int(draw.random() < 0.3)
            effects = np.array([0.09 * (age - 58), 0.7 * (sex == "m"), 0.04 * (pressure - 138)])
            odds = level - 0.5 + effects.sum() + 1.2 * smoker
            odds += slopes @ np.array([(age - 58) / 13, sex == "m", (pressure - 138) / 20, smoker])
            ill = int(draw.random() < 1 / (1 + np.exp(-odds)))
            gap = draw.random() < 0.04
            made.append([f"h{hospital:03}", age, sex, "" if gap else pressure, smoker, ill])
    draw.shuffle(made)
    return made


if __name__ == "__main__":
    with PLACE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["hospital", "age", "sex", "pressure", "smoker", "outcome"])
        writer.writerows(rows())
