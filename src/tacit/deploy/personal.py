"""A silo's own last step: what it makes of the billboard with its own rows, and where it keeps it.

Nothing here costs privacy, and nothing here is sent: under billboard privacy a silo may use its own
rows as often as it likes. The model lies beside the data and outlives the run.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit import metrics
from tacit.data.cells import Table
from tacit.data.federation import Federation, Part, Rows, TargetScale
from tacit.data.heads import PUBLIC, Heads
from tacit.deploy.diary import read_diary
from tacit.deploy.events import Contributed
from tacit.deploy.terms import Own
from tacit.deploy.trust import what_leaves
from tacit.deploy.work import Work
from tacit.engine import evaluate
from tacit.engine.personalise import KIND, needs_validation, personalise, take_away
from tacit.engine.progress import Progress
from tacit.engine.tasks import Tasks
from tacit.errors import TacitError
from tacit.experiment.baselines import exactly_alone, lower, untold_scores
from tacit.experiment.models import SavedModels, write_models
from tacit.experiment.verdict import RunFacts, Verdict, by_row, judge
from tacit.files import replace
from tacit.inference.effects import effects_of
from tacit.local.recipes import Candidate, Personalise
from tacit.methods import Mixed
from tacit.privacy import NOT_COVERED, Guarantee

MODEL, REPORT = "model", "report.json"


def keep_personal(
    work: Work, own: Own, mode: Personalise, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Fine-tune and choose on this silo's rows, keep the model, and say how good it is."""
    trained = work.reopen()
    if trained is None:
        raise TacitError("this silo has seen no billboard yet: take part in a run first")
    task, part = torch.tensor([work.task]), trained.test_part
    settles = trained.method.settles
    if needs_validation(trained.method, mode) and not len(trained.federation.validation.y):
        mode = "none"  # nothing to choose by
    done = personalise(trained, mode, progress, alone=True, tasks=task)
    models: evaluate.Personal = done.models if done.chosen else trained.personal
    combined, alone, blend = done.ended, done.alone, None
    scores = trained.measure(part, task, models, combined and combined.blend)
    if combined is not None:
        best = trained.measure(part, task, blend=combined.alone)
        alone = best if alone is None else lower(best, alone)
    elif settles:
        alone = exactly_alone(trained, task)
    if settles and alone is not None:
        alone = lower(alone, untold_scores(trained, combined and combined.blend, task))
    taken = take_away(trained, done)
    if taken is not None:
        models, blend = taken.models, dataclasses.replace(taken.blend, place=torch.zeros(1).long())
    ended = done.candidates[0] if done.candidates else None
    federation = _alone(trained.federation, work, own)
    learned = trained.model, lambda k: models(task[k]), trained.shown
    write_models(folder / MODEL, federation, *learned, work.terms.model, blend=blend)
    report = _report(work, trained, part, scores, alone, ended) | _left(folder)
    replace(folder / REPORT, json.dumps(report, indent=2, ensure_ascii=False).encode())
    return report


def _report(
    work: Work,
    trained: Tasks,
    part: Part,
    scores: metrics.Metrics,
    alone: metrics.Metrics | None,
    ended: Candidate | None,
) -> dict[str, Any]:
    kind, heads = trained.federation.kind, trained.federation.heads
    name, higher = metrics.main_score(kind, heads, scores.overall.get("majority"))
    size, method = trained.course.contribution_size, trained.method
    summed_up = isinstance(method, Mixed) and method.summed_up
    spent = work.spent
    return {
        "silo": work.terms.silos[work.task],
        "consortium": work.terms.consortium,
        "kind": work.terms.kind,
        "rounds": trained.board.round,
        "label": NOT_COVERED,
        "rows": int(trained.federation.train.counts.sum()),
        "measured_on": part,
        "score": name,
        "higher_is_better": higher,
        "personal": _finite(scores.overall),
        "alone": None if alone is None else _finite(alone.overall),
        "verdict": _verdict(work, trained, part, scores, alone).to_json(),
        "chosen": "what the method left" if ended is None else str(ended),
        "ended": None if ended is None else dict(zip(KIND, ended.kind, strict=False)),
        "spent": None if spent is None else {**dataclasses.asdict(spent), "in_words": str(spent)},
        "numbers": size if work.exchanges else work.channel.place.size(size),
        "leaves": what_leaves(work.terms),
        "guarantee": _describe_promise(work, trained).to_json(),
        **({"effects": effects_of(trained, work.task).to_json()} if summed_up else {}),
    }


def _verdict(
    work: Work,
    trained: Tasks,
    part: Part,
    scores: metrics.Metrics,
    alone: metrics.Metrics | None,
) -> Verdict:
    """This silo's own, over its rows; what helped others it does not know."""
    diverged = bool(trained.diverged[work.task])
    facts = RunFacts(
        tasks=len(trained.federation),
        epsilon=_describe_promise(work, trained).epsilon,
        shares=trained.method.channel != "nothing",
        unseen=part == "test",
        broken=("the training of this silo diverged",) if diverged else (),
        party="row",
        best_alone="the best model that this silo has alone",
    )
    return judge(by_row(scores), None if alone is None else by_row(alone), facts)


def _left(folder: Path) -> dict[str, Any]:
    """How often something left this silo, in all runs, as far as its diary can be read."""
    entries, unreadable = read_diary(folder)
    events = [entry.event for entry in entries]
    times = sum(isinstance(event, Contributed) and event.takes_part for event in events)
    return {"contributions": times, "unreadable_events": unreadable}


def _describe_promise(work: Work, trained: Tasks) -> Guarantee:
    """What the run promises this silo, read off the silo's own ledger of it."""
    federation, seeded = trained.federation, work.terms.seed is not None
    given: Any = {"seeded": seeded, "public": [PUBLIC] if federation.heads else []}
    promise = trained.course.promise(federation, work.terms.make_privacy(), **given)
    return dataclasses.replace(promise, party="silo")


def _finite(scores: Mapping[str, float | None]) -> dict[str, float | None]:
    """A score that is not finite becomes null, because JSON has no NaN."""
    return {k: v if v is not None and math.isfinite(v) else None for k, v in scores.items()}


def _alone(trained: Federation, work: Work, own: Own) -> Federation:
    """This silo as the only task, with what turns its tables into rows: own constants, or those
    that the run found."""
    terms, task = work.terms, work.task
    none = torch.zeros(0, *terms.input_shape)
    nothing = Rows(none, torch.zeros(0), torch.zeros(2, dtype=torch.int64))
    heads, scale = trained.heads, trained.target_scale
    mine = None
    if heads is not None:
        mine = Heads(heads.names, heads.outputs, heads.holds[task : task + 1])
    known: Any = {"features": terms.features, "labels": terms.labels, "heads": mine}
    if scale is not None:
        scale = TargetScale(scale.shift[task : task + 1], scale.scale[task : task + 1])
    known |= {"preprocessing": trained.preprocessing, "target_scale": scale}
    parts, names = (nothing, nothing, nothing), [terms.silos[task]]
    return Federation(names, terms.kind, terms.outputs, *parts, schema=own.schema, **known)


def predict_rows(folder: Path, table: Table) -> tuple[np.ndarray, SavedModels]:
    """Predictions for new rows by the model in this silo's folder; no server is needed."""
    if not (folder / MODEL / "about.json").exists():
        raise TacitError(
            f"{folder} has no model yet: take part in a run, or make one with `tacit silo "
            "personalise`"
        )
    models = SavedModels.load(folder / MODEL)
    name = models.federation.names[0]
    return models.predict(table, [name] * table.rows), models
