"""Tasks that did not take part: what is public gives them a model, and a few rows one of their own.

Nothing of them reaches anybody: the billboard does not change, and costs no more ε. A new task
needs the constants that rows are scaled with, so there must be public ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from tacit.data.cells import Table, task_names
from tacit.data.federation import NUMBERS, Federation, Rows, TargetScale
from tacit.data.given import target_of
from tacit.data.representation import represent
from tacit.data.tabular import as_table
from tacit.data.targets import class_codes, no_count
from tacit.engine.evaluate import Personal
from tacit.errors import TacitError
from tacit.formula.design import FormulaSchema
from tacit.local.batches import Batches, all_rows
from tacit.local.flat import FlatModel
from tacit.methods import METHODS, Method, OnBillboard, RelatedMethod
from tacit.methods.base import Board

ENDLESS = "inf"
"""JSON has no word for it."""


def as_plain(method: Method) -> dict[str, Any] | None:
    """A method as plain values; None for one of somebody's own."""
    name = next((name for name, kind in METHODS.items() if kind is type(method)), None)
    settings = {key: ENDLESS if v == math.inf else v for key, v in asdict(method).items()}
    return None if name is None else {"name": name, **settings}


def from_plain(given: dict[str, Any] | None) -> Method | None:
    if given is None or given.get("name") not in METHODS:
        return None
    settings = {key: math.inf if v == ENDLESS else v for key, v in given.items() if key != "name"}
    return METHODS[given["name"]](**settings)


@dataclass(frozen=True)
class Newcomers:
    """What a run published, as a task reads it that was not there."""

    method: Method | None
    """None where nobody knows it any more."""
    model: FlatModel
    board: Board

    def beside(
        self, federation: Federation, personal: Personal, guests: Sequence[str], join: Any
    ) -> tuple[Federation, Personal]:
        """The federation with these tasks at its end, and the models of all.

        `join` is a table of rows whose target is known, or None: tasks that have some there learn
        from them, as they would have at the end of the run.
        """
        public = self._public(federation, guests)
        own = {} if join is None else self._learn(federation, join)
        of = [own.get(guest, public) for guest in guests] or [public]
        w, buffers = (torch.stack(side) for side in zip(*of, strict=True))
        tasks = len(federation)

        def models(numbers: Tensor) -> tuple[Tensor, Tensor]:
            new = (numbers >= tasks).unsqueeze(1)
            old = personal(numbers.clamp(max=tasks - 1))
            place = (numbers - tasks).clamp(min=0)
            return torch.where(new, w[place], old[0]), torch.where(new, buffers[place], old[1])

        return _with_guests(federation, guests), models

    def model_for(
        self, federation: Federation, task: str, x: np.ndarray, y: Any
    ) -> tuple[Federation, tuple[Tensor, Tensor]]:
        """The federation with this task at its end, and the model that it learns from its rows."""
        self._public(federation, [task])
        _check_new(federation, [task])
        known = _coded(federation, y)
        if len(known) != len(x) or not len(x):
            raise TacitError(f"there are {len(x)} rows but {len(known)} targets: give one for each")
        model = self._join(federation, self._joining(), np.asarray(x, np.float32), known)
        return _with_guests(federation, [task]), model

    def _public(self, federation: Federation, guests: Sequence[str]) -> tuple[Tensor, Tensor]:
        """What the billboard alone gives a task; or why that is nothing."""
        method, some = self.method, ", ".join(map(str, federation.names[:5]))
        why = "nothing was published that would give it a model"
        if _own_constants(federation):
            why = "rows are scaled inside each task, so nothing public says how to scale its own"
        elif _shares(method) and federation.heads is None:
            state = method.state(self.model, self.board)
            w = method.personal(self.model, self.board, state)
            if not torch.equal(w, self.model.start):
                return w, state["buffers"]
        who = f"task {guests[0]!r}" if guests else "this task"
        raise TacitError(
            f"{who} was not part of the training, and {why}; tasks are named like {some}"
        )

    def _joining(self) -> Method:
        """The method, where a task can join by rows of its own."""
        if self.method is None or not self.method.joins:
            raise TacitError(
                "tasks of this method train by gradient steps, which new ones cannot make up for: "
                "predict without rows to join by (join=, --join), or use a method like mixed or "
                "clusters"
            )
        return self.method

    def _learn(self, federation: Federation, join: Any) -> dict[str, tuple[Tensor, Tensor]]:
        """The models of tasks with rows in this table, each from its own rows."""
        method, schema = self._joining(), federation.schema
        if schema is None:
            raise TacitError(
                "join= is a table, but the run was not made from one: use model_for(task, x, y)"
            )
        table = as_table(join)
        names = task_names(table, schema.task).astype(str)
        _check_new(federation, names.tolist())
        x, y = schema.matrix(table)[0], _answers(table, schema)
        return {
            name: self._join(federation, method, x[names == name], y[names == name])
            for name in dict.fromkeys(names.tolist())
        }

    def _join(
        self, federation: Federation, method: Method, x: np.ndarray, y: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        guest, device = _with_guests(federation, ["it"]), self.model.start.device
        made, scale, target = guest.preprocessing, guest.target_scale, torch.from_numpy(y)
        seen = torch.from_numpy(x).float() if made is None else made.apply(x, len(federation))
        if not seen.isfinite().all():
            raise TacitError("a row to join by holds a missing or infinite value: fill it in")
        if federation.representation is not None:
            seen = represent(federation.representation, seen)
        if scale is not None:
            target = (target - scale.shift[-1].double()) / scale.scale[-1].double()
        target = target if federation.kind == "multiclass" else target.float()
        rows = Rows(seen.to(device), target.to(device), torch.tensor([0, len(y)], device=device))
        batches = all_rows(rows, torch.zeros(1, dtype=torch.int64, device=device), len(y))

        def join(batches: Batches) -> tuple[Tensor, Tensor]:
            state = method.join(self.model, self.board, batches)
            return method.personal(self.model, self.board, state), state["buffers"]

        w, buffers = vmap(join)(batches)
        return w[0], buffers[0]


def _shares(method: Method | None) -> TypeGuard[OnBillboard]:
    """Whether all that is public is the same for everybody."""
    return isinstance(method, OnBillboard) and not isinstance(method, RelatedMethod)


def _check_new(federation: Federation, names: Iterable[str]) -> None:
    members = set(federation.names)
    there = next((name for name in names if name in members), None)
    if there is not None:
        raise TacitError(
            f"task {there!r} took part, and has its model: remove its rows from those to join by"
        )


def _coded(federation: Federation, y: Any) -> np.ndarray:
    """Targets as tasks learn from them: numbers, or the codes of classes."""
    given = np.asarray(y)
    if federation.kind in NUMBERS:
        if given.dtype.kind not in "biuf" or not np.isfinite(given).all():
            raise TacitError("y holds a value that is not a finite number: correct it")
        if federation.kind == "count" and no_count(given).any():
            raise TacitError("y holds a value that is not a count: a whole number, 0 or more")
        return given.astype(np.float64)
    if federation.kind not in ("binary", "multiclass"):
        raise TacitError(
            f"model_for knows one number or class as a target, and this run's are {federation.kind}"
            ": give predict a table to join by"
        )
    codes = class_codes(given.astype(str).astype(object), federation.labels)
    if (codes < 0).any():
        raise TacitError(
            f"{str(given[int(np.argmin(codes))])!r} is not a class of this run: they are "
            f"{', '.join(federation.labels)}"
        )
    return codes if federation.kind == "multiclass" else codes.astype(np.float64)


def _own_constants(federation: Federation) -> bool:
    """Whether rows or targets are scaled by what each task keeps to itself."""
    made, target = federation.preprocessing, federation.target_scale
    sides = [] if made is None else [made.shift, made.scale]
    sides += [] if target is None else [target.shift, target.scale]
    return bool(federation.own_columns) or any(bool((side != side[:1]).any()) for side in sides)


def _with_guests(federation: Federation, guests: Sequence[str]) -> Federation:
    """More tasks, scaled by the constants that all have; gaps are filled in at the centre."""
    made, target, many = federation.preprocessing, federation.target_scale, len(guests)

    def longer(side: Tensor, public: Tensor) -> Tensor:
        if len(side) < len(federation):  # once for everybody
            return side
        return torch.cat([side, public[:1].expand(many, *side.shape[1:]).to(side)])

    if made is not None:
        fill = None if made.fill is None else longer(made.fill, made.shift)
        shift, scale = (longer(side, side) for side in (made.shift, made.scale))
        made = replace(made, shift=shift, scale=scale, fill=fill)
    if target is not None:
        target = TargetScale(*(longer(side, side) for side in (target.shift, target.scale)))
    names = [*federation.names, *guests]
    return replace(federation, names=names, preprocessing=made, target_scale=target)


def _answers(table: Table, schema: Any) -> np.ndarray:
    if isinstance(schema, FormulaSchema):
        return schema.answers(table)
    return target_of(table, schema).y
