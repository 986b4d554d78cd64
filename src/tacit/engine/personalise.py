"""The last step of a run: every task makes the best of the billboard with its own rows.

Under billboard privacy a task may use its own data as often as it likes. So each task trains alone
and fine-tunes from the billboard with several objectives and strengths, judged by cross-validation
on its own training and validation rows (small tasks need every row to judge by). The best of these
is compared with the model that the method left it, on validation rows, the only ones that model has
not seen. What wins (`choose` guards against luck) is trained again on all of the task's rows.

Nothing here looks at another task; a chunk of tasks gives each what it would get by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.engine.bench import Bench, Memo, Models, gather
from tacit.engine.evaluate import rows_of
from tacit.engine.progress import Progress
from tacit.engine.store import Store
from tacit.engine.tasks import Tasks
from tacit.local.choose import choose
from tacit.local.chunks import Chunk
from tacit.local.recipes import ALONE, RECIPES, Candidate, Personalise, Recipe
from tacit.local.threads import threads_for
from tacit.metrics import Metrics, evaluate_rows

KIND = ("start", "objective", "trained", "tasks")
"""What a result says of each kind of model that tasks ended with."""
FEW_ROWS = 5
"""With fewer validation rows than this a lucky model can be right on all of them."""


@dataclass
class Personalised:
    """What every task ended with."""

    mode: Personalise
    candidates: list[Candidate] = field(default_factory=list)
    """What each task chose; empty where the method's own models are kept."""
    alone: Metrics | None = None
    """Scores of training alone, each task for as long as its own rows say."""
    _store: Store | None = None
    _blank: dict[str, Tensor] = field(default_factory=dict)

    def models(self, tasks: Tensor) -> Models:
        assert self._store is not None
        found = self._store.take(tasks, self._blank)
        return found["w"], found["buffers"]

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


def personalise(
    trained: Tasks,
    mode: Personalise,
    progress: Progress,
    *,
    alone: bool,
    folder: Path | None = None,
    on_disk: bool = False,
    memo: Memo | None = None,
    tasks: Tensor | None = None,
) -> Personalised:
    """The personal models of all tasks, and with `alone` also what each reaches by itself.

    `tasks` are neighbours whose rows are here, if not all are. `memo` lets runs that differ in
    their billboard only share the training alone.
    """
    done = Personalised(mode)
    recipes = list(RECIPES[mode])
    if trained.method.channel != "billboard":
        recipes = [recipe for recipe in recipes if recipe.start != "billboard"]
    if alone and ALONE not in recipes:
        recipes.append(ALONE)
    if not recipes:
        return done
    federation = trained.federation
    if mode != "none":
        done._blank = {"w": trained.model.start, "buffers": trained.model.buffers}
        place = folder / "checkpoint" / "personal" if folder is not None and on_disk else None
        done._store = Store(
            len(federation),
            done._blank,
            place="disk" if place is not None else "memory",
            folder=place,
            device=trained.device,
        )
    bench = Bench(trained, recipes, memo)
    everyone = torch.arange(len(federation), device=trained.device)
    spans = bench.spans(everyone if tasks is None else tasks)
    rows = federation.part(trained.test_part)
    outputs: Tensor | None = None
    chosen: dict[int, Candidate] = {}
    title = "personal models" if mode != "none" else "for comparison: alone"
    with progress.rounds(title, len(spans)) as on_round:
        for number, span in enumerate(spans):
            with threads_for(trained.in_flight(span), len(span.filled)):
                picks = _pick(bench, span, mode)
                wanted = set(picks.alone if alone else ()) | set(picks.kept)
                made = bench.refit(span, wanted)
            if done._store is not None:
                w, buffers = gather(picks.kept, made)
                done._store.put(span.tasks, {"w": w, "buffers": buffers})
                done._store.settle(trained.board, {}, save=True)
                chosen |= dict(zip(span.tasks.tolist(), picks.kept, strict=True))
            if alone:
                found = _outputs(trained, span.tasks, gather(picks.alone, made))
                if outputs is None:
                    outputs = found.new_zeros(len(rows.y), *found.shape[1:])
                outputs[rows_of(rows, span.tasks)[0]] = found
            on_round(number + 1, {})
    done.candidates = [chosen[task] for task in sorted(chosen)]
    if outputs is not None:
        done.alone = evaluate_rows(
            federation.kind, outputs, rows, federation.target_scale, federation.heads
        )
    return done


@dataclass
class _Picks:
    """A candidate for each task of a chunk."""

    kept: list[Candidate]
    alone: list[Candidate]


def _pick(bench: Bench, span: Chunk, mode: Personalise) -> _Picks:
    keys, many, device = bench.keys(0)[span.filled], len(span.filled), span.filled.device
    if not bench.judged:  # no validation rows: only training alone can have been asked for
        last = Candidate(ALONE, bench.stops(ALONE)[-1])
        return _Picks([], [last] * len(span.tasks))
    anew = [recipe for recipe in bench.recipes if recipe.start != "own"]
    kept: list[Candidate] = []
    alone: list[Candidate] = []
    if anew:
        candidates, losses, rows = bench.cross_validated(span, anew)
        single = torch.tensor([c.recipe == ALONE for c in candidates], device=device)
        safe = single.unsqueeze(1).expand(-1, many)
        if single.any():
            only = safe & False
            best = choose(losses[single], rows.offsets, only[single], keys)
            own = [c for c in candidates if c.recipe == ALONE]
            alone = [own[k] for k in best.tolist()]
        if mode == "best":
            best = choose(losses, rows.offsets, safe, keys)
            kept = [candidates[k] for k in best.tolist()]
    mine = [recipe for recipe in bench.recipes if recipe.start == "own"]
    settled = bench.nothing_of_its_own(span).tolist() if kept else [False] * many
    if mine and not all(settled):
        # What the cross-validation preferred is judged once more, beside the own model.
        candidates, losses, rows = bench.validate(span, mine, kept)
        safe = torch.tensor([[c == k for k in kept] for c in candidates], device=device)
        if not kept:
            safe = torch.zeros(len(candidates), many, dtype=torch.bool, device=device)
        own = torch.tensor([c.recipe.start == "own" for c in candidates], device=device)
        rivals = own.unsqueeze(1) | safe
        per_row = torch.repeat_interleave(rivals, rows.counts, dim=1)
        losses = torch.where(per_row, losses, torch.inf)
        best = choose(losses, rows.offsets, safe, keys, least_rows=FEW_ROWS).tolist()
        kept = [kept[i] if settled[i] else candidates[k] for i, k in enumerate(best)]
    return _Picks(kept[: len(span.tasks)], alone[: len(span.tasks)])


def _outputs(trained: Tasks, tasks: Tensor, models: Models) -> Tensor:
    """Of these tasks' models on the rows that scores are computed from."""
    place = torch.empty(len(trained.federation), dtype=torch.int64, device=tasks.device)
    place[tasks] = torch.arange(len(tasks), device=tasks.device)
    w, buffers = models
    return trained.outputs(trained.test_part, tasks, lambda k: (w[place[k]], buffers[place[k]]))


__all__ = ["RECIPES", "Personalise", "Personalised", "Recipe", "personalise"]
