"""Linear models of all tasks at once: rows lie flat, everything is computed without a loop.

The part of the objective that comes from the data is

    f(W) = 1/n̄ Σ_rows loss(x·w_task, y),   n̄ = rows / tasks,

with `½(x·w − y)²` or the logistic loss of y in {0, 1}. Every row weighs the same, so a task with
more rows weighs more; and because of n̄ a strength means the same for ten rows per task and for a
thousand. `W` is [tasks, features]: one model per row, the intercept in its last column.

Rows are cut into pieces of at most n̄ rows of one task, the last piece of a task filled up with
zeros. There are at most twice as many pieces as tasks, so one batched product does the work of all
tasks with less than twice the rows plus one per task, however unequal the tasks are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from tacit.data.federation import Rows
from tacit.errors import TacitError

Loss = Literal["squared", "logistic"]
LOSSES: dict[str, Loss] = {"regression": "squared", "binary": "logistic"}
SURE = 1e-12
"""A task whose rows are all of one class has its best intercept at infinity: we stop here."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Task k owns rows `offsets[k]:offsets[k + 1]` of `x` (float64, constant column last) and `y`.

    The intercept is never penalised. To pull intercepts together as well, take `intercept=False`
    and give a feature that is constant.
    """

    x: Tensor
    y: Tensor
    offsets: Tensor
    loss: Loss
    """"squared" for numbers, "logistic" for yes and no."""
    intercept: bool = True

    @staticmethod
    def of(rows: Rows, kind: Literal["regression", "binary"], intercept: bool = True) -> Problem:
        if kind not in LOSSES:
            raise TacitError(f"kind is {kind!r}: linear solvers know 'regression' and 'binary'")
        if rows.x.ndim != 2 or rows.y.ndim != 1:
            given = f"x {tuple(rows.x.shape)} and y {tuple(rows.y.shape)}"
            raise TacitError(f"linear solvers need x [rows, features] and y [rows], not {given}")
        x, y = rows.x.double(), rows.y.double()
        if not (x.isfinite().all() and y.isfinite().all()):
            raise TacitError("some rows hold a number that is not finite: fill or drop them first")
        if kind == "binary" and not ((y == 0) | (y == 1)).all():
            raise TacitError("a binary target must be 0 or 1 in every row")
        if intercept:
            x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        return Problem(x, y, rows.offsets, LOSSES[kind], intercept)

    # --- sizes ---

    @property
    def tasks(self) -> int:
        return len(self.offsets) - 1

    @property
    def penalised(self) -> int:
        """How many columns of W, the first ones, a penalty sees: all but the intercept."""
        return self.x.shape[1] - self.intercept

    @property
    def counts(self) -> Tensor:
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def mean_count(self) -> float:
        """Rows per task on average (n̄)."""
        return len(self.y) / self.tasks

    @cached_property
    def owner(self) -> Tensor:
        """The task of each row."""
        return torch.arange(self.tasks, device=self.x.device).repeat_interleave(self.counts)

    def means(self, values: Tensor) -> Tensor:
        """Mean over the rows of each task; zero for a task without rows."""
        sums = values.new_zeros(self.tasks, *values.shape[1:]).index_add_(0, self.owner, values)
        return sums / self.counts.clamp_min(1).reshape(-1, *[1] * (values.ndim - 1))

    # --- rows in pieces ---

    @cached_property
    def _pieces(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows in pieces [pieces, size, features], the task of each, and each row's place."""
        size = max(1, -(-len(self.y) // self.tasks))
        each = (self.counts + size - 1) // size
        first = each.cumsum(0) - each
        within = torch.arange(len(self.y), device=self.x.device) - self.offsets[self.owner]
        place = first[self.owner] * size + within
        owner = torch.arange(self.tasks, device=self.x.device).repeat_interleave(each)
        x = self.x.new_zeros(len(owner) * size, self.x.shape[1]).index_copy_(0, place, self.x)
        return x.unflatten(0, (len(owner), size)), owner, place

    def scores(self, w: Tensor) -> Tensor:
        """x·w of every row [rows], each with the model of its task."""
        x, owner, place = self._pieces
        return torch.bmm(w[owner].unsqueeze(1), x.mT).flatten()[place]

    def _sums(self, rows: Tensor) -> Tensor:
        """1/n̄ Σ (value of the row)·x over the rows of each task."""
        x, owner, place = self._pieces
        laid = rows.new_zeros(x.shape[:2])
        laid.view(-1)[place] = rows
        sums = torch.bmm(laid.unsqueeze(1), x).squeeze(1)
        return w_zeros(self).index_add_(0, owner, sums) / self.mean_count

    # --- the objective ---

    def row_losses(self, w: Tensor) -> Tensor:
        scores = self.scores(w)
        if self.loss == "squared":
            return 0.5 * (scores - self.y).square()
        return binary_cross_entropy_with_logits(scores, self.y, reduction="none")

    def value(self, w: Tensor) -> Tensor:
        return self.row_losses(w).sum() / self.mean_count

    def gradient(self, w: Tensor) -> Tensor:
        if self.loss == "logistic":
            return self._sums(self.scores(w).sigmoid() - self.y)
        if self.gram is None:
            return self._sums(self.scores(w) - self.y)
        moment = self._moment.unsqueeze(1)  # row times matrix takes half the time of the reverse
        return torch.baddbmm(moment, w.unsqueeze(1), self.gram, beta=-1).squeeze(1)

    def hessian(self, w: Tensor) -> Tensor:
        """Second derivatives [tasks, features, features]; tasks do not mix in f."""
        if self.loss == "squared":
            return self._squares(None)
        chance = self.scores(w).sigmoid()
        return self._squares((chance * (1 - chance)).clamp_min(SURE))

    def _squares(self, weights: Tensor | None) -> Tensor:
        """1/n̄ Σ (weight of the row)·xxᵀ over the rows of each task."""
        x, owner, place = self._pieces
        weighted = x
        if weights is not None:
            laid = weights.new_zeros(x.shape[:2])
            laid.view(-1)[place] = weights
            weighted = x * laid.unsqueeze(2)
        squares = torch.bmm(weighted.mT, x)
        sums = x.new_zeros(self.tasks, *squares.shape[1:]).index_add_(0, owner, squares)
        return sums.div_(self.mean_count)

    @cached_property
    def gram(self) -> Tensor | None:
        """XᵀX/n̄ of each task where it takes fewer steps than the rows do, else None."""
        if self.x.shape[1] > 2 * self.mean_count:
            return None
        return self._squares(None)

    @cached_property
    def _moment(self) -> Tensor:
        return self._sums(self.y)

    @property
    def bend(self) -> float:
        """The largest second derivative of the loss of a row."""
        return 1.0 if self.loss == "squared" else 0.25

    @cached_property
    def lipschitz(self) -> Tensor:
        """For each task how fast its gradient changes at most, intercept left out [tasks].

        Without Gram matrices by power iteration from a random start, a fifth added: after k steps
        it falls short by at most 0.87 ln(d)/(k−1) on average (Kuczyński and
        Woźniakowski, SIAM J. Matrix Anal. Appl. 13, 1992).
        """
        p = self.penalised
        if self.gram is not None:
            return self.bend * _largest(self.gram[:, :p, :p])
        v = w_zeros(self)
        v[:, :p] = torch.randn(v[:, :p].shape, generator=torch.Generator().manual_seed(0))
        for _ in range(30):
            v = torch.nn.functional.normalize(v, dim=1)
            v = self._sums(self.scores(v))
            v[:, p:] = 0.0
        return 1.2 * self.bend * v.norm(dim=1)

    @property
    def steepest(self) -> Tensor:
        """The largest of `lipschitz`; where there are Gram matrices, few need an eigenvalue."""
        if self.gram is None:
            return self.lipschitz.max()
        gram = self.gram[:, : self.penalised, : self.penalised]
        length = gram.norm(dim=(1, 2))  # no eigenvalue is larger, but for rounding
        one = _largest(gram[length.argmax()])
        return self.bend * _largest(gram[length >= 0.99 * one]).max()

    # --- the fit without features, and rows seen from their task's mean ---

    def null(self) -> Tensor:
        """The best models that use no feature: intercepts only (zero without intercept)."""
        w = w_zeros(self)
        if self.intercept:
            mean = self.means(self.y)
            w[:, -1] = mean if self.loss == "squared" else mean.clamp(SURE, 1 - SURE).logit()
        return w

    @cached_property
    def scale(self) -> float:
        """Length of the gradient at `null`: residuals are relative to it, in any unit of y.

        Where the features of no task say anything it would be all rounding, hence the floor.
        """
        floor = 1e-4 * self.gradient(w_zeros(self)).norm()
        return max(float(self.gradient(self.null()).norm()), float(floor), 1e-300)

    @cached_property
    def varying(self) -> Tensor:
        """The features [indices] that differ between rows of at least one task."""
        first = self.x.index_select(0, self.offsets[self.owner])
        differs = (self.x != first).view(torch.uint8)  # `any` of booleans is slower
        return differs.amax(dim=0).nonzero().flatten()

    @cached_property
    def centres(self) -> Tensor:
        """The mean of the varying features of each task."""
        return self.means(self.x)[:, self.varying]

    def centred(self) -> Problem:
        """The same problem with each task's features centred; the same weights, other intercepts.

        Features and intercept then do not mix, which solvers need to be fast, and which costs
        nothing because the intercept is not penalised. Features that describe the task are the
        same in all its rows; beside an intercept they deserve no weight, and are left out. For
        squared loss the intercept is the mean target and leaves as well.
        """
        if not self.intercept:
            return self
        x = self.x.gather(1, self.varying.expand(len(self.x), -1))
        x -= self.centres.index_select(0, self.owner)
        if self.loss == "squared":
            return replace(self, x=x, y=self.y - self.means(self.y)[self.owner], intercept=False)
        return replace(self, x=torch.cat([x, self.x[:, -1:]], dim=1))

    def recentred(self, w: Tensor) -> Tensor:
        """Models of this problem as models of `centred`."""
        if not self.intercept:
            return w.clone()
        weights = w[:, self.varying]
        if self.loss == "squared":
            return weights
        intercepts = w[:, -1] + (self.centres * weights).sum(dim=1)
        return torch.cat([weights, intercepts.unsqueeze(1)], dim=1)

    def restored(self, w: Tensor) -> Tensor:
        """Models of `centred` as models of this problem: the way back."""
        if not self.intercept:
            return w.clone()
        weights, full = w[:, : len(self.varying)], w_zeros(self)
        intercepts = self.means(self.y) if self.loss == "squared" else w[:, -1]
        full[:, self.varying] = weights
        full[:, -1] = intercepts - (self.centres * weights).sum(dim=1)
        return full

    # --- other problems, predictions ---

    def subset(self, keep: Tensor) -> Problem:
        """Some of the rows; every task stays, perhaps without any."""
        rows = Rows(self.x, self.y, self.offsets).where(keep)
        return replace(self, x=rows.x, y=rows.y, offsets=rows.offsets)

    def pooled(self) -> Problem:
        """All rows as one task."""
        return replace(self, offsets=self.offsets[[0, -1]])

    def predict(self, w: Tensor) -> Tensor:
        """What the models say for the rows of this problem: values, or chances of class 1."""
        scores = self.scores(w)
        return scores if self.loss == "squared" else scores.sigmoid()


def w_zeros(problem: Problem) -> Tensor:
    """Models that are zero everywhere [tasks, features]."""
    return problem.x.new_zeros(problem.tasks, problem.x.shape[1])


def _largest(gram: Tensor) -> Tensor:
    """The largest eigenvalue of each matrix."""
    return torch.linalg.eigvalsh(gram)[..., -1].clamp_min(0)
