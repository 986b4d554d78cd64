"""How tasks are publicly related: which clusters they form, or a fixed relationship matrix Ω.

A related method publishes r sums instead of one. Task k adds its contribution to sum r with weight
`loadings[k, r]`, and reads its own target off the sums with `places[k]`. Rows of `loadings` have
length at most one, so a task moves all sums together by no more than it moves one: r sums cost the
ε of a single one, and with clusters the guarantee is the largest over clusters, not their sum.

**Which Ω are covered.** The penalty is pull/2 · tr(W Ω Wᵀ). Its slope for task k is a multiple of
w_k minus a mixture of all models; the billboard can carry that mixture as r sums exactly when Ω is,
in each connected component of its graph, c·I − QΛQᵀ with c > 0 and QΛQᵀ of rank r_c: all but r_c
eigenvalues of the component are equal and positive. Clusters and mean regularisation have r_c = 1.
Refused: an Ω that is not symmetric and positive semi-definite (the objective would be unbounded),
and one that needs more sums than half the tasks (a sum would then hide a task among fewer than two,
hardly better than publishing every model; a graph of arbitrary weights is such a case). Ω must be
public: computing it from tasks' data would be a release of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.words import counted

SAME = 1e-6
"""Eigenvalues closer than this (relative to the largest) count as equal."""


@dataclass(frozen=True)
class Relation:
    """What is public about each task's place among the others.

    Attributes
    ----------
    loadings : Tensor [tasks, sums], rows of length at most one: what a task adds to each sum
    places : Tensor [tasks, p], what a task reads the billboard with (see `parts`)
    scale : Tensor [sums], turns the mean over a cohort into a step of each sum
    start : Tensor [sums], the sums when every task's model is 1
    name : how it was given, in words
    """

    loadings: Tensor
    places: Tensor
    scale: Tensor
    start: Tensor
    name: str

    def __post_init__(self) -> None:
        longest = float(torch.linalg.vector_norm(self.loadings, dim=1).max())
        if longest > 1 + 1e-6:  # the channel's proof rests on it
            raise TacitError(f"a task's loadings have length {longest:.3g}: at most 1 is allowed")

    @property
    def sums(self) -> int:
        return self.loadings.shape[1]

    def to(self, device: torch.device | str) -> Relation:
        return Relation(
            self.loadings.to(device),
            self.places.to(device),
            self.scale.to(device),
            self.start.to(device),
            self.name,
        )


def clusters(groups: Sequence[object]) -> Relation:
    """Tasks of the same group share a mean; `groups[k]` is the group of task k."""
    _, codes = np.unique([str(group) for group in groups], return_inverse=True)
    sizes = np.bincount(codes)
    member = np.eye(len(sizes))[codes]
    text = counted(len(sizes), "cluster")
    return _relation(member / np.sqrt(sizes), np.ones(len(sizes)), np.ones(len(codes)), text)


def separate(tasks: int) -> Relation:
    """Every task is a cluster of its own, so every model is published."""
    return clusters([f"{k:012d}" for k in range(tasks)])


def graph(omega: np.ndarray) -> Relation:
    """A fixed relationship matrix, symmetric and positive semi-definite."""
    omega = np.asarray(omega, dtype=np.float64)
    if omega.ndim != 2 or omega.shape[0] != omega.shape[1] or not np.isfinite(omega).all():
        raise TacitError(f"Ω has shape {omega.shape}: a square table of finite numbers is needed")
    size = np.abs(omega).max(initial=0.0)
    if size == 0 or np.abs(omega - omega.T).max() > SAME * size:
        raise TacitError("Ω must be symmetric and not all zero")
    count, component = _components(np.abs(omega) > SAME * size)
    vectors, strengths = [], []
    own = np.zeros(len(omega))
    for number in range(count):
        members = np.flatnonzero(component == number)
        values, basis = np.linalg.eigh(omega[np.ix_(members, members)])
        if values[0] < -SAME * size:
            raise TacitError(
                f"Ω has the negative eigenvalue {values[0]:.3g}, so the objective has no minimum: "
                "use a positive semi-definite matrix, such as a graph's Laplacian"
            )
        # The most frequent eigenvalue; of several, the largest (a pair has one of each).
        alike = (np.abs(values[:, None] - values) <= SAME * size).sum(axis=0)
        common = values[alike == alike.max()].max()
        others = np.abs(values - common) > SAME * size
        if others.any() and common <= SAME * size:
            raise TacitError(
                "Ω leaves some of its tasks without a pull of their own (its most frequent "
                "eigenvalue is zero), which no billboard sum can stand for: add a multiple of I"
            )
        own[members] = max(common, 0.0)
        for index in np.flatnonzero(others):
            column = np.zeros(len(omega))
            column[members] = basis[:, index]
            vectors.append(column)
            strengths.append((common - values[index]) / common)
    if len(vectors) > len(omega) / 2:
        raise TacitError(
            f"this Ω needs {len(vectors)} sums for {len(omega)} tasks, so each would hide a task "
            "among fewer than two: give clusters, or an Ω with few distinct eigenvalues"
        )
    if not vectors:
        raise TacitError("this Ω relates no two tasks: use method 'local'")
    text = f"a given Ω of {len(vectors)} sums"
    return _relation(np.stack(vectors, axis=1), np.array(strengths), own, text)


def _components(linked: np.ndarray) -> tuple[int, np.ndarray]:
    """How many parts a graph falls apart into, and the part of each task."""
    part, count = np.full(len(linked), -1), 0
    for first in range(len(linked)):
        reached = np.array([first]) if part[first] < 0 else np.zeros(0, dtype=np.int64)
        count += len(reached)
        while len(reached):
            part[reached] = count - 1
            reached = np.flatnonzero(linked[reached].any(axis=0) & (part < 0))
    return count, part


def parts(place: Tensor, sums: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A task's row of `places`: its fit, its target, its own strength, and its rest."""
    return place[:sums], place[sums : 2 * sums], place[2 * sums], place[2 * sums + 1]


def _relation(basis: np.ndarray, strengths: np.ndarray, own: np.ndarray, name: str) -> Relation:
    """From orthonormal columns Q: the sums are S = QᵀW, task k's target is (Q diag(strengths) S)_k.

    Column r is divided by its largest entry before a contribution is spread over the sums (and all
    by the longest row, if any is longer than one): then each sum gets as little noise as it can.
    """
    peak = np.abs(basis).max(axis=0)
    peak = peak * np.linalg.norm(basis / peak, axis=1).max()
    start = basis.sum(axis=0)
    rest = 1 - basis @ start
    places = np.column_stack([basis, basis * strengths, own, rest])
    made = [torch.from_numpy(a).float() for a in (basis / peak, places, peak * len(basis), start)]
    return Relation(made[0], made[1], made[2], made[3], name)
