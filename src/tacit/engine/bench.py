"""Recipes tried on a chunk of tasks at once, each task on its own rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from tacit.data.federation import Rows
from tacit.engine import evaluate
from tacit.engine.tasks import Tasks
from tacit.local.batches import Batches, all_rows, draw
from tacit.local.chunks import Chunk, chunks, widths_of
from tacit.local.dropout import own_chance
from tacit.local.objectives import OBJECTIVES, Anchor, squared_slope
from tacit.local.recipes import ALONE, Candidate, Recipe
from tacit.local.together import Together
from tacit.methods import TrainedMethod
from tacit.randomness import scramble

Models = tuple[Tensor, Tensor]
"""Parameters [k, d] and buffers [k, b]."""

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

    def __init__(self, trained: Tasks, recipes: list[Recipe], memo: Memo | None = None) -> None:
        self.tasks, self.recipes = trained, recipes
        assert isinstance(trained.method, TrainedMethod)  # methods that settle never come here
        self.method = trained.method
        self._memo: Memo = {} if memo is None else memo
        self._train, self._validation = (
            trained.federation.train,
            trained.federation.validation,
        )
        self.judged = len(self._validation.y) > 0
        self._both = self._train.joined(self._validation) if self.judged else self._train
        self._fold = _folds(self._both, self.keys(0))
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
        widths = widths_of(self._both.count(tasks)) if batch is None else batch
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
        self, span: Chunk, recipes: Iterable[Recipe]
    ) -> tuple[list[Candidate], Tensor, Rows]:
        """Candidates, their losses [candidates, rows], and the rows: all of these tasks' own.

        Every row is judged by models that were trained without it.
        """
        recipes = list(recipes)
        rows = evaluate.select(self._both, span.filled)
        fold = evaluate.select(Rows(self._fold, self._fold, self._both.offsets), span.filled).x
        candidates = [Candidate(r, stop) for r in recipes for stop in self.stops(r)]
        losses = rows.x.new_full((len(candidates), len(rows.y)), math.inf)
        for number in range(FOLDS):
            kept = self._both.where(self._fold != number)
            held = fold == number
            judge = rows.where(held)
            for recipe in recipes:
                found = self._judge(span, recipe, kept, judge)
                for candidate, loss in self._remember((recipe, number, span), found):
                    losses[candidates.index(candidate), held] = loss
        return candidates, losses, rows

    def validate(
        self, span: Chunk, recipes: Iterable[Recipe], rivals: Iterable[Candidate]
    ) -> tuple[list[Candidate], Tensor, Rows]:
        """Recipes and their rivals on validation rows alone, which no model of the run has seen."""
        rows = evaluate.select(self._validation, span.filled)
        found = [pair for r in recipes for pair in self._judge(span, r, self._train, rows)]
        for candidate, models in self._train_wanted(span, set(rivals), self._train):
            found.append((candidate, self._row_losses(models, rows)))
        return [candidate for candidate, _ in found], torch.stack([loss for _, loss in found]), rows

    def nothing_of_its_own(self, span: Chunk) -> Tensor:
        """Whether the method left a task nothing but the billboard (always, with FedAvg)."""
        some = span.filled
        own, public = self.tasks.personal(some), self.tasks.newcomer(some)
        return (own[0] == public[0]).all(dim=1) & (own[1] == public[1]).all(dim=1)

    def refit(self, span: Chunk, wanted: set[Candidate]) -> dict[Candidate, Models]:
        """These candidates trained on all rows of these tasks."""
        return dict(self._train_wanted(span, wanted, self._both))

    def _train_wanted(
        self, span: Chunk, wanted: set[Candidate], rows: Rows
    ) -> Iterator[tuple[Candidate, Models]]:
        for recipe in sorted({candidate.recipe for candidate in wanted}):
            stops = sorted(c.stop for c in wanted if c.recipe == recipe)
            path = self._path(recipe, span, rows, stops)
            what = (recipe, rows is self._both, tuple(stops), span)
            for stop, models in self._remember(what, path):
                yield Candidate(recipe, stop), models

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
        self, span: Chunk, recipe: Recipe, train: Rows, judge: Rows
    ) -> Iterator[tuple[Candidate, Tensor]]:
        """The recipe at each stop, with its losses on the rows to judge by."""
        lowest = waited = torch.zeros(0)
        for stop, models in self._path(recipe, span, train, self.stops(recipe)):
            loss = self._row_losses(models, judge)
            mean = _means(loss, judge)
            if stop == self.stops(recipe)[0]:
                lowest, waited = mean, torch.zeros_like(mean)
            else:
                # A task's patience is its own: who is in its chunk must not matter.
                out = waited >= PATIENCE
                loss = torch.where(out.repeat_interleave(judge.counts), math.inf, loss)
                better = (mean < lowest) & ~out
                waited = torch.where(better, 0, waited + 1)
                lowest = torch.where(better, mean, lowest)
            yield Candidate(recipe, stop), loss
            if bool((waited >= PATIENCE).all()):
                break

    def _path(
        self, recipe: Recipe, span: Chunk, rows: Rows, stops: list[int]
    ) -> Iterator[tuple[int, Models]]:
        """The models of this recipe at each of the stops."""
        method, some = self.method, span.filled
        w, buffers = self._start(recipe, some)
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

    def _start(self, recipe: Recipe, tasks: Tensor) -> Models:
        model, many = self.tasks.model, (len(tasks), -1)
        found = {
            "alone": lambda: (model.start.expand(many), model.buffers.expand(many)),
            "own": lambda: self.tasks.personal(tasks),
            "billboard": lambda: self.tasks.newcomer(tasks),
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

    def _row_losses(self, models: Models, rows: Rows) -> Tensor:
        """Of each task's model on its own rows; `rows` holds these tasks and no others."""
        trained = self.tasks
        if not len(rows.y):
            return rows.x.new_zeros(0)
        every = torch.arange(len(rows.offsets) - 1, device=trained.device)
        return evaluate.losses(
            trained.model,
            lambda k: (models[0][k], models[1][k]),
            rows,
            every,
            trained.seen_at_once,
        )


def gather(wanted: list[Candidate], made: dict[Candidate, Models]) -> Models:
    """Task i's row of the models of its own candidate."""
    w, buffers = (torch.empty_like(side[: len(wanted)]) for side in made[wanted[0]])
    for candidate in set(wanted):
        mine = [i for i, other in enumerate(wanted) if other == candidate]
        w[mine], buffers[mine] = made[candidate][0][mine], made[candidate][1][mine]
    return w, buffers


def _folds(rows: Rows, keys: Tensor) -> Tensor:
    """The fold of every row: each task's rows, shuffled by its own key, take turns."""
    counts = rows.counts
    rank = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    row = torch.arange(len(rank), device=counts.device) - rows.offsets[rank]
    order = torch.argsort(scramble(keys[rank], row))
    order = order[torch.argsort(rank[order], stable=True)]
    fold = torch.empty_like(row)
    fold[order] = row % FOLDS
    return fold


def _means(losses: Tensor, rows: Rows) -> Tensor:
    """Mean of each task's rows; not finite counts as worst."""
    total = torch.segment_reduce(losses, "sum", offsets=rows.offsets)
    return torch.nan_to_num(total / rows.counts.clamp(min=1), nan=math.inf)
