"""Survival of patients with breast cancer, in six regions.

Jean Ogier du Terrail et al. "FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in
Realistic Healthcare Settings." NeurIPS Datasets and Benchmarks, 2022: Fed-TCGA-BRCA, from The
Cancer Genome Atlas. `brca.csv` has 39 clinical columns, `E` (died) and `T` (days); `centers.csv`
gives the region of the hospital that a patient's number names.

| region    | patients | died |
|-----------|----------|------|
| Northeast | 311      | 59   |
| West      | 206      | 22   |
| South     | 196      | 39   |
| Midwest   | 162      | 19   |
| Europe    | 162      | 9    |
| Canada    | 51       | 3    |

Eight patients of other places are left out, as FLamby does. Time is cut after each of the first
five years, after seven and after ten: what happens later is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.federation import Federation
from tacit.data.folders import find
from tacit.data.reading import read_table
from tacit.data.tabular import from_table
from tacit.errors import TacitError

CUTS = tuple(365.25 * year for year in (1, 2, 3, 4, 5, 7, 10))
"""In days."""


def tcga_brca(
    path: str | Path | None = None,
    *,
    cuts: Sequence[float] = CUTS,
    **others: Any,
) -> Federation:
    """Patients: x [N, 39], one task for each region.

    `path` is the folder of the two files; the others are those of `tacit.data.from_table`.
    """
    folder = find("tcga_brca", path, ("tcga_brca",))
    if not folder.is_dir():
        raise TacitError(f"{folder} is a file; pass the folder of brca.csv and centers.csv")
    patients, centres = (read_table(folder / name) for name in ("brca.csv", "centers.csv"))
    for table, needed in ((patients, ("pid", "E", "T")), (centres, ("TSS Code", "Region"))):
        for name in needed:
            table.column(name)
    region = dict(zip(centres["TSS Code"], centres["Region"], strict=True))
    of = np.array([region.get(str(pid)[5:7], "Other") for pid in patients["pid"]], dtype=object)
    table = patients.only(np.flatnonzero(of != "Other"))
    table["region"] = of[of != "Other"]
    return from_table(
        table,
        task="region",
        target="T",
        event="E",
        drop=("pid",),
        cuts=cuts,
        **others,
        source="TCGA-BRCA, six regions",
    )
