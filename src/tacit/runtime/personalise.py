"""The last step of a run: every task makes the best of the billboard with its own rows.

Under billboard privacy a task may use its own data as often as it likes. So each task trains alone,
fine-tunes from the billboard and from the model it was given, with several objectives and
strengths, averages the best of both, and keeps what does best on its own validation rows (`choose`
guards against luck). What it keeps is then trained again on training and validation rows together.
Nothing here looks at another task, and a chunk of tasks gives what each would get by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from tacit.federation import Rows
from tacit.local.batches import Batches, draw, round_up
from tacit.local.choose import choose
from tacit.local.losses import ROW_LOSSES
from tacit.local.objectives import OBJECTIVES, Anchor, squared_slope
from tacit.local.threads import threads_for
from tacit.local.together import Together
from tacit.metrics import Metrics, evaluate_rows
from tacit.runtime import evaluate
from tacit.runtime.progress import Progress
from tacit.runtime.simulate import Simulation
from tacit.runtime.store import Store

Personalise = Literal["best", "none", "vanilla", "mean", "kl", "ewc"]
Models = tuple[Tensor, Tensor]
"""Parameters [k, d] and buffers [k, b]."""

LONGEST = 16
"""Fine-tuning takes at most so many rounds' worth of local steps."""
STOPS = 8
"""Moments at which a task that trains alone looks at its own validation rows."""
PATIENCE = 2
"""A task gives a recipe up after so many looks without a lower validation loss."""
FISHER_ROWS = 32


class Recipe(NamedTuple):
    """A way to a personal model: where it starts, and what it minimises."""

    start: Literal["alone", "own", "billboard"]
    objective: str = "vanilla"
    strength: float = 0.0

    def __str__(self) -> str:
        if self.start == "alone":
            return "trained alone"
        source = "own model" if self.start == "own" else "billboard"
        how = "" if self.objective == "vanilla" else f", {self.objective} {self.strength:g}"
        return f"{source}, fine-tuned{how}"


ALONE = Recipe("alone")
RECIPES: dict[str, tuple[Recipe, ...]] = {
    "none": (),
    "vanilla": (Recipe("own"),),
    "mean": tuple(Recipe("own", "mean", strength) for strength in (0.01, 0.1, 1.0)),
    "kl": tuple(Recipe("own", "kl", strength) for strength in (0.1, 1.0, 10.0)),
    "ewc": tuple(Recipe("own", "ewc", strength) for strength in (1.0, 10.0, 100.0)),
    "best": (
        Recipe("own"),
        Recipe("billboard"),
        Recipe("billboard", "mean", 0.1),
        Recipe("billboard", "mean", 1.0),
        Recipe("billboard", "kl", 1.0),
        Recipe("billboard", "ewc", 10.0),
        ALONE,
    ),
}


class Candidate(NamedTuple):
    """A recipe stopped after so many rounds' worth of steps; `mixed` with the best alone."""

    recipe: Recipe
    stop: int
    mixed: bool = False

    def __str__(self) -> str:
        if self.mixed:
            return f"average of trained alone and {self.recipe}"
        if self.stop == 0:
            return "own model as it is" if self.recipe.start == "own" else "billboard as it is"
        return str(self.recipe)


@dataclass
class Personalised:
    """What every task ended with."""

    mode: Personalise
    chosen: list[str] = field(default_factory=list)
    """In words, for each task; empty where the method's own models are kept."""
    alone: Metrics | None = None
    """Scores of training alone, each task for as long as its own validation rows say."""
    _store: Store | None = None
    _blank: dict[str, Tensor] = field(default_factory=dict)

    def models(self, tasks: Tensor) -> Models:
        assert self._store is not None
        found = self._store.take(tasks, self._blank)
        return found["w"], found["buffers"]

    def to_json(self, names: Any) -> dict[str, Any]:
        per_task = dict(zip(names, self.chosen, strict=True)) if self.chosen else {}
        return {"mode": self.mode, "counts": Counter(self.chosen), "per_task": per_task}


def personalise(
    simulation: Simulation,
    mode: Personalise,
    progress: Progress,
    *,
    alone: bool,
    folder: Path | None = None,
    on_disk: bool = False,
) -> Personalised:
    """The personal models of all tasks, and with `alone` also what each reaches by itself."""
    done = Personalised(mode)
    recipes = list(RECIPES[mode])
    if simulation.method.channel == "nothing":
        recipes = [recipe for recipe in recipes if recipe.start != "billboard"]
    if alone and ALONE not in recipes:
        recipes.append(ALONE)
    if not recipes:
        return done
    federation, model = simulation.federation, simulation.model
    tasks = len(federation)
    if mode != "none":
        done._blank = {"w": model.start, "buffers": model.buffers}
        place = None if folder is None or not on_disk else folder / "checkpoint" / "personal"
        done._store = Store(
            tasks,
            done._blank,
            place="disk" if place is not None else "memory",
            folder=place,
            device=simulation.device,
        )
    bench = _Bench(simulation, recipes)
    spans = torch.arange(tasks, device=simulation.device).split(bench.chunk)
    outputs = []
    title = "personal models" if mode != "none" else "for comparison: alone"
    with progress.rounds(title, len(spans)) as on_round:
        for number, span in enumerate(spans):
            with threads_for(simulation.in_flight):
                kept, words, by_itself = bench.of(span, keep=mode != "none", alone=alone)
            if done._store is not None and kept is not None:
                done._store.put(span, {"w": kept[0], "buffers": kept[1]})
                done._store.settle(simulation.board, {}, save=True)
                done.chosen += words
            if by_itself is not None:
                outputs.append(_outputs(simulation, span, by_itself))
            on_round(number + 1, {})
    if outputs:
        rows = federation.part(simulation.test_part)
        scale = federation.target_scale
        done.alone = evaluate_rows(federation.kind, torch.cat(outputs), rows, scale)
    return done


class _Bench:
    """Tries recipes on chunks of tasks."""

    def __init__(self, simulation: Simulation, recipes: list[Recipe]) -> None:
        self._simulation, self._recipes = simulation, recipes
        federation = simulation.federation
        self._train, self._validation = federation.train, federation.validation
        self._judged = len(self._validation.y) > 0
        self._both = self._train.joined(self._validation) if self._judged else self._train
        self.chunk = max(1, simulation.chunk // 2)
        self._steps = {
            name: Together(self._step(name)) for name in {recipe.objective for recipe in recipes}
        }
        self._fisher = Together(lambda _, own: squared_slope(simulation.model, *own))

    def of(
        self, tasks: Tensor, *, keep: bool, alone: bool
    ) -> tuple[Models | None, list[str], Models | None]:
        """Kept models, what they are in words, and the models of training alone."""
        count = len(tasks)
        filled = torch.cat([tasks, tasks[:1].expand(min(self.chunk, round_up(count)) - count)])
        starts = self._starts(filled)
        if not self._judged:  # nothing to choose by, and only training alone was asked for
            *_, (_, models) = self._path(ALONE, starts, filled, self._train, [self._rounds])
            return None, [], _first(models, count)
        candidates, losses, safe = self._judge(filled, starts, count)
        offsets = evaluate.select(self._validation, tasks).offsets
        key = self._simulation.randomness.key("personalise", 0)
        free = choose(losses, offsets, safe, tasks, key).tolist()
        # Among the safe candidates alone, there is nothing to guard against.
        by_itself = choose(losses[safe], offsets, safe[safe], tasks, key) if safe.any() else None
        alone_at = safe.nonzero()[:, 0][by_itself].tolist() if by_itself is not None else []
        wanted = {candidates[k] for k in (free if keep else [])}
        if needs_alone := alone or any(candidate.mixed for candidate in wanted):
            wanted |= {candidates[k] for k in alone_at}
        made = self._refit(wanted, filled, starts)
        solo = _gather([candidates[k] for k in alone_at], made) if needs_alone else None
        kept = None
        if keep:
            kept = _gather([candidates[k]._replace(mixed=False) for k in free], made)
            mixed = torch.tensor([candidates[k].mixed for k in free], device=tasks.device)
            if solo is not None and mixed.any():
                halves = ((one + other) / 2 for one, other in zip(kept, solo, strict=True))
                kept = _where(mixed, tuple(halves), kept)
        return kept, [str(candidates[k]) for k in free] if keep else [], solo if alone else None

    def _starts(self, tasks: Tensor) -> dict[str, Models]:
        simulation, model = self._simulation, self._simulation.model
        many = (len(tasks), -1)
        return {
            "alone": (model.start.expand(many), model.buffers.expand(many)),
            "own": simulation.personal(tasks),
            "billboard": simulation.newcomer(tasks),
        }

    def _judge(
        self, tasks: Tensor, starts: dict[str, Models], count: int
    ) -> tuple[list[Candidate], Tensor, Tensor]:
        """All candidates, their losses on validation rows, and which of them are safe."""
        rows = evaluate.select(self._validation, tasks[:count])
        candidates: list[Candidate] = []
        losses: list[Tensor] = []
        best: dict[bool, tuple[Tensor, Models]] = {}
        same = torch.equal(starts["own"][0], starts["billboard"][0])
        for recipe in self._recipes:
            if same and recipe == Recipe("billboard") and Recipe("own") in self._recipes:
                continue
            lowest, waited = None, None
            for stop, models in self._path(recipe, starts, tasks, self._train, self._stops(recipe)):
                loss = self._row_losses(_first(models, count), rows)
                mean = _means(loss, rows)
                if lowest is None or waited is None:
                    lowest, waited = mean, torch.zeros_like(mean)
                else:
                    # A task's patience is its own: who is in its chunk must not matter.
                    out = waited >= PATIENCE
                    mean = torch.where(out, math.inf, mean)
                    loss = torch.where(_spread(out, rows), math.inf, loss)
                    waited = torch.where(mean < lowest, 0, waited + 1)
                    lowest = torch.minimum(lowest, mean)
                candidates.append(Candidate(recipe, stop))
                losses.append(loss)
                group = recipe == ALONE
                if group not in best:
                    best[group] = (mean, _first(models, count))
                else:
                    better = mean < best[group][0]
                    kept = _where(better, _first(models, count), best[group][1])
                    best[group] = (torch.minimum(mean, best[group][0]), kept)
                if bool((waited >= PATIENCE).all()):
                    break
        if len(best) == 2:
            halves = tuple((a + b) / 2 for a, b in zip(best[True][1], best[False][1], strict=True))
            loss = self._row_losses((halves[0], halves[1]), rows)
            self._add_averages(candidates, losses, loss, rows)
        safe = torch.tensor([c.recipe == ALONE and not c.mixed for c in candidates])
        return candidates, torch.stack(losses), safe.to(tasks.device)

    def _add_averages(
        self, candidates: list[Candidate], losses: list[Tensor], loss: Tensor, rows: Rows
    ) -> None:
        """The average of a task's best two, as a candidate of the recipe that its half is from."""
        others = [k for k, c in enumerate(candidates) if c.recipe != ALONE]
        means = torch.stack([_means(losses[k], rows) for k in others])
        half = means.argmin(dim=0)
        for position in half.unique().tolist():
            mine = _spread(half == position, rows)
            candidates.append(candidates[others[position]]._replace(mixed=True))
            losses.append(torch.where(mine, loss, math.inf))

    def _refit(
        self, wanted: set[Candidate], tasks: Tensor, starts: dict[str, Models]
    ) -> dict[Candidate, Models]:
        """The chosen candidates again, now from training and validation rows together."""
        plain = {candidate._replace(mixed=False) for candidate in wanted}
        made: dict[Candidate, Models] = {}
        for recipe in {candidate.recipe for candidate in plain}:
            stops = sorted(c.stop for c in plain if c.recipe == recipe)
            for stop, models in self._path(recipe, starts, tasks, self._both, stops):
                if stop in stops:
                    made[Candidate(recipe, stop)] = models
        return made

    def _stops(self, recipe: Recipe) -> list[int]:
        if recipe == ALONE:
            total = self._rounds
            return sorted({max(1, round(total * 2.0 ** (k + 1 - STOPS))) for k in range(STOPS)})
        doubling = (2**k for k in range(LONGEST.bit_length()))
        return [0, *(stop for stop in doubling if stop <= min(LONGEST, self._rounds))]

    @property
    def _rounds(self) -> int:
        return self._simulation.rounds

    def _path(
        self,
        recipe: Recipe,
        starts: dict[str, Models],
        tasks: Tensor,
        rows: Rows,
        stops: list[int],
    ) -> Iterator[tuple[int, Models]]:
        """The models of this recipe at each of the stops."""
        method, simulation = self._simulation.method, self._simulation
        randomness = simulation.randomness
        w, buffers = (side.contiguous() for side in starts[recipe.start])
        anchor = Anchor(w, buffers, w[:, :0])
        if recipe.objective == "ewc":
            few = draw(rows, tasks, 1, FISHER_ROWS, randomness.key("personalise", 0))
            anchor = anchor._replace(fisher=self._diagonal(w, buffers, few))
        done = 0
        for stop in stops:
            for number in range(done, stop):
                key = randomness.key("personalise", number + 1)
                batches = draw(rows, tasks, method.local_steps, method.batch, key)
                rate = method.lr
                if recipe == ALONE and method.halve_every is not None:
                    rate *= 0.5 ** (number // method.halve_every)
                shared = tuple(w.new_tensor(value) for value in (recipe.strength, rate))
                with simulation.layers_random("personalise", number):
                    for k in range(method.local_steps):
                        step = tuple(side[:, k] for side in batches)
                        own = (anchor, w, buffers, step)
                        w, buffers = self._steps[recipe.objective](shared, own)
            done = stop
            yield stop, (w, buffers)

    def _step(self, objective: str):
        """One local step of one task: short, so that tracing it takes little."""
        model, slope_of = self._simulation.model, OBJECTIVES[objective]

        def step(shared: tuple[Tensor, Tensor], own: Any) -> tuple[Tensor, Tensor]:
            anchor, w, buffers, rows = own
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
        simulation = self._simulation
        every = torch.arange(len(rows.offsets) - 1, device=simulation.device)
        out = evaluate.outputs(
            simulation.model,
            lambda k: (models[0][k], models[1][k]),
            rows,
            every,
            simulation.rows_at_once,
        )
        return ROW_LOSSES[simulation.federation.kind](out, rows.y)


def _outputs(simulation: Simulation, span: Tensor, models: Models) -> Tensor:
    """Of these models on the rows that scores are computed from; `span` is in order."""
    w, buffers = models
    part, first = simulation.test_part, span[0]
    return simulation.outputs(part, span, lambda k: (w[k - first], buffers[k - first]))


def _first(models: Models, count: int) -> Models:
    return models[0][:count], models[1][:count]


def _where(mask: Tensor, new: Any, old: Any) -> Models:
    w, buffers = (torch.where(mask.unsqueeze(1), a, b) for a, b in zip(new, old, strict=True))
    return w, buffers


def _gather(wanted: list[Candidate], made: dict[Candidate, Models]) -> Models:
    """Task i's row of the models of its own candidate."""
    w, buffers = (torch.empty_like(side[: len(wanted)]) for side in made[wanted[0]])
    for candidate in set(wanted):
        mine = [i for i, other in enumerate(wanted) if other == candidate]
        w[mine], buffers[mine] = made[candidate][0][mine], made[candidate][1][mine]
    return w, buffers


def _means(losses: Tensor, rows: Rows) -> Tensor:
    """Mean of each task's rows; not finite counts as worst."""
    counts = rows.counts
    rank = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    total = losses.new_zeros(len(counts)).index_add_(0, rank, losses)
    return torch.nan_to_num(total / counts.clamp(min=1), nan=math.inf)


def _spread(mask: Tensor, rows: Rows) -> Tensor:
    return torch.repeat_interleave(mask, rows.counts)
