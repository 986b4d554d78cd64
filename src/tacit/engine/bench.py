"""Recipes tried on a chunk of tasks at once, each task on its own rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.data.federation import Rows
from tacit.engine import evaluate
from tacit.engine.tasks import Tasks
from tacit.local.batches import Batches, all_rows, draw
from tacit.local.chunks import Chunk, chunks, widths_of
from tacit.local.dropout import own_chance
from tacit.local.losses import ROW_LOSSES
from tacit.local.objectives import OBJECTIVES, Anchor, squared_slope
from tacit.local.recipes import ALONE, Candidate, Recipe
from tacit.local.stack import folds
from tacit.local.together import Together
from tacit.methods import TrainedMethod
from tacit.randomness import scramble

Models = tuple[Tensor, Tensor]
"""Parameters [k, d] and buffers [k, b]."""

Mixture = dict[Candidate, float]
"""What a task ends with: candidates and their weights, which add up to one, the heaviest first."""

FOLDS = 3
"""Parts of a task's rows that take turns to judge."""
BLOCK = 5
"""Local steps between two draws of batches; stops are counted in such blocks."""
LONGEST = 16
"""Fine-tuning takes at most so many blocks; training alone may always take as many."""
STOPS = 8
"""Moments at which training alone is judged."""
PATIENCE = 2
"""A task gives a recipe up after so many looks without a lower loss."""
FISHER_ROWS = 32
Memo = dict[Any, Any]
"""Training alone is the same whatever the billboard says: runs on the same rows with the same model
and local settings can share it."""


class Bench:
    """Trains, judges and trains again; keeps nothing of a task between calls."""

    def __init__(
        self,
        trained: Tasks,
        recipes: list[Recipe],
        memo: Memo | None = None,
        rows: Rows | None = None,
    ) -> None:
        """`rows` of all tasks are learned from, by default those for training and validation."""
        self.tasks, self.recipes = trained, recipes
        assert isinstance(trained.method, TrainedMethod)  # methods that settle never come here
        self.method = trained.method
        self._memo: Memo = {} if memo is None else memo
        self._train, self._validation = trained.federation.train, trained.federation.validation
        self.rows = self._train.joined(self._validation) if rows is None else rows
        self.fold = folds(self.rows.offsets, self.keys(0), FOLDS)
        model = trained.model
        self._steps: dict[str, Together] = {
            name: model.traced.setdefault(("step", name), Together(self._step(name)))
            for name in {recipe.objective for recipe in recipes}
        }
        fisher = Together(lambda _, own: squared_slope(model, *own))
        self._fisher: Together = model.traced.setdefault("fisher", fisher)

    def spans(self, tasks: Tensor) -> list[Chunk]:
        """These tasks in chunks: what one gets does not depend on the others in it."""
        batch, trained = self.method.batch, self.tasks
        widths = widths_of(self.rows.count(tasks)) if batch is None else batch
        ragged, every = batch is None, float(len(trained.federation))

        def slots(width: int) -> int:  # an anchor and a model for each
            return trained.slots(width, ragged=ragged, models=2, expected=every)

        return list(chunks(tasks, widths, slots))

    def keys(self, number: int) -> Tensor:
        """Each task's own key for one purpose of this step."""
        randomness = self.tasks.randomness
        return scramble(randomness.key("personalise", number), self.tasks.federation.keys)

    def stops(self, recipe: Recipe) -> list[int]:
        """After how many blocks a recipe is judged."""
        if recipe != ALONE:
            return [0, *(2**k for k in range(LONGEST.bit_length()))]
        steps = self.tasks.course.length * self.method.local_steps
        total = max(LONGEST, math.ceil(steps / BLOCK))
        return sorted({max(1, round(total * 2.0 ** (k + 1 - STOPS))) for k in range(STOPS)})

    def cross_validated(
        self, span: Chunk, recipes: Iterable[Recipe], *, said: bool = False
    ) -> Tried:
        """Candidates on all rows of these tasks; each row is judged by models trained without it.

        With `said` also what they say of these rows.
        """
        recipes, some = list(recipes), span.filled
        rows = evaluate.select(self.rows, some)
        fold = self.fold[evaluate.rows_of(self.rows, some)[0]]
        candidates = [Candidate(r, stop) for r in recipes for stop in self.stops(r)]
        losses = rows.x.new_full((len(candidates), len(rows.y)), math.inf)
        outputs: Tensor | None = None
        for number in range(FOLDS):
            kept = self.rows.where(self.fold != number)
            held = fold == number
            judge = rows.where(held)
            for recipe in recipes:
                found = self._judge(span, recipe, kept, judge, said=said)
                for candidate, loss, out in self._remember((recipe, number, said, span), found):
                    at = candidates.index(candidate)
                    losses[at, held] = loss
                    if out is not None:
                        blank: Tensor = out.new_zeros(1).expand(*losses.shape, *out.shape[1:])
                        outputs = blank.clone() if outputs is None else outputs
                        outputs[at, held] = out
        return Tried(candidates, losses, rows, outputs).of(len(span.tasks))

    def validate(self, span: Chunk, recipes: Iterable[Recipe]) -> Tried:
        """Recipes on validation rows alone, which no model of the run has seen."""
        rows = evaluate.select(self._validation, span.filled)
        found = [one for r in recipes for one in self._judge(span, r, self._train, rows)]
        candidates, losses, _ = zip(*found, strict=True)
        return Tried(list(candidates), torch.stack(losses), rows).of(len(span.tasks))

    def nothing_of_its_own(self, span: Chunk) -> Tensor:
        """Whether the method left a task nothing but the billboard (always, with FedAvg)."""
        some = span.filled
        own, public = self.tasks.personal(some), self.tasks.newcomer(some)
        return (own[0] == public[0]).all(dim=1) & (own[1] == public[1]).all(dim=1)

    def refit(self, span: Chunk, wanted: set[Candidate]) -> dict[Candidate, Models]:
        """These candidates trained on all rows of these tasks."""
        made: dict[Candidate, Models] = {}
        for recipe in sorted({candidate.recipe for candidate in wanted}):
            stops = sorted(c.stop for c in wanted if c.recipe == recipe)
            path = self._path(recipe, span, self.rows, stops)
            for stop, models in self._remember((recipe, tuple(stops), span), path):
                made[Candidate(recipe, stop)] = models
        return made

    def _remember(self, what: tuple, found: Iterator[Any]) -> Iterable[Any]:
        """Training alone that was done before is not done again (`found` is lazy)."""
        recipe, *rest, span = what
        if recipe != ALONE:
            return found
        method, rounds = self.method, self.tasks.course.length
        settings = (method.lr, method.batch, method.local_steps, method.halve_every, rounds)
        key = (*settings, self.tasks.randomness.run_key, int(span.tasks[0]), *rest)
        if key not in self._memo:
            self._memo[key] = list(found)
        return self._memo[key]

    def _judge(
        self, span: Chunk, recipe: Recipe, train: Rows, judge: Rows, *, said: bool = False
    ) -> Iterator[tuple[Candidate, Tensor, Tensor | None]]:
        """The recipe at each stop, with its losses on the rows to judge by."""
        lowest = waited = torch.zeros(0)
        for stop, models in self._path(recipe, span, train, self.stops(recipe)):
            loss, out = self._row_losses(models, judge, said=said)
            mean = _means(loss, judge)
            if stop == self.stops(recipe)[0]:
                lowest, waited = mean, torch.zeros_like(mean)
            else:
                # A task's patience is its own: who is in its chunk must not matter.
                over = waited >= PATIENCE
                loss = torch.where(over.repeat_interleave(judge.counts), math.inf, loss)
                better = (mean < lowest) & ~over
                waited = torch.where(better, 0, waited + 1)
                lowest = torch.where(better, mean, lowest)
            yield Candidate(recipe, stop), loss, out
            if bool((waited >= PATIENCE).all()):
                break

    def _path(
        self, recipe: Recipe, span: Chunk, rows: Rows, stops: list[int]
    ) -> Iterator[tuple[int, Models]]:
        """The models of this recipe at each of the stops."""
        method, some = self.method, span.filled
        w, buffers = self._start(recipe, span, rows)
        anchor = Anchor(w, buffers, w[:, :0])
        if recipe.objective == "ewc":
            few = draw(rows, some, 1, FISHER_ROWS, self.keys(0)[some])
            anchor = anchor._replace(fisher=self._diagonal(w, buffers, few))
        done = 0
        for stop in stops:
            for number in range(done, stop):
                keys = self.keys(number + 1)[some]
                if method.batch is None:
                    batches = all_rows(rows, some, span.width, BLOCK)
                else:
                    batches = draw(rows, some, BLOCK, method.batch, keys)
                rate = method.lr
                if recipe == ALONE and method.halve_every is not None:
                    rate *= 0.5 ** (number * BLOCK // method.local_steps // method.halve_every)
                shared = tuple(w.new_tensor(value) for value in (recipe.strength, rate))
                for k in range(BLOCK):
                    step = tuple(side[:, k] for side in batches)
                    own = (anchor, w, buffers, step, scramble(keys, k))
                    w, buffers = self._steps[recipe.objective](shared, own)
            done = stop
            yield stop, (w, buffers)

    def _start(self, recipe: Recipe, span: Chunk, rows: Rows) -> Models:
        model, tasks = self.tasks.model, span.filled
        many = (len(tasks), -1)

        def billboard() -> Models:
            """Where it holds several models, the one that these rows are best served by."""
            if not self.method.joins:
                return self.tasks.newcomer(tasks)
            return self.tasks.joined(tasks, all_rows(rows, tasks, span.width))

        found = {
            "alone": lambda: (model.start.expand(many), model.buffers.expand(many)),
            "own": lambda: self.tasks.personal(tasks),
            "billboard": billboard,
        }[recipe.start]()
        return found[0].contiguous(), found[1].contiguous()

    def _step(self, objective: str):
        """One local step of one task: short, so that tracing it takes little."""
        model, slope_of = self.tasks.model, OBJECTIVES[objective]

        def step(shared: tuple[Tensor, Tensor], own: Any) -> tuple[Tensor, Tensor]:
            anchor, w, buffers, rows, key = own
            with own_chance(key):
                slope, buffers = slope_of(model, anchor, shared, w, buffers, rows)
            return w - shared[1] * slope, buffers

        return step

    def _diagonal(self, w: Tensor, buffers: Tensor, few: Batches) -> Tensor:
        """The diagonal Fisher, row after row to save memory."""
        total = torch.zeros_like(w)
        for k in range(few.x.shape[2]):
            row = tuple(side[:, 0, k : k + 1] for side in few)
            total += self._fisher((), (w, buffers, row))
        return total

    def _row_losses(
        self, models: Models, rows: Rows, *, said: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Of each task's model on its own rows; `rows` holds these tasks and no others."""
        trained = self.tasks
        if not len(rows.y):
            return rows.x.new_zeros(0), None
        every = torch.arange(len(rows.counts), device=trained.device)
        given = (trained.model, evaluate.rows_from(models), rows, every, trained.seen_at_once)
        if not said:  # outputs of all rows at once may be many, of images for one
            return evaluate.losses(*given), None
        out = evaluate.outputs(*given)
        return ROW_LOSSES[trained.federation.kind](out, rows.y), out


@dataclass(frozen=True)
class Tried:
    """What some tasks tried: candidates, and what each of them lost on each row."""

    candidates: list[Candidate]
    losses: Tensor
    """[candidates, rows]."""
    rows: Rows
    outputs: Tensor | None = None
    """[candidates, rows, …] where they were asked for."""

    def of(self, many: int) -> Tried:
        """The first tasks only."""
        rows = evaluate.select(self.rows, torch.arange(many, device=self.rows.offsets.device))
        end = len(rows.y)
        outputs = None if self.outputs is None else self.outputs[:, :end]
        return Tried(self.candidates, self.losses[:, :end], rows, outputs)

    def averaged(self, weights: Tensor, values: Tensor) -> Tensor:
        """Of `values` [candidates, rows, …] the mean by each task's own weights [candidates, k]."""
        rank = torch.repeat_interleave(self.rows.counts)
        total = torch.zeros_like(values[0])
        for each, value in zip(weights.to(values.dtype), values, strict=True):
            share = each[rank].reshape(-1, *(1,) * (value.ndim - 1))
            total += torch.where(share > 0, share * value, 0.0)  # others may be infinite
        return total

    def mixtures(self, weights: Tensor) -> list[Mixture]:
        """The same weights, task by task."""
        found = []
        for each in weights.T.tolist():
            order = sorted(range(len(each)), key=lambda k, each=each: -each[k])
            found.append({self.candidates[k]: each[k] for k in order if each[k] > 0})
        return found


def average(wanted: list[Mixture], made: dict[Candidate, Models]) -> Models:
    """Task i's models, averaged by its own weights."""
    w, buffers = (torch.zeros_like(side[: len(wanted)]) for side in next(iter(made.values())))
    for candidate, models in made.items():
        mine = [i for i, one in enumerate(wanted) if candidate in one]
        share = w.new_tensor([wanted[i][candidate] for i in mine]).unsqueeze(1)
        w[mine] += share * models[0][mine]
        buffers[mine] += share * models[1][mine]
    return w, buffers


def _means(losses: Tensor, rows: Rows) -> Tensor:
    """Mean of each task's rows; not finite counts as worst."""
    total = torch.segment_reduce(losses, "sum", offsets=rows.offsets)
    return torch.nan_to_num(total / rows.counts.clamp(min=1), nan=math.inf)
