"""A private prior for linear models: what to use instead of iterating a noisy shrinkage operator.

Our own, in the place of MP-MTL (Jian Liang, Ziqi Liu, Jiayu Zhou, Xiaoqian Jiang, Changshui Zhang,
Fei Wang. "Model-Protected Multi-Task Learning." IEEE TPAMI, 2020). Their iteration pays for a fresh
covariance in every round. Here the covariance (and the mean) of the tasks' models is released once
or a few times, and is then a prior: each task solves its own regression under it, exactly, and
decides on its own rows how much to believe of it. That last step costs no privacy.

    each round   contribute w − μ, clipped (w: the task's model around the present mean μ), and the
                 prior strength that the task would use by itself
    publish      μ, the strength, and candidates for the shape of the prior, R with RRᵀ = C
    settle       w averaged over all candidates and strengths, each weighted by its evidence on the
                 task's own rows; training alone (μ = 0, C = I, any strength) is among them

Candidates for C, from the noisy second moment A of the deviations, scaled to trace one:

| shape  | identity | eigenvalues of A                      | diagonal of A                        |
|--------|----------|---------------------------------------|--------------------------------------|
| near   | 70 %     | the nearest point of the simplex      | the same                             |
| above  | 2 %      | less twice what noise does to them    | (nearest point of the simplex again) |
| sparse | 0.2 %    | only what rises out of noise and bulk | the same                             |
| none   | 100 %    |                                       |                                      |

The eigenvalues serve low-rank structure, the diagonal serves features that matter to nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.data.federation import Kind
from tacit.local.batches import Batches
from tacit.local.bayes import average, bell, design, grid, posterior
from tacit.local.flat import FlatModel
from tacit.methods.base import Board, State
from tacit.methods.linear import CENTRE, REACH, LinearMethod, alone
from tacit.privacy.covariance import unflatten
from tacit.privacy.moments import Moments

Rows = tuple[Tensor, Tensor, Tensor]
STRENGTH_SHARE = 0.1
"""Part of a release that pays for the strength, wherever a covariance is released."""
SPREAD = 0.35
"""How far a task's strength may be from the published one, in powers of ten."""
LOOSE = 2
"""Which of its strengths a task uses for a contribution to the mean: one that shrinks little,
because what is shrunk is missing from the mean."""
AROUND_MEAN = (-0.5, 0.5)
"""Strength and spread around a mean without a covariance: tasks differ by less than the noise."""
LIKELY = (3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Logarithm of how likely each of the shapes is beforehand, in the order of `roots_of`. A little of
a noisy subspace rarely hurts; the others must be seen in a task's rows to be believed."""
POINTS = 5


@dataclass(frozen=True, kw_only=True)
class SharedPrior(LinearMethod):
    """Linear models under a private prior: mean and covariance of all tasks' models."""

    known_as = "prior"

    mean: float = 0.5
    """Share of each release for the mean; 0 for the covariance alone, 1 for the mean alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("mean", 0 <= self.mean <= 1, "between 0 and 1")

    @property
    def usual_rounds(self) -> int:
        """A covariance is told once; a mean takes a few rounds to settle."""
        return 1 if self.mean == 0 else 3 if self.mean < 1 else 5

    @property
    def moments(self) -> Moments:
        if self.mean == 1:
            return Moments(covariance=0.0, mean=1.0)
        rest = 1 - STRENGTH_SHARE
        return Moments(
            covariance=rest * (1 - self.mean), mean=rest * self.mean, extra=STRENGTH_SHARE
        )

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        d = self.size(model)
        zero = model.start.new_zeros
        board = {"mean": model.known}
        if self.mean < 1:
            eye = torch.eye(d, dtype=zero(1).dtype, device=model.start.device)
            shapes = len(LIKELY)
            board |= {
                "moment": zero((d, d)),
                "strength": zero(1),
                "variance": zero(1),
                "roots": eye.expand(shapes, d, d).clone(),
            }
        return board

    def state(self, model: FlatModel, board: Board) -> State:
        return {"w": board["mean"], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        # Single precision is plenty for what will be clipped and noised; `settle` has double.
        mean = board["mean"]
        w, strength, each = alone(model.kind, design(batches, len(mean), mean.dtype), mean)
        w = each[LOOSE] if self.mean > 0 else w
        known = [w - mean] if self.mean == 1 else [w - mean, strength.reshape(1)]
        return {"w": w, "buffers": state["buffers"]}, torch.cat(known)

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        d = len(board["mean"])
        shift = mean[:d] if self.mean > 0 else torch.zeros_like(board["mean"])
        after = {"mean": board["mean"] + shift}
        if self.mean == 1:
            return after
        shares = self.moments
        begin = d if self.mean > 0 else 0
        moment = unflatten(mean[begin + 1 :], d) - shift.outer(shift)
        eye = torch.eye(d, dtype=moment.dtype, device=moment.device)
        if self.mean > 0:  # the noise in the shift, squared, is no part of its square
            moment = moment + eye * (self.clip * board.noise) ** 2 / shares.mean
        # All rounds see the same tasks: averaged, they have the noise of one release for all.
        gain = 1 / (board.round + 1.0)
        variance = (1 - gain) ** 2 * board["variance"] + gain**2 * board.noise**2
        after["variance"] = variance
        after["moment"] = board["moment"] + gain * (moment - board["moment"])
        after["strength"] = board["strength"] + gain * (mean[begin] - board["strength"])
        spread = self.clip**2 * torch.sqrt(variance / shares.covariance)
        after["roots"] = roots_of(after["moment"], spread)
        return after

    def settle(self, model: FlatModel, board: Board, state: State, batches: Batches) -> State:
        found = self._found(model.kind, board, design(batches, len(state["w"])))
        w = average(*(torch.cat(part) for part in zip(*found, strict=True)))
        return state | {"w": w.to(state["w"].dtype)}

    def _found(self, kind: Kind, board: Board, rows: Rows) -> list[tuple[Tensor, Tensor]]:
        """Weights [s, d] and evidence [s], by itself and under each candidate for the prior."""
        found = [_alone(kind, rows)]
        mean = board["mean"].double()
        for root, prior, centre, spread in self._candidates(kind, board):
            strengths = grid(centre, spread, POINTS).to(mean.device)
            weights, evidence = posterior(kind, rows, mean, root, strengths)
            found.append((weights, evidence + bell(POINTS).to(mean.device) + prior))
        return found

    def _candidates(
        self, kind: Kind, board: Board
    ) -> list[tuple[Tensor | None, float, Tensor | float, float]]:
        """Shape, how likely it is beforehand, and where to look for its strength."""
        if self.mean == 1:
            return [(None, 0.0, *AROUND_MEAN)]
        # The noisier the published strength, the nearer to where one would look without it.
        noise = board["variance"][0].double() / STRENGTH_SHARE
        told = (board["strength"][0].double() * 0.25 / (0.25 + noise)).clamp(-1.0, 1.0)
        centre = CENTRE[kind] + REACH * told
        roots = board["roots"].double().unbind()
        return [(root, prior, centre, SPREAD) for root, prior in zip(roots, LIKELY, strict=True)]

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["w"]


def _alone(kind: Kind, rows: Rows) -> tuple[Tensor, Tensor]:
    """The candidate that makes no use of the billboard."""
    zero = rows[0].new_zeros(rows[0].shape[1])
    strengths = grid(CENTRE[kind], REACH / 2, POINTS).to(zero.device)
    weights, evidence = posterior(kind, rows, zero, None, strengths)
    return weights, evidence - math.log(POINTS)


def roots_of(moment: Tensor, spread: Tensor) -> Tensor:
    """Candidates R [7, d, d] with tr RRᵀ = d, from a second moment with this noise."""
    d = len(moment)
    moment, spread = moment.double(), spread.double().reshape(())
    size = moment.trace().clamp(min=0.05 * moment.diagonal().abs().sum()).clamp(min=1e-30)
    values, vectors = torch.linalg.eigh(moment / size)
    noise = spread / size
    eye = torch.eye(d, dtype=torch.float64, device=moment.device)
    # Symmetric noise moves eigenvalues by up to about √(d/2) times what it does to a diagonal.
    blur, diagonal = noise * math.sqrt(d / 2), moment.diagonal() / size
    shapes = (
        (0.7, _near(values), vectors),
        (0.02, _scaled((values - 2 * blur).clamp(min=0.0)), vectors),
        (0.002, _sparse(values, blur), vectors),
        (0.7, _near(diagonal), eye),
        (0.02, _near(diagonal), eye),
        (0.002, _sparse(diagonal, noise), eye),
        (1.0, torch.full_like(values, 1 / d), eye),
    )
    scales = [d * (1 - identity) * kept + identity for identity, kept, _ in shapes]
    roots = [basis * scale.sqrt() for scale, (_, _, basis) in zip(scales, shapes, strict=True)]
    return torch.stack(roots).float()


def _near(values: Tensor) -> Tensor:
    """The nearest point of the simplex: none negative, sum one."""
    high = torch.sort(values, descending=True).values
    number = torch.arange(1, len(values) + 1, dtype=values.dtype, device=values.device)
    excess = (high.cumsum(0) - 1) / number
    last = (high > excess).long().cumsum(0).max() - 1
    return (values - excess.gather(0, last.reshape(1))).clamp(min=0.0)


def _sparse(values: Tensor, blur: Tensor) -> Tensor:
    """What is above twice the noise and clearly above the bulk of the values."""
    middle = values.median()
    deviation = 1.4826 * (values - middle).abs().median()
    high = values > torch.maximum(2 * blur, middle + 3 * deviation)
    return _scaled(torch.where(high, values - middle, 0.0))


def _scaled(values: Tensor) -> Tensor:
    """To sum one; all alike where nothing is left."""
    total = values.sum()
    alike = torch.full_like(values, 1 / len(values))
    return torch.where(total > 0, values / total.clamp(min=1e-30), alike)
