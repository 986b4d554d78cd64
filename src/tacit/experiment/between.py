"""A private covariance between tasks, WᵀW: the other side of MP-MTL, and what it is good for.

Jian Liang, Ziqi Liu, Jiayu Zhou, Xiaoqian Jiang, Changshui Zhang, Fei Wang. "Model-Protected
Multi-Task Learning." IEEE TPAMI, 2020: Algorithm 1 with Σ = WᵀW.

WᵀW says which tasks are alike, but not in what: a task that is told the matrix and has its own
model can do nothing with it by itself. It is what a *relation* is made of. So it is released once;
its leading directions give a public Ω, and `RelatedPMTL` learns inside them, with sums that have
noise of their own (Ŵ = W V Vᵀ, where the first release gives V and the others W V).

    between = tacit.between_tasks(federation, privacy=Privacy(epsilon=1.0), clip=2.0, out="run")
    tacit.train(federation.related(between.omega(rank=3)), tacit.RelatedPMTL(), ..., out="run")

The ledger in the folder holds both, and the guarantee of the run is for both. One task moves a
whole row and column, so the noise grows with √m (`privacy.covariance`, claim 3): this pays for few
groups of very different tasks and a generous ε, not for many tasks and a small one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from tacit.data.federation import ONE_OUTPUT, Federation
from tacit.engine.store import confirm_ledger
from tacit.errors import TacitError
from tacit.files import make_folder
from tacit.local.batches import Batches, all_rows
from tacit.local.chunks import chunks, slots_for, widths_of
from tacit.methods.linear import ridge
from tacit.privacy import Everyone, Guarantee, Ledger, Privacy, guarantee
from tacit.privacy.gram import release_gram
from tacit.randomness import Randomness

CHUNK = 256


@dataclass(frozen=True)
class BetweenTasks:
    """A noisy Gram matrix of the tasks' models, and what was promised for it."""

    matrix: np.ndarray
    noise: float
    """Standard deviation of the noise on the diagonal (beside it: a √2-th)."""
    guarantee: Guarantee

    def omega(self, rank: int) -> np.ndarray:
        """Ω = I − VVᵀ: pulls models into the `rank` leading directions between tasks."""
        tasks = len(self.matrix)
        if not 1 <= rank <= tasks / 2:
            raise TacitError(
                f"rank={rank!r}: between 1 and half the tasks ({tasks // 2}) is needed"
            )
        vectors = np.linalg.eigh(self.matrix)[1][:, -rank:]
        return np.eye(tasks) - vectors @ vectors.T


def between_tasks(
    federation: Federation,
    *,
    privacy: Privacy | None,
    clip: float = 1.0,
    seed: int | None = None,
    out: str | Path | None = None,
) -> BetweenTasks:
    """Release W̃ᵀW̃ + noise for the tasks' own linear models, clipped to length `clip`.

    `privacy=None` releases it as it is. A private release without a seed needs a folder for its
    ledger: pass the `out` of the run that will use it.
    """
    tasks = len(federation)
    if federation.kind not in ONE_OUTPUT:
        raise TacitError(
            "tasks are compared by linear models: a number, a count or two classes as target"
        )
    if not (clip > 0 and np.isfinite(clip)):
        raise TacitError(f"clip={clip!r}: a positive number is needed")
    if privacy is not None and seed is None and out is None:
        raise TacitError("the ledger of a private release must survive: pass out=... (a folder)")
    models = _models(federation)
    randomness = Randomness.of(seed)
    if out is not None:
        make_folder(Path(out))
    ledger = Ledger() if out is None else confirm_ledger(Path(out))
    matrix, spread = models @ models.T, 0.0
    if privacy is not None:
        matrix, spread = release_gram(models, clip, privacy, ledger, randomness)
    promise = guarantee(
        ledger.releases(),
        channel="billboard",
        privacy=privacy,
        tasks=tasks,
        sampler=Everyone(),
        clip=clip,
        seeded=seed is not None,
        assumptions=federation.assumptions,
        leaks=federation.leaks,
    )
    return BetweenTasks(matrix.numpy(), spread, promise)


def _models(federation: Federation) -> Tensor:
    """Each task's ridge (or logistic) regression of its own rows [tasks, features + 1]."""
    size = int(np.prod(federation.input_shape)) + 1

    def one(batches: Batches) -> Tensor:
        return ridge(federation.kind, batches, size)

    rows, every, many = federation.train, torch.arange(len(federation)), len(federation)
    models = torch.empty(many, size, dtype=torch.float64)
    slots = slots_for(many, many, CHUNK, ragged=True)
    for chunk in chunks(every, widths_of(rows.counts), lambda width: slots):
        solved = vmap(one)(all_rows(rows, chunk.filled, chunk.width))
        models[chunk.tasks] = solved[: len(chunk.tasks)]
    return models
