"""One task's part in a mixed model y = x'β + z'b + e, b ~ N(0, Σ), with b integrated out.

Written for one task (`torch.func.vmap` lifts it), in double precision, without branches on data.
`design` gives the rows: x [n, d], y [n], and which of them count.

    squared    V = I + ZΣZᵀ in units of σ²; information XᵀV⁻¹X, score XᵀV⁻¹(y − Xβ): exact
    families   the posterior of b by adaptive Gauss–Hermite quadrature around its mode (Pinheiro &
               Bates 1995); the score is E[Xᵀ(y − μ) | y], by Fisher's identity; with more than two
               own effects it is the slope of Laplace's approximation; the information is that of
               the working model with variances 1/μ'(η) at the mode (Breslow & Clayton 1993)

A row of a multiclass outcome has a score for every class: β is [classes · d], class by class, and
each class has own effects, all with the same Σ and independent of each other. Adding a constant to
all classes changes nothing; own effects and scores that begin at zero stay with sum zero.

Own effects are b = Lv with σ²LLᵀ = Σ, v ~ N(0, σ²I). Variances are asked for relative to the
present ones: LLᵀ becomes LTLᵀ/s and σ² becomes sσ². Their moment equations are linear,

    Σₖ Aₖ (T, s) = Σₖ qₖ,     A: Fisher's information,  q = A·(I, 1) + the score of the likelihood

Solved again and again they end at the REML estimate (Goldstein 1986, 1989). Solved once, from
anywhere, they are unbiased already: that is what a release or two can pay for. Row i of A and q may
carry any weight that does not depend on y; `evenly` gives every task the same say about σ².
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tacit.data.federation import Kind
from tacit.families import FAMILIES, Family
from tacit.local.newton import step_lengths
from tacit.local.slopes import grad

NEWTON_STEPS = 10
NODES = {1: 9, 2: 5}
"""Quadrature nodes for each of so many own effects; more of them are left to Laplace."""


class Said(NamedTuple):
    """What a task has to say about the parameters."""

    information: Tensor
    """[d, d] about β."""
    score: Tensor
    """[d] at the present β; its variance is σ² times the information."""
    equations: Tensor
    """[t, t]: A, about the relative variances."""
    moments: Tensor
    """[t]: q."""
    own: Tensor
    """[r]: the expected own effects b."""


def basis(effects: int) -> Tensor:
    """The symmetric matrices [r(r + 1)/2, r, r] that T is a combination of."""
    pairs = [(i, j) for i in range(effects) for j in range(i + 1)]
    found = torch.zeros(len(pairs), effects, effects, dtype=torch.float64)
    for number, (i, j) in enumerate(pairs):
        found[number, i, j] = found[number, j, i] = 1.0
    return found


def level(kind: Kind, rows: tuple[Tensor, Tensor, Tensor], outputs: int) -> Tensor:
    """The scores [outputs] of a task's own mean outcome; none where it is a plain number."""
    _, y, counts = rows
    if kind == "regression":
        return y.new_zeros(0)
    coded = FAMILIES[kind].coded(y, outputs) * counts.unsqueeze(1)
    return FAMILIES[kind].level(coded.sum(0), counts.sum())


class Parameters(NamedTuple):
    """Where a task's rows are looked at from."""

    own: list[int]
    """The columns of z."""
    beta: Tensor
    root: Tensor
    """L."""
    rest: Tensor
    """σ²."""
    correction: Tensor
    """Residuals are smaller than errors by what was learnt of β from the same rows, and larger by
    the noise in β: the covariance [d, d] of the one less that of the other, over σ²."""


def said(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    at: Parameters,
    *,
    evenly: bool = False,
    limit: float = math.inf,
) -> Said:
    """Of one task at these parameters; residuals count as at most `limit` standard deviations."""
    x, (own, beta, root, rest, _) = rows[0], at
    if kind == "regression":
        gram = x.T @ x
        told = variances(rows, gram, at, evenly=evenly, limit=limit)
        effects = own_effects(kind, rows, own, beta, root, rest, limit=limit)
        return Said(information(gram, own, root), score(rows, own, beta, root), *told, effects)
    found = _integrated(_task(kind, rows, own, beta, root), x)
    return found._replace(own=_on_columns(found.own, root))


def own_effects(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    own: list[int],
    beta: Tensor,
    root: Tensor,
    rest: Tensor,
    *,
    limit: float = math.inf,
) -> Tensor:
    """The expected own effects b [r] alone: of what is `said`, all that a task keeps to itself."""
    if kind != "regression":
        task = _task(kind, rows, own, beta, root)
        return _on_columns(_expected(task, *_mode(task)), root)
    x, y, _ = rows
    z = x[:, own] @ root
    error = _limited(y - x @ beta, z, rest, limit)
    return root @ (z.T @ _whitened(error, z))


def _limited(error: Tensor, z: Tensor, rest: Tensor, limit: float) -> Tensor:
    """Residuals of at most so many standard deviations."""
    most = limit * torch.sqrt(rest * (1 + (z * z).sum(1)))
    return torch.maximum(torch.minimum(error, most), -most)


def score(
    rows: tuple[Tensor, Tensor, Tensor], own: list[int], beta: Tensor, root: Tensor
) -> Tensor:
    """XᵀV⁻¹(y − Xβ) [d] alone of what is `said` in a regression: it needs least work."""
    x, y, _ = rows
    return _whitened(y - x @ beta, x[:, own] @ root) @ x


def information(gram: Tensor, own: list[int], root: Tensor) -> Tensor:
    """XᵀV⁻¹X [d, d] alone, likewise, from XᵀX."""
    cross, middle = _crossed(gram, own, root)
    return gram - cross.T @ (middle @ cross)


def _crossed(gram: Tensor, own: list[int], root: Tensor) -> tuple[Tensor, Tensor]:
    """ZᵀX and (I + ZᵀZ)⁻¹."""
    cross = root.T @ gram[own]
    return cross, torch.linalg.inv_ex(torch.eye(len(own)).to(cross) + cross[:, own] @ root)[0]


def _whitened(error: Tensor, z: Tensor) -> Tensor:
    """V⁻¹e."""
    eye = torch.eye(z.shape[1]).to(z)
    return error - z @ (torch.linalg.inv_ex(eye + z.T @ z)[0] @ (z.T @ error))


def variances(
    rows: tuple[Tensor, Tensor, Tensor],
    gram: Tensor,
    at: Parameters,
    *,
    evenly: bool = False,
    limit: float = math.inf,
) -> tuple[Tensor, Tensor]:
    """A [t, t] and q [t] alone of what is `said` in a regression; `gram` is XᵀX."""
    (x, y, counts), (own, beta, root, rest, correction) = rows, at
    z = x[:, own] @ root
    shapes = basis(len(own)).to(z)
    cross, middle = _crossed(gram, own, root)
    across = middle @ cross  # ZᵀV⁻¹X
    white = _whitened(_limited(y - x @ beta, z, rest, limit), z)
    toward = z.T @ white
    about = torch.eye(len(own)).to(z) - middle  # ZᵀV⁻¹Z: how much of v the rows tell
    twice = middle @ about  # ZᵀV⁻²Z
    trace = counts.sum() - 2 * about.trace() + (about @ about).trace()  # of V⁻²
    side = torch.einsum("ab,iba->i", twice, shapes)
    weight = 1 / trace.clamp(min=1e-9) if evenly else torch.ones_like(trace)
    corner = torch.einsum("ab,ibc,cd,jda->ij", about, shapes, about, shapes)
    top = torch.cat([corner, side.unsqueeze(1)], dim=1)
    last = torch.cat([side, trace.reshape(1)]) * weight
    moved = across @ correction
    seen = toward.outer(toward) / rest + moved @ across.T
    # The correction times XᵀV⁻²X = XᵀX − XᵀZ·ZᵀV⁻¹X − XᵀV⁻¹Z·ZᵀV⁻¹X.
    added = (correction * gram).sum() - (moved * (cross + across)).sum()
    squares = white @ white / rest + added
    moments = torch.cat([torch.einsum("ab,iba->i", seen, shapes), (weight * squares).reshape(1)])
    return torch.cat([top, last.unsqueeze(0)]), moments


def _integrated(task: _Task, x: Tensor) -> Said:
    """By Gauss and Hermite where there are one or two own effects, by Laplace otherwise."""
    family, z, counts, outputs = task.family, task.z, task.counts, task.fixed.shape[1]
    shapes = basis(z.shape[1]).to(z)
    mode, curve = _mode(task)
    factor = torch.linalg.cholesky_ex(curve)[0]
    covariance = torch.cholesky_inverse(factor)
    weight = family.weight(task.scores(mode)) * counts.reshape(-1, 1, 1)
    known = between(z, weight, x)
    information = between(x, weight, x) - known.T @ covariance @ known
    # Every output has effects of its own, and all of them the same variance.
    alike = torch.stack([torch.kron(torch.eye(outputs).to(z), shape) for shape in shapes])
    about = torch.eye(len(mode)).to(z) - covariance
    equations = torch.einsum("ab,ibc,cd,jda->ij", about, alike, about, alike)
    present = torch.einsum("ab,ibc,ca->i", about, alike, about)
    if len(mode) in NODES:
        nodes, chances = _posterior(task, mode, factor)
        errors = task.y - torch.einsum("j,jni->ni", chances, family.mean(task.scores(nodes)))
        second = torch.einsum("j,ja,jb->ab", chances, nodes, nodes)
        slopes = torch.einsum("ab,iba->i", second - torch.eye(len(mode)).to(z), alike)
        mode = chances @ nodes
    else:
        errors, slopes = _laplace_slopes(task, mode, curve, shapes)
    score = ((counts.unsqueeze(1) * errors).T @ x).reshape(-1)
    return Said(information, score, equations, present + slopes, mode)


def _expected(task: _Task, mode: Tensor, curve: Tensor) -> Tensor:
    """The own effects v that `_integrated` expects, and nothing else of what it finds."""
    if len(mode) not in NODES:
        return mode
    nodes, chances = _posterior(task, mode, torch.linalg.cholesky_ex(curve)[0])
    return chances @ nodes


def _on_columns(v: Tensor, root: Tensor) -> Tensor:
    """b = Lv [outputs · r], of every output."""
    return (v.reshape(-1, len(root)) @ root.T).reshape(-1)


@dataclass(frozen=True)
class _Task:
    """The rows of one task, and how likely they are with own effects v [outputs · r]."""

    family: Family
    fixed: Tensor
    """[n, outputs]: scores without own effects."""
    z: Tensor
    y: Tensor
    counts: Tensor

    def scores(self, v: Tensor) -> Tensor:
        """[.., outputs · r] → [.., n, outputs]."""
        own = v.unflatten(-1, (self.fixed.shape[1], self.z.shape[1]))
        return self.fixed + self.z @ own.mT

    def value(self, v: Tensor) -> Tensor:
        """Logarithm of likelihood times prior."""
        return self.family.likelihood(self.scores(v), self.y, self.counts) - (v * v).sum(-1) / 2

    def slope(self, v: Tensor) -> Tensor:
        errors = self.counts.unsqueeze(1) * (self.y - self.family.mean(self.scores(v)))
        return (errors.T @ self.z).reshape(-1) - v

    def curve(self, v: Tensor) -> Tensor:
        """Minus the second derivative."""
        weight = self.family.weight(self.scores(v)) * self.counts.reshape(-1, 1, 1)
        return torch.eye(len(v)).to(v) + between(self.z, weight, self.z)


def _task(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    own: list[int],
    beta: Tensor,
    root: Tensor,
) -> _Task:
    x, y, counts = rows
    each = beta.reshape(-1, x.shape[1])
    coded = FAMILIES[kind].coded(y, len(each)) * (counts > 0).unsqueeze(1)
    return _Task(FAMILIES[kind], x @ each.T, x[:, own] @ root, coded, counts)


def between(left: Tensor, weight: Tensor, right: Tensor) -> Tensor:
    """Σ W ⊗ left rightᵀ over the rows, as a matrix [k · left, k · right]."""
    found = torch.einsum("na,nij,nb->iajb", left, weight, right)
    return found.flatten(2).flatten(0, 1)


def _mode(task: _Task) -> tuple[Tensor, Tensor]:
    """The most likely v, and minus the second derivative there."""
    v = task.z.new_zeros(task.fixed.shape[1] * task.z.shape[1])
    for _ in range(NEWTON_STEPS):
        step = torch.linalg.solve_ex(task.curve(v), task.slope(v))[0]
        lengths = step_lengths(task.scores(step) - task.fixed)
        best = task.value(v + lengths.unsqueeze(1) * step).argmax(dim=0, keepdim=True)
        v = v + lengths.gather(0, best) * step
    return v, task.curve(v)


def _posterior(task: _Task, mode: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Values of v [j, ..] and how likely each is, given the rows."""
    effects = len(mode)
    points, weights = np.polynomial.hermite_e.hermegauss(NODES[effects])
    grid = torch.cartesian_prod(*[torch.from_numpy(points)] * effects).reshape(-1, effects)
    chance = torch.cartesian_prod(*[torch.from_numpy(weights)] * effects).reshape(-1, effects)
    grid, chance = grid.to(mode), chance.log().sum(1).to(mode)
    nodes = mode + torch.linalg.solve_triangular(factor.T, grid.T, upper=True).T
    height = task.value(nodes) + (grid * grid).sum(1) / 2
    return nodes, torch.softmax(height + chance, dim=0)


def _laplace_slopes(
    task: _Task, mode: Tensor, curve: Tensor, shapes: Tensor
) -> tuple[Tensor, Tensor]:
    """How Laplace's likelihood rises with the scores [n, outputs], and twice with T in `shapes`."""

    def height(fixed: Tensor, stretched: Tensor) -> Tensor:
        z = task.z + task.z @ torch.einsum("i,iab->ab", stretched, shapes) / 2
        moved = replace(task, fixed=fixed, z=z)
        # The mode moves along; a Newton step from where it was has the right derivative.
        v = mode + torch.linalg.solve_ex(curve, moved.slope(mode))[0]
        factor = torch.linalg.cholesky_ex(moved.curve(v))[0]
        return moved.value(v) - factor.diagonal().log().sum()

    rises, stretches = grad(height, argnums=(0, 1))(task.fixed, mode.new_zeros(len(shapes)))
    return rises, 2 * stretches
