"""How tasks come to what they combine at the end (`engine.blend` says of what).

Twice: on the rows that a run learns from, so that what is left can score it; and on all rows, with
the same weights, for the models that are delivered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import vmap

from tacit.data.federation import NUMBERS, Kind, Rows
from tacit.engine import evaluate
from tacit.engine.blend import (
    ALONE,
    CONSTANT,
    LINEAR,
    ON_SHARED,
    PARTS,
    SHARED,
    TREES,
    Blend,
    softened,
    within,
)
from tacit.engine.progress import Progress
from tacit.engine.tasks import Tasks
from tacit.local.batches import Batches, all_rows
from tacit.local.own import SURE, coded, constants, linear_alone, linear_raw, mean_of
from tacit.local.stack import FOLDS, folds, losses, per_task, weigh
from tacit.local.threads import threads_for
from tacit.local.trees import grow
from tacit.randomness import scramble

LEAN = 0.5
"""The weight of the shared model before any row is seen; the others have equal ones."""
FEWEST_ROWS, ROWS_FOR_TREES = 12, 25
"""With fewer rows a task keeps the shared model (folds of a handful of rows tell nothing), or
combines it without trees."""
MOST_COLUMNS = 300
NEGLIGIBLE = 0.02
"""Smaller weights are dropped, with the trees that they would keep."""
ROWS_AT_ONCE = 200_000
KINDS: tuple[Kind, ...] = ("regression", "count", "binary", "multiclass")


def combines(trained: Tasks) -> bool:
    """Whether tasks have rows that other models than the run's can read."""
    federation = trained.federation
    columns = math.prod(federation.input_shape)
    readable = federation.words is None and federation.heads is None and columns <= MOST_COLUMNS
    return readable and federation.kind in KINDS


@dataclass(frozen=True)
class Judged:
    """What some tasks fitted on their rows, and what each part says of rows it has not seen."""

    rows: Rows
    fold: Tensor
    unseen: Tensor
    """[parts, rows, outputs]."""
    has: Tensor
    """[k, parts]: which parts a task has."""
    blend: Blend
    """The parts, fitted on all of these rows."""


class Combine:
    """The end of a run for its tasks, some at a time."""

    def __init__(self, trained: Tasks) -> None:
        self.trained, federation = trained, trained.federation
        self.kind: Kind = federation.kind
        self.tasks = len(federation)
        self.outputs = federation.outputs if self.kind == "multiclass" else 1
        self.keys = scramble(trained.randomness.key("personalise", 0), federation.keys)

    def spans(self, rows: Rows, tasks: Tensor) -> list[Tensor]:
        """These tasks, so many that their rows fit into memory with all that is said of them."""
        group = rows.count(tasks).cumsum(0) // ROWS_AT_ONCE
        sizes = torch.unique_consecutive(group, return_counts=True)[1]
        return list(tasks.split(sizes.tolist()))

    def judge(self, rows: Rows, tasks: Tensor) -> Judged:
        """All parts of these tasks on these rows, and without one fold after the other."""
        own = evaluate.select(rows, tasks)
        fold, rank = folds(own.offsets, self.keys[tasks]), _ranks(own)
        judged, treed = (own.counts >= few for few in (FEWEST_ROWS, ROWS_FOR_TREES))
        has = torch.stack([judged, judged | True, judged | True, treed, treed], dim=1)
        range_ = _range(self.kind, own)
        unseen = own.x.new_zeros(len(PARTS), len(own.y), self.outputs, dtype=torch.float64)
        for number in range(FOLDS):
            held = fold == number
            kept, of = own.where(~held), rank[held]
            unseen[CONSTANT, held] = constants(self.kind, kept, self.outputs)[of]
            said = mean_of(self.kind, linear_raw(self._linear(kept)[of], own.x[held]))
            unseen[LINEAR, held] = within(said, range_[of])
            here = held & judged[rank]
            if bool(here.any()):
                out = self._shared_without(own, held, tasks, judged)
                unseen[SHARED, here] = within(mean_of(self.kind, out), range_[rank[here]])
        fitted, (plain, beside) = self.fit(own, tasks, unseen[SHARED], treed, bagged=True)
        inside = treed[rank]
        soft = fitted.constant[rank[inside]]
        unseen[TREES, inside] = softened(self.kind, plain, soft)
        unseen[ON_SHARED, inside] = softened(self.kind, beside, soft)
        if self.kind not in NUMBERS:  # what is never weighed is still a probability
            unseen = unseen.clamp(SURE, 1 - SURE)
        return Judged(own, fold, unseen, has, fitted)

    def weights(self, judged: Judged) -> tuple[Tensor, Tensor]:
        """What each task combines, and what it would do alone: weights [k, parts] of both."""
        rows, has = judged.rows, judged.has
        rank, y = _ranks(rows), rows.y
        lean = has.double()
        lean[:, SHARED] = 0.0
        lean = (1 - LEAN) * lean / lean.sum(dim=1, keepdim=True)
        lean[:, SHARED] = LEAN
        row_losses = losses(self.kind, judged.unseen, y)
        both = torch.zeros(2, len(y)).to(row_losses)
        every = torch.ones_like(y, dtype=torch.bool)
        for number in range(FOLDS):
            held = judged.fold == number
            own = weigh(self.kind, judged.unseen, y, rows.offsets, lean, ~held)
            best = _best_alone(row_losses * ~held, rows.offsets, has)
            said = torch.einsum("np,pno->no", own[rank], judged.unseen)
            both[0, held] = losses(self.kind, said, y)[held]
            both[1, held] = row_losses.gather(0, best[rank].unsqueeze(0))[0, held]
        own = weigh(self.kind, judged.unseen, y, rows.offsets, lean, every)
        alone = torch.nn.functional.one_hot(
            _best_alone(row_losses, rows.offsets, has), len(PARTS)
        ).double()
        worse = _believed(both[0] - both[1], rows).unsqueeze(1)
        own = (1 - worse) * own + worse * alone
        own = torch.where(own > NEGLIGIBLE, own, 0.0)
        own = own / own.sum(dim=1, keepdim=True)
        shared = torch.zeros_like(own)
        shared[:, SHARED] = 1.0
        return torch.where(has[:, [SHARED]], own, shared), alone

    def fit(
        self, own: Rows, tasks: Tensor, shared: Tensor, treed: Tensor, *, bagged: bool
    ) -> tuple[Blend, tuple[Tensor, Tensor]]:
        """All parts on all of these rows, and what bagged trees say of rows they have not seen."""
        some = treed.nonzero().squeeze(1)
        few, keys = evaluate.select(own, some), self.keys[tasks[some]]
        target, x = coded(self.kind, few.y, self.outputs), few.x.flatten(1)
        beside = torch.cat([x, shared[treed[_ranks(own)]].to(x)], dim=1)
        plain, more = (grow(seen, target, few.offsets, keys, bagged=bagged) for seen in (x, beside))
        holder = torch.full((len(tasks),), -1, dtype=torch.int64, device=tasks.device)
        holder[some] = torch.arange(len(some), device=tasks.device)
        place = torch.full((self.tasks,), -1, dtype=torch.int64, device=tasks.device)
        place[tasks] = torch.arange(len(tasks), device=tasks.device)
        blend = Blend(
            self.kind,
            place,
            torch.zeros(len(tasks), len(PARTS)).double(),
            _range(self.kind, own),
            constants(self.kind, own, self.outputs),
            self._linear(own),
            plain.forests,
            more.forests,
            torch.stack([holder, holder], dim=1),
        )
        return blend, (plain.unseen, more.unseen)

    def _linear(self, rows: Rows) -> Tensor:
        """Every task's exact linear model [k, outputs, d + 1]."""
        every = torch.arange(len(rows.counts), device=rows.offsets.device)
        found: Tensor | None = None

        def one(batches: Batches) -> Tensor:
            return linear_alone(self.kind, batches, self.outputs)

        for chunk in self.trained.chunks(every, rows, None):
            with threads_for(self.trained.in_flight(chunk), len(chunk.filled)):
                w = vmap(one)(all_rows(rows, chunk.filled, chunk.width))
            if found is None:
                found = w.new_zeros(len(every), *w.shape[1:])
            found[chunk.tasks] = torch.nan_to_num(w[: len(chunk.tasks)])
        assert found is not None
        return found

    def _shared_without(self, own: Rows, held: Tensor, tasks: Tensor, judged: Tensor) -> Tensor:
        """Raw outputs on held rows of tasks with enough of them, which did not see these rows."""
        some = judged.nonzero().squeeze(1)
        kept, judge = (evaluate.select(own.where(mask), some) for mask in (~held, held))
        w, buffers = self.trained.settled_models(kept, tasks[some])
        every, trained = torch.arange(len(some), device=some.device), self.trained
        return evaluate.outputs(
            trained.model, lambda k: (w[k], buffers[k]), judge, every, trained.seen_at_once
        )


def _ranks(rows: Rows) -> Tensor:
    """Whose each row is."""
    counts = rows.counts
    return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)


def _range(kind: Kind, rows: Rows) -> Tensor:
    """How low and how high numbers may be predicted: as far beyond a task's own as these reach."""
    many = len(rows.counts)
    if kind != "regression":
        ends = torch.tensor([-math.inf, math.inf], dtype=torch.float64, device=rows.y.device)
        return ends.expand(many, 2)
    y, offsets = rows.y.double(), rows.offsets
    low, high = (torch.segment_reduce(y, how, offsets=offsets) for how in ("min", "max"))
    return torch.stack([low - (high - low), high + (high - low)], dim=1)


def _believed(gain: Tensor, rows: Rows) -> Tensor:
    """How far each task believes a mean gain over its rows: 0 within a standard error, and nearly
    1 far beyond."""
    many, offsets = rows.counts.clamp(min=1), rows.offsets
    mean = per_task(gain.unsqueeze(0), offsets)[0] / many
    away = (gain - mean[_ranks(rows)]) ** 2
    error = per_task(away.unsqueeze(0), offsets)[0] / many**2
    return torch.where(mean > 0, 1 - error / (mean**2).clamp(min=1e-300), 0.0).clamp(min=0.0)


def _best_alone(row_losses: Tensor, offsets: Tensor, has: Tensor) -> Tensor:
    """Which of the parts that need nobody lost least."""
    total = per_task(row_losses, offsets)
    allowed = torch.zeros_like(has)
    allowed[:, list(ALONE)] = has[:, list(ALONE)]
    return torch.where(allowed.T, total, math.inf).argmin(dim=0)


@dataclass(frozen=True)
class Ended:
    """What tasks ended with, and what they would have ended with alone."""

    blend: Blend
    alone: Blend
    unseen: Tensor
    """[rows, outputs] what shared models expected of training rows without having seen them."""
    treed: Tensor
    """Which tasks have trees."""


def combine(trained: Tasks, progress: Progress, tasks: Tensor | None = None) -> Ended:
    """Every task weighs the shared model beside all that it can do alone, by its training rows."""
    work, rows = Combine(trained), trained.federation.train
    tasks = torch.arange(len(trained.federation)).to(rows.offsets) if tasks is None else tasks
    spans, found = work.spans(rows, tasks), []
    with progress.rounds("own rows, beside the shared model", len(spans)) as on_round:
        for number, some in enumerate(spans):
            judged = work.judge(rows, some)
            found.append((judged, *work.weights(judged)))
            on_round(number + 1, {})
    ours = Blend.joined([replace(judged.blend, weights=own) for judged, own, _ in found])
    alone = Blend.joined([replace(judged.blend, weights=own) for judged, _, own in found])
    return Ended(
        ours.trimmed(),
        alone.trimmed(),
        torch.cat([judged.unseen[SHARED] for judged, _, _ in found]),
        torch.cat([judged.has[:, TREES] for judged, _, _ in found]),
    )


@dataclass(frozen=True)
class Delivered:
    """What tasks take away: the same as was scored, learned from all of their rows."""

    blend: Blend
    _models: tuple[Tensor, Tensor]

    def models(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and buffers of the shared part of these tasks, stacked."""
        where = self.blend.place[tasks]
        w, buffers = self._models
        return w[where], buffers[where]


def deliver(trained: Tasks, ended: Ended, tasks: Tensor | None = None) -> Delivered:
    """What was scored, fitted again on all rows, those that scored it among them; weights stay."""
    work, federation = Combine(trained), trained.federation
    tasks = torch.arange(len(federation)).to(federation.train.offsets) if tasks is None else tasks
    own, test = (evaluate.select(part, tasks) for part in (federation.train, federation.test))
    unseen, models = ended.unseen, trained.personal(tasks)
    if len(test.y):
        # The models that were scored have not seen the rows that scored them.
        said = mean_of(work.kind, trained.outputs("test", tasks))
        said = within(said, ended.blend.range[_ranks(test)]).to(unseen)
        unseen = Rows(unseen, unseen, own.offsets).joined(Rows(said, said, test.offsets)).x
        own = own.joined(test)
        models = trained.settled_models(own, tasks)
    every, blends, begin = torch.arange(len(tasks)).to(tasks), [], 0
    weights = ended.blend.weights
    for some in work.spans(own, every):
        rows = evaluate.select(own, some)
        end = begin + len(rows.y)
        # Trees without weight are not grown again.
        treed = ended.treed[some] & (weights[some][:, [TREES, ON_SHARED]] > 0).any(dim=1)
        made, _ = work.fit(rows, tasks[some], unseen[begin:end], treed, bagged=False)
        blends.append(replace(made, weights=weights[some]))
        begin = end
    return Delivered(Blend.joined(blends).trimmed(), models)
