"""What all private estimators are told, checked before any rows are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from tacit.engine.personalise import needs_validation
from tacit.errors import TacitError
from tacit.local.flat import ModelFactory
from tacit.local.recipes import Personalise
from tacit.methods import AUTO, METHODS, Method, RelatedMethod
from tacit.methods.linear import LinearMethod
from tacit.models import MODELS
from tacit.privacy import Ledger, Prepaid, Privacy
from tacit.privacy.sampling import Neighbours, Unit
from tacit.sklearn.base import MultiTask, check_flag, number, whole

LAYERS = ("linear", "mlp", "additive")
"""Models by name that read rows of numbers."""


class PrivateSettings(MultiTask):
    def __init__(
        self,
        method: str | Method = AUTO,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        neighbours: Neighbours = "add-remove",
        unit: Unit = "task",
        n_persons: int | None = None,
        at_most: int = 1,
        tasks_epsilon: float | None = None,
        rounds: int | None = None,
        model: str | nn.Module | ModelFactory = "linear",
        fit_intercept: bool = True,
        random_state: int | np.random.RandomState | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.neighbours: Neighbours = neighbours
        self.unit: Unit = unit
        self.n_persons = n_persons
        self.at_most = at_most
        self.tasks_epsilon = tasks_epsilon
        self.rounds = rounds
        self.model = model
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.ledger = ledger

    def _several_classes(self) -> bool:
        if isinstance(self.method, str) and self.method == AUTO:
            return True
        kind = METHODS.get(self.method) if isinstance(self.method, str) else type(self.method)
        if kind is None or not issubclass(kind, LinearMethod):
            return True
        return "multiclass" in kind.kinds

    def _method(self) -> Method | str:
        if isinstance(self.method, str) and self.method == AUTO:
            return AUTO
        known = [AUTO] + [n for n, kind in METHODS.items() if not issubclass(kind, RelatedMethod)]
        if isinstance(self.method, Method) and not isinstance(self.method, RelatedMethod):
            return self._fits(self.method)
        if not isinstance(self.method, str) or self.method not in known:
            raise TacitError(
                f"method={self.method!r}: choose one of {', '.join(known)}, or pass such a method "
                "with settings of your own, like tacit.SharedPrior(mean=0)"
            )
        return self._fits(METHODS[self.method]())

    def _fits(self, method: Method) -> Method:
        """The method, if it can train the model; most have no usual one but a linear one."""
        usual = method.usual_model
        if isinstance(self.model, str) and usual not in (Method.usual_model, self.model):
            raise TacitError(
                f"model={self.model!r}: {method.called} trains additive models; pass "
                f"model={usual!r} too, with features of about unit size"
            )
        return method

    def _last_step(self, method: Method | str) -> Personalise:
        """As in `tacit.train`; but a line through the origin stays one, and a fit keeps no
        validation rows that a task of the exchange could choose by."""
        chooses = isinstance(method, str) or not needs_validation(method, "best")
        return "best" if chooses and self.fit_intercept else "none"

    def _rounds(self) -> int | None:
        if self.rounds is None:
            return None
        if not whole(self.rounds) or self.rounds < 1:
            raise TacitError(f"rounds={self.rounds!r}: a whole number, 1 or more, is needed")
        return int(self.rounds)

    def _privacy(self) -> Privacy | None:
        for name in ("epsilon", "delta", "tasks_epsilon"):
            value = getattr(self, name)
            if value is not None and not number(value):
                raise TacitError(f"{name}={value!r}: a number or None is needed")
        if self.epsilon is not None:
            delta = None if self.delta is None else float(self.delta)
            promise: Any = {"epsilon": float(self.epsilon), "delta": delta}
            return Prepaid(**promise, neighbours=self.neighbours, **self._hidden())
        given = (self.delta, self.neighbours, self.unit, self.n_persons, self.at_most)
        if (*given, self.tasks_epsilon) != (None, "add-remove", "task", None, 1, None):
            raise TacitError(
                "epsilon=None asks for no privacy, so delta, neighbours, unit, n_persons, "
                "tasks_epsilon and at_most say nothing: leave them out, or pass epsilon"
            )
        return None

    def _hidden(self) -> dict[str, Any]:
        """Who is, where that is not the task."""
        for name in ("n_persons", "at_most"):
            value = getattr(self, name)
            if value is not None and not whole(value):
                raise TacitError(f"{name}={value!r}: a whole number is needed")
        if self.unit in ("person", "row") and self.n_persons is None:
            raise TacitError(
                f"unit={self.unit!r} needs n_persons, about how many {self.unit}s all tasks have "
                "together, as everybody may know: it sets how far a step goes, and need not be "
                "right"
            )
        if self.unit == "task" and (self.n_persons is not None or self.at_most != 1):
            raise TacitError("n_persons and at_most are about persons: pass unit='person' too")
        count = None if self.n_persons is None else int(self.n_persons)
        whole_tasks = None if self.tasks_epsilon is None else float(self.tasks_epsilon)
        hidden = {"unit": self.unit, "persons": count, "at_most": int(self.at_most)}
        return hidden | {"tasks_epsilon": whole_tasks}

    def _seed(self) -> int | None:
        state = self.random_state
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        if state is None:
            return None
        if not whole(state) or state < 0:
            raise TacitError(
                f"random_state={state!r}: None (private), a whole number or a RandomState is needed"
            )
        return int(state)

    def _layers(self) -> nn.Module | ModelFactory:
        check_flag(self.fit_intercept, "fit_intercept")
        model = self.model
        if isinstance(model, str) and model in LAYERS:
            model = MODELS[model]
        if isinstance(model, str) or not callable(model):
            raise TacitError(
                f"model={self.model!r}: choose one of {', '.join(LAYERS)}, or pass a torch module"
            )
        if self.fit_intercept:
            return model
        if self.model != "linear":
            raise TacitError("fit_intercept=False is for model='linear' only: leave it out")
        return MODELS["linear-no-intercept"]

    def _path(self, privacy: Privacy | None) -> Path | None:
        if self.ledger is None:
            return None
        if not isinstance(self.ledger, str | Path) or not Path(self.ledger).parent.is_dir():
            raise TacitError(f"ledger={self.ledger!r}: a file in a folder that exists is needed")
        epsilon = None if privacy is None else privacy.epsilon
        if epsilon is None:
            raise TacitError(
                "ledger= adds up what noisy releases cost, but epsilon=None adds no noise: leave "
                "one of them out"
            )
        known = Ledger.at(Path(self.ledger)).releases()  # says so if it is damaged
        if privacy is not None and any(entry.unit != privacy.unit for entry in known):
            raise TacitError(
                f"ledger={self.ledger!r} holds releases of another unit than {privacy.unit!r}, and "
                "units are never added up: give another file"
            )
        return Path(self.ledger)
