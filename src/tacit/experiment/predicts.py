"""What a finished run does for tasks by name, from what it has in memory or from its files."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit import survival
from tacit.data.cells import task_names
from tacit.data.federation import Federation
from tacit.data.lacking import completed
from tacit.data.representation import represent
from tacit.data.schema import Schema
from tacit.data.tabular import as_table
from tacit.engine import evaluate
from tacit.engine.blend import Blend
from tacit.errors import TacitError
from tacit.experiment.newcomers import Newcomers
from tacit.experiment.personal import PersonalModel
from tacit.families import expected_count


class Predicts(ABC):
    """Models of tasks, by name: one of them, or predictions of them all."""

    federation: Federation
    """The tasks, and how rows are read and scaled."""
    newcomers: Newcomers
    """What is public, for tasks that did not take part."""
    blend: Blend | None
    """What tasks combine with these models, if they do."""

    @abstractmethod
    def models(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and buffers that these tasks ended with, stacked."""

    def personal(self, task: str) -> PersonalModel:
        """The model of one task as a torch module of its own, for raw rows."""
        index, model = self.federation.index(task), self.newcomers.model
        w, buffers = self.models(torch.tensor([index], device=model.start.device))
        blend = None if self.blend is None else self.blend.cpu()
        return PersonalModel(model.module(w[0], buffers[0]), self.federation, index, blend)

    def model_for(self, task: str, x: Any, y: Any) -> PersonalModel:
        """The model of a task that did not take part, from rows of its own.

        `x` are raw rows as for `predict`, `y` their targets in the target's units, or classes by
        name. It joins as the tasks of the run did at its end. That is free, because nothing leaves
        it: the billboard stays as it is.
        """
        rows, _ = _rows(self.federation, x, ())
        beside, models = self.newcomers.model_for(self.federation, str(task), rows, y)
        inner = self.newcomers.model.module(*models)
        return PersonalModel(inner, beside, len(self.federation))

    def predict(self, x: Any, tasks: Any = None, *, join: Any = None) -> Any:
        """Predictions for new raw rows: an array, or a table with the training columns.

        A table's own column says whose each row is, unless `tasks` does. A task that did not take
        part is predicted by what is public, where that is a model, as it is for `mixed`. `join` is
        a table of rows of such tasks, with the target: they learn from them.

        Regression gives numbers in the target's units, count expected counts, binary a probability,
        multiclass class probabilities [n, classes], multilabel probabilities [n, labels],
        segmentation probabilities of the classes within each head [n, heads · classes, height,
        width], survival a risk (events that are expected until the last of the cuts) and the
        probability to have had none at each cut [n, 1 + cuts].
        """
        federation, model, personal = self.federation, self.newcomers.model, self.models
        x, named = _rows(federation, x, tasks)
        there = set(federation.names)
        guests = [name for name in dict.fromkeys(named) if name not in there]
        if guests or join is not None:
            federation, personal = self.newcomers.beside(federation, personal, guests, join)
        number = {name: k for k, name in enumerate(federation.names)}
        numbers = np.array([number[name] for name in named], dtype=np.int64)
        if len(numbers) != len(x):
            raise TacitError(f"there are {len(x)} rows but {len(numbers)} task names")
        raw, device = np.asarray(x, dtype=np.float32), model.start.device
        rows = torch.from_numpy(raw)
        if federation.preprocessing is not None:
            rows = federation.preprocessing.apply(raw, numbers)
        if not rows.isfinite().all():
            bad = int((~rows.isfinite()).reshape(len(rows), -1).any(dim=1).nonzero()[0])
            raise TacitError(f"row {bad} holds a missing or infinite value: fill it in")
        if federation.representation is not None:
            rows = represent(federation.representation, rows)
        out = evaluate.outputs_by_task(model, personal, rows, numbers)
        if self.blend is not None:
            out = self.blend(rows.to(device), out, torch.from_numpy(numbers).to(device))
        scale = federation.target_scale
        if federation.kind == "regression" and scale is not None:
            shift, wide = (side.cpu().double()[numbers] for side in (scale.shift, scale.scale))
            return (shift + wide * out.cpu().double().flatten()).numpy()
        if federation.kind == "regression":
            return out.cpu().numpy()
        if federation.kind == "count":
            return expected_count(out).cpu().numpy()
        if federation.kind == "multiclass":
            return out.softmax(dim=1).cpu().numpy()
        if federation.kind == "segmentation":
            # The classes of a pixel compete within each head.
            heads = 1 if federation.heads is None else len(federation.heads)
            return out.unflatten(1, (heads, -1)).softmax(dim=2).flatten(1, 2).cpu().numpy()
        if federation.kind == "survival":
            return np.column_stack(survival.predicted(out.double().cpu().numpy()))
        return out.sigmoid().cpu().numpy()


def _rows(federation: Federation, x: Any, tasks: Any) -> tuple[Any, list[str]]:
    """Raw rows, and whose each is: by `tasks`, or by the task column of a table."""
    schema = federation.schema
    if isinstance(x, str | Path | Mapping) or hasattr(x, "columns"):
        if schema is None:
            raise TacitError("the run was not made from a table: give rows of numbers, and tasks")
        x = as_table(x)
        if tasks is None:
            tasks = task_names(x, schema.task)
        if isinstance(schema, Schema):
            x, unlike = completed(schema, x)
            if unlike is not None:
                warnings.warn(unlike, stacklevel=3)
        x, _ = schema.matrix(x)
    if tasks is None:
        raise TacitError("rows of numbers do not say whose they are: pass tasks too")
    return x, [str(task) for task in tasks]
