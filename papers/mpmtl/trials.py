"""What methods are compared on: fresh data sets or splits, and where settings are chosen.

Settings are chosen without test rows: for made-up data on other data sets of the same generator
(seeds from `CHOOSING` on), for real data on a split inside the training part of each repetition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from papers.common.tasks import first_tasks
from tacit import data, metrics
from tacit.data.federation import Federation, Rows, TargetScale
from tacit.data.sets import synthetic
from tacit.errors import TacitError

CHOOSING = 1000
"""Seeds of the data sets that settings are chosen on begin here."""
CHOOSING_SETS = 2
HELD = 0.3
"""Share of the training rows that a choice inside the training part looks at."""
SCORE_FROM, SCORE_UNIT = 20.0, 10.0
PUBLIC_UNITS = "exam scores are measured as (score − 20) / 10, constants chosen without the data"
Made = Literal["low-rank", "group-sparse"]
GENERATORS = {"low-rank": synthetic.low_rank, "group-sparse": synthetic.group_sparse}


@dataclass(frozen=True)
class MPMTLTrial:
    """Tasks to train on and rows to be measured on (`federation.test`)."""

    key: str
    federation: Federation
    seed: int
    weights: np.ndarray | None = None
    """True models [m, d], where the data are made up."""

    @property
    def intercept(self) -> bool:
        return self.weights is None

    @property
    def model(self) -> str:
        return "linear" if self.intercept else "linear-no-intercept"

    @property
    def tasks(self) -> int:
        return len(self.federation)

    @property
    def delta(self) -> float:
        """1/(m log m), as in the paper."""
        return 1 / (self.tasks * np.log(self.tasks))

    def score(self, w: Tensor, tasks: int | None = None) -> float:
        """Pooled nMSE, or mean AUC, of models [m, d] on the test rows (of the first tasks)."""
        seen = self.federation if tasks is None else first_tasks(self.federation, tasks)
        rows, scale = seen.test, seen.target_scale
        w, d = w[: len(seen)].float().cpu(), rows.x.shape[1]
        parts = rows.x.cpu().split(rows.counts.tolist())
        out = torch.cat([part @ own for part, own in zip(parts, w[:, :d], strict=True)])
        if w.shape[1] > d:
            out = out + w[:, d].repeat_interleave(rows.counts.cpu())
        if scale is not None:
            scale = TargetScale(scale.shift[: len(seen)], scale.scale[: len(seen)])
        if self.higher:
            ends = rows.offsets.cpu().numpy()
            return float(np.nanmean(metrics.auc(out.double().numpy(), rows.y.cpu().numpy(), ends)))
        value = metrics.evaluate_rows(seen.kind, out, rows, scale).overall["nmse_pooled"]
        return float("nan") if value is None else value

    @property
    def higher(self) -> bool:
        """Whether a high score is a good one (AUC), or a low one (nMSE)."""
        return self.key == "lsoa2"

    def few(self, tasks: int) -> MPMTLTrial:
        """The first tasks alone."""
        weights = None if self.weights is None else self.weights[:tasks]
        return dataclasses.replace(
            self, federation=first_tasks(self.federation, tasks), weights=weights
        )

    def inside(self) -> MPMTLTrial:
        """The training rows alone, some of them held back in the place of test rows."""
        rows = self.federation.train
        generator = torch.Generator().manual_seed(CHOOSING + self.seed)
        draw = torch.rand(len(rows.y), generator=generator)
        held = torch.zeros(len(rows.y), dtype=torch.bool)
        for k in range(self.tasks):
            begin, end = int(rows.offsets[k]), int(rows.offsets[k + 1])
            count = min(round(HELD * (end - begin)), end - begin - 1)
            held[begin + torch.argsort(draw[begin:end])[:count]] = True
        parts = {"train": rows.where(~held), "test": rows.where(held)}
        return dataclasses.replace(self, federation=dataclasses.replace(self.federation, **parts))


def made_up(key: Made, seed: int, tasks: int = 320, test_rows: int = 270) -> MPMTLTrial:
    """A fresh data set as the paper makes them."""
    made = GENERATORS[key](tasks=tasks, seed=seed, test_rows=test_rows, validation_rows=0)
    return MPMTLTrial(key, made.federation, seed, made.weights)


def for_choosing(key: Made, tasks: int = 320, sets: int = CHOOSING_SETS) -> list[MPMTLTrial]:
    return [made_up(key, CHOOSING + k, tasks, test_rows=60) for k in range(sets)]


def school(folder: Path, seed: int, split: int | None = None) -> MPMTLTrial:
    """30 % of each school's rows to train on, or one of the ten fixed splits."""
    made = data.load("school", path=_place(folder, "school"), split=split, split_seed=seed)
    said = (*made.assumptions, PUBLIC_UNITS)
    tasks = torch.ones(len(made))
    scale = TargetScale(SCORE_FROM * tasks, SCORE_UNIT * tasks)
    parts = {name: _measure(made.part(name)) for name in ("train", "validation", "test")}
    made = dataclasses.replace(made, **parts, target_scale=scale, assumptions=said)
    return MPMTLTrial("school" if split is None else "school-fixed", made, seed)


def _measure(rows: Rows) -> Rows:
    return dataclasses.replace(rows, y=(rows.y - SCORE_FROM) / SCORE_UNIT)


def lsoa2(folder: Path, seed: int) -> MPMTLTrial:
    """30 % of each outcome's rows to train on; outcomes are fitted as the numbers 0 and 1.

    Squared loss instead of the logistic one, for all methods (as the paper's DP-MTRL): with 292
    features, exact logistic solutions under many priors take minutes where these take seconds.
    """
    made = data.load("lsoa2", path=_place(folder, "lsoa2"), split_seed=seed)
    return MPMTLTrial("lsoa2", dataclasses.replace(made, kind="regression", labels=()), seed)


def _place(folder: Path | None, name: str) -> Path:
    if folder is None or not (folder / name).is_dir():
        raise TacitError(f"there is no {name}/ in the data folder: pass --data DIR")
    return folder / name


def choosing(trial: MPMTLTrial, sets: Sequence[MPMTLTrial] = ()) -> Sequence[MPMTLTrial]:
    """Where this trial's settings are chosen: never on its test rows."""
    return sets if sets else [trial.inside()]
