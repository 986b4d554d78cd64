"""The last step of a run: every task makes the best of the billboard with its own rows.

Under billboard privacy a task may use its own data as often as it likes. So each task trains alone
and fine-tunes from the billboard with several objectives and strengths, judged by cross-validation
on its own training and validation rows (small tasks need every row to judge by). What began at the
billboard is averaged by what it foresaw; training alone replaces it where that is clearly better
(`choose` guards against luck). This is combined with what else a task can make of its rows, where
they are numbers (`engine.combine`). What comes of it is compared with the model that the method
left, on validation rows, the only ones that model has not seen. What wins is trained again: on all
rows but the test rows for scores, and on these too for what tasks take away.

Where a method's tasks end with an exact step, that is what is combined, and nothing is chosen.

Nothing here looks at another task; a chunk of tasks gives each what it would get by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.data.federation import Kind, Rows
from tacit.engine import evaluate
from tacit.engine.bench import Bench, Memo, Mixture, Models, Tried, average
from tacit.engine.blend import PARTS, SHARED
from tacit.engine.combine import (
    Delivered,
    Ended,
    combine,
    combines,
    deliver,
    settled_unseen,
)
from tacit.engine.progress import Progress
from tacit.engine.store import Store
from tacit.engine.tasks import Tasks
from tacit.local.choose import choose, likely
from tacit.local.chunks import Chunk
from tacit.local.losses import ROW_LOSSES
from tacit.local.own import raw_of
from tacit.local.recipes import ALONE, RECIPES, Candidate, Personalise, Recipe
from tacit.local.threads import threads_for
from tacit.methods import Method
from tacit.metrics import Metrics, evaluate_rows

KIND = ("start", "objective", "trained", "tasks")
"""What a result says of each kind of model that tasks ended with."""
FEW_ROWS, ROWS_TO_TELL = 5, 12
"""With fewer validation rows than this a lucky model can be right on all of them; and so many are
asked for where a model would replace a combination, which is safe and nearly as good."""


class Kept:
    """Models of all tasks, in memory or on disk."""

    def __init__(self, trained: Tasks, folder: Path | None) -> None:
        self._blank = {"w": trained.model.start, "buffers": trained.model.buffers}
        place = "memory" if folder is None else "disk"
        many, device = len(trained.federation), trained.device
        self._store = Store(many, self._blank, place=place, folder=folder, device=device)
        self._board = trained.board

    def put(self, tasks: Tensor, models: Models) -> None:
        self._store.put(tasks, {"w": models[0], "buffers": models[1]})
        self._store.settle(self._board, {}, save=True)

    def __call__(self, tasks: Tensor) -> Models:
        found = self._store.take(tasks, self._blank)
        return found["w"], found["buffers"]


@dataclass
class Personalised:
    """What every task ended with."""

    mode: Personalise
    mixtures: list[Mixture] = field(default_factory=list)
    """What each task ended with; empty where the method's own models are kept."""
    alone: Metrics | None = None
    """Scores of training alone, each task for as long as its own rows say."""
    ended: Ended | None = None
    """What is combined with these models, if something is."""
    kept: Kept | None = None

    def models(self, tasks: Tensor) -> Models:
        assert self.kept is not None
        return self.kept(tasks)

    @property
    def candidates(self) -> list[Candidate]:
        """The heaviest part of each."""
        return [next(iter(one)) for one in self.mixtures]

    @property
    def chosen(self) -> list[str]:
        """The same in words."""
        return list(map(str, self.candidates))

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        per_task = dict(zip(names, self.chosen, strict=True)) if self.chosen else {}
        kinds = Counter(candidate.kind for candidate in self.candidates)
        return {
            "mode": self.mode,
            "counts": Counter(self.chosen),
            "kinds": [dict(zip(KIND, (*kind, many), strict=True)) for kind, many in kinds.items()],
            "per_task": per_task,
        }


def needs_validation(method: Method, mode: Personalise) -> bool:
    """Whether a task has only validation rows to choose by.

    What starts from the billboard is judged by all rows; the model that the method left has seen
    those for training.
    """
    if mode == "none" or method.settles:
        return False
    return mode != "best" or method.channel == "exchange"


def personalise(
    trained: Tasks,
    mode: Personalise,
    progress: Progress,
    *,
    alone: bool,
    folder: Path | None = None,
    memo: Memo | None = None,
    tasks: Tensor | None = None,
) -> Personalised:
    """The personal models of all tasks, and with `alone` also what each reaches by itself.

    `folder` is where models are kept that do not fit into memory. `tasks` are neighbours whose rows
    are here, if not all are. `memo` lets runs that differ in their billboard only share the
    training alone.
    """
    federation = trained.federation
    tasks = torch.arange(len(federation), device=trained.device) if tasks is None else tasks
    combining = mode == "best" and combines(trained)
    if trained.method.settles:
        unseen = settled_unseen(trained)
        parts = (federation.train, unseen, progress, tasks)
        return Personalised("none", ended=combine(trained, *parts) if combining else None)
    done = Personalised(mode)
    recipes = list(RECIPES[mode])
    if trained.method.channel != "billboard":
        recipes = [recipe for recipe in recipes if recipe.start != "billboard"]
    if alone and ALONE not in recipes:
        recipes.append(ALONE)
    if not recipes:
        return done
    bench = Bench(trained, recipes, memo)
    spans = bench.spans(tasks)
    trial = _Trial(bench, mode, combining=combining)
    with progress.rounds(
        "personal models" if mode != "none" else "for comparison: alone", len(spans)
    ) as on_round:
        for number, span in enumerate(spans):
            with threads_for(trained.in_flight(span), len(span.filled)):
                trial.judge(span)
            on_round(number + 1, {})
    if combining:
        done.ended = combine(trained, bench.rows, trial.unseen, progress, tasks)
    picked = trial.picked(done.ended)
    if done.ended is not None:
        done.ended = _with_own_models(done.ended, picked)
    if mode != "none":
        done.kept = Kept(trained, folder)
        done.mixtures = [picked[task] for task in tasks.tolist()]
    rows, outputs = federation.part(trained.test_part), None
    for span in spans:
        some = span.tasks.tolist()
        kept = [picked[task] for task in some] if done.kept is not None else []
        single: list[Mixture] = [{trial.alone[task]: 1.0} for task in some] if alone else []
        with threads_for(trained.in_flight(span), len(span.filled)):
            made = bench.refit(span, set().union(*kept, *single))
        if done.kept is not None:
            done.kept.put(span.tasks, average(kept, made))
        if alone:
            found = _outputs(trained, span.tasks, average(single, made))
            if outputs is None:
                outputs = found.new_zeros(len(rows.y), *found.shape[1:])
            outputs[evaluate.rows_of(rows, span.tasks)[0]] = found
    if outputs is not None:
        done.alone = evaluate_rows(
            federation.kind, outputs, rows, federation.target_scale, federation.heads
        )
    return done


def take_away(trained: Tasks, done: Personalised, folder: Path | None = None) -> Delivered | None:
    """What was combined, from all rows of tasks; None where nothing was."""
    ended = done.ended
    if ended is None:
        return None
    tasks, federation = ended.tasks, trained.federation
    place = torch.empty(len(federation), dtype=torch.int64, device=tasks.device)
    place[tasks] = torch.arange(len(tasks), device=tasks.device)

    def settle(own: Rows) -> evaluate.Personal:
        return evaluate.rows_from(trained.settled_models(own, tasks), place)

    def train(_: Rows) -> evaluate.Personal:
        rows = federation.train.joined(federation.validation).joined(federation.test)
        tried = set().union(*done.mixtures)
        bench = Bench(trained, sorted({one.recipe for one in tried}), rows=rows)
        kept = Kept(trained, folder)
        for span in bench.spans(tasks):
            wanted = [done.mixtures[int(place[task])] for task in span.tasks]
            with threads_for(trained.in_flight(span), len(span.filled)):
                kept.put(span.tasks, average(wanted, bench.refit(span, set().union(*wanted))))
        return kept

    if trained.method.settles:
        return deliver(trained, ended, trained.personal, settle)
    return deliver(trained, ended, done.models, train)


class _Trial:
    """What tasks tried on their rows, and what they picked by it."""

    def __init__(self, bench: Bench, mode: Personalise, *, combining: bool) -> None:
        self.bench, self.mode, self.combining = bench, mode, combining
        self.kind: Kind = bench.tasks.federation.kind
        self.kept: dict[int, Mixture] = {}
        self.alone: dict[int, Candidate] = {}
        self._anew = [recipe for recipe in bench.recipes if recipe.start != "own"]
        validation, device = bench.tasks.federation.validation, bench.tasks.device
        mine = [recipe for recipe in bench.recipes if recipe.start == "own"]
        self._mine = mine if len(validation.y) else []
        self._own = [Candidate(recipe, k) for recipe in self._mine for k in bench.stops(recipe)]
        self._own_lost = torch.full((len(self._own), len(validation.y)), torch.inf, device=device)
        self._lost = torch.zeros(len(bench.rows.y), device=device)
        self._said: Tensor | None = None
        """What that which is kept says of rows that it has not seen."""

    def judge(self, span: Chunk) -> None:
        """Everything that these tasks may try."""
        bench, tasks = self.bench, span.tasks.tolist()
        keys = bench.keys(0)[span.tasks]
        if self._anew:
            tried = bench.cross_validated(span, self._anew, said=self.combining)
            single = torch.tensor([c.recipe == ALONE for c in tried.candidates]).to(keys.device)
            if bool(single.any()):
                own = [c for c in tried.candidates if c.recipe == ALONE]
                freely = torch.zeros(len(own), len(tasks), dtype=torch.bool, device=keys.device)
                best = choose(tried.losses[single], tried.rows.offsets, freely, keys)
                self.alone |= zip(tasks, [own[k] for k in best.tolist()], strict=True)
            if self.mode == "best":
                weights = self._weights(tried, single, keys)
                self.kept |= zip(tasks, tried.mixtures(weights), strict=True)
                index = evaluate.rows_of(bench.rows, span.tasks)[0]
                self._lost[index] = tried.averaged(weights, tried.losses)
                if tried.outputs is not None:
                    said = tried.averaged(weights, tried.outputs)
                    if self._said is None:
                        self._said = said.new_zeros(len(self._lost), *said.shape[1:])
                    self._said[index] = said
        if not self._mine:
            return
        # Where a method left nothing but the billboard, that was judged already.
        public = bench.nothing_of_its_own(span)[: len(tasks)] & bool(self.kept)
        if not bool(public.all()):
            tried = bench.validate(span, self._mine)
            public = public.repeat_interleave(tried.rows.counts)
            index = evaluate.rows_of(bench.tasks.federation.validation, span.tasks)[0]
            for candidate, lost in zip(tried.candidates, tried.losses, strict=True):
                at = self._own.index(candidate)
                self._own_lost[at, index] = torch.where(public, torch.inf, lost)

    def _weights(self, tried: Tried, single: Tensor, keys: Tensor) -> Tensor:
        """How much of each candidate [candidates, k] a task keeps.

        What began at the billboard is averaged. That is safe: what a task trained alone replaces it
        where it is clearly better, and a handful of rows cannot tell.
        """
        offsets, lost = tried.rows.offsets, tried.losses
        weights = torch.zeros(len(lost), len(keys), dtype=torch.float64, device=keys.device)
        rivals = lost[single]
        if not bool(single.all()):
            squared = self.kind == "regression"
            weights[~single] = likely(lost[~single], offsets, squared=squared)
            rivals = torch.cat([rivals, tried.averaged(weights, lost).unsqueeze(0)])
        safe = torch.arange(len(rivals), device=keys.device) >= int(single.sum())
        best = choose(rivals, offsets, safe.unsqueeze(1).expand(-1, len(keys)), keys)
        places = torch.cat([single.nonzero()[:, 0], single.new_full((1,), -1, dtype=torch.int64)])
        best = places[best]
        return torch.where(best < 0, weights, torch.arange(len(lost)).to(best)[:, None] == best)

    def unseen(self, _: Rows, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """The fold of these tasks' rows, and what was said of them (`combine.Unseen`)."""
        assert self._said is not None
        index = evaluate.rows_of(self.bench.rows, tasks)[0]
        return self.bench.fold[index], self._said[index]

    def picked(self, ended: Ended | None) -> dict[int, Mixture]:
        """What each task ends with: what was kept, with all that is combined with it (`ended`), or
        the model that the method left, if that is clearly better on validation rows."""
        if not self._mine:
            return self.kept
        federation = self.bench.tasks.federation
        rows, keys, lost = federation.validation, self.bench.keys(0), self._own_lost
        safe = torch.zeros(len(lost), len(federation), dtype=torch.bool, device=keys.device)
        candidates: list[Mixture | None] = [{one: 1.0} for one in self._own]
        if self.kept:
            rival = self._lost
            if ended is not None:
                out = raw_of(self.kind, ended.said).squeeze(1)
                rival = ROW_LOSSES[self.kind](out, ended.rows.y).to(rival)
            seen, unseen = (
                Rows(part.offsets.new_full((len(part.y),), k), part.y, part.offsets)
                for k, part in enumerate((federation.train, rows))
            )
            lost = torch.cat([lost, rival[seen.joined(unseen).x > 0].unsqueeze(0)])
            safe = torch.cat([safe, ~safe[:1]])
            candidates.append(None)
        # What others brought is in a combination already, unless there is no billboard.
        brought = ended is not None and any(one.start == "billboard" for one in self._anew)
        least = ROWS_TO_TELL if brought else FEW_ROWS
        best = choose(lost, rows.offsets, safe, keys, least_rows=least).tolist()
        tasks = self.kept or range(len(federation))
        return {task: candidates[best[task]] or self.kept[task] for task in tasks}


def _with_own_models(ended: Ended, picked: dict[int, Mixture]) -> Ended:
    """Tasks that keep the model which the method left combine nothing with it."""
    weights = ended.blend.weights.clone()
    own = [next(iter(picked[task])).recipe.start == "own" for task in ended.tasks.tolist()]
    weights[torch.tensor(own)] = torch.eye(len(PARTS))[SHARED].to(weights)
    return replace(ended, blend=replace(ended.blend, weights=weights).trimmed())


def _outputs(trained: Tasks, tasks: Tensor, models: Models) -> Tensor:
    """Of these tasks' models on the rows that scores are computed from."""
    place = torch.empty(len(trained.federation), dtype=torch.int64, device=tasks.device)
    place[tasks] = torch.arange(len(tasks), device=tasks.device)
    return trained.outputs(trained.test_part, tasks, evaluate.rows_from(models, place))


__all__ = ["RECIPES", "Personalise", "Personalised", "Recipe", "personalise"]
