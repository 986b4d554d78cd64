"""What no run can do: every refusal of a setting, or of two together. `Plan.check` calls it."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

import torch

from tacit.checks import check_type
from tacit.data.federation import Federation
from tacit.data.persons import most_tasks
from tacit.engine.attendance import Attendance
from tacit.engine.exchange import judges_without_rows
from tacit.engine.personalise import needs_validation
from tacit.engine.votes import Votes
from tacit.errors import TacitError
from tacit.experiment.engines import SIMULATE
from tacit.experiment.start import device_of, method_of, model_name
from tacit.methods import (
    METHODS,
    BillboardMethod,
    ExchangeMethod,
    FedMTL,
    Method,
    OnBillboard,
    Publishing,
    RelatedMethod,
)
from tacit.methods.grouping import Grouped
from tacit.models import MODELS
from tacit.privacy import Privacy
from tacit.secure.jobs.job import check_name
from tacit.secure.settings import Secure

if TYPE_CHECKING:
    from tacit.experiment.plan import Plan

ON_SHARES = ("similar", "everyone", "own")
"""What FedMTL may mix by where the curator is servers."""


PARTS = {"privacy": Privacy, "publishing": Publishing, "curator": Secure, "attendance": Attendance}
"""Settings that have settings of their own."""


def refuse(plan: Plan, federation: Federation, resume: bool = False) -> None:
    """Refuse what cannot work on these data, before any work."""
    refuse_types(plan)
    method = method_of(plan.method)
    _check_run(plan, method, federation)
    _check_last_step(plan, method, federation)
    _check_channel(plan, method)
    _check_unit(plan, method, federation)
    _check_curator(plan, method, federation)
    _check_engine(plan, method)
    if federation.public is not None and plan.engine != SIMULATE:
        raise TacitError(
            "workers of engine='flower' do not hold the public rows: leave engine or public out"
        )
    if plan.out is None and (resume or plan.store == "disk"):
        raise TacitError("a folder is needed: pass out=... (--out DIR)")


def refuse_tuning(plan: Plan, federation: Federation) -> None:
    """Refuse what cannot be tuned."""
    if plan.curator is not None:
        raise TacitError(
            "the machine that tunes makes all runs by itself, so that nobody sees those that lost: "
            "leave [curator] out"
        )
    if plan.patience is not None or plan.store == "disk" or plan.engine != SIMULATE:
        raise TacitError(
            "patience, store = 'disk' and engine = 'flower' are not for tuning: leave them out"
        )
    if not isinstance(plan.method, Method):
        raise TacitError(
            f"method is {plan.method!r}, but settings of a method are searched: pass one, like "
            'tacit.PMTL() (or [method] name = "pmtl")'
        )
    if not isinstance(plan.method, OnBillboard):
        raise TacitError(
            f"method is {plan.method!r}, but one that publishes sums is needed to tune"
        )
    if not isinstance(plan.privacy, Privacy):
        raise TacitError("tuning books what a choice costs: pass privacy=..., or compare by hand")
    if plan.privacy.noise_by == "task":
        raise TacitError(
            "noise_by='task' trusts nobody, but the machine that tunes must keep the runs that "
            "lost to itself: leave noise_by out, or pass settings"
        )
    if plan.privacy.tasks_epsilon is not None:
        raise TacitError(
            "persons score the runs of a tuning, and their scores are not shortened for whole "
            "tasks: leave tasks_epsilon out, or pass settings"
        )
    if not len(federation.validation.y):
        raise TacitError("runs are compared on validation rows: keep some (validation=0.2)")


def refuse_unbounded(method: Method, privacy: Privacy | None) -> None:
    """Refuse a contribution that no noise hides."""
    if privacy is None or not isinstance(method, OnBillboard) or math.isfinite(method.clip):
        return
    raise TacitError("clip must be finite under privacy: an unbounded task cannot be hidden")


def refuse_types(plan: Plan) -> None:
    """By the annotations; names of methods, models and devices are looked up elsewhere."""
    for one in dataclasses.fields(plan):
        value, part = getattr(plan, one.name), PARTS.get(one.name)
        if part is not None and not isinstance(value, part | None):
            raise TacitError(
                f"{one.name}={value!r}: pass tacit.{part.__name__}(...), or leave it out"
            )
        if get_origin(one.type) is Literal and value not in get_args(one.type):
            choices = ", ".join(get_args(one.type))
            raise TacitError(f"{one.name}={value!r}: choose one of {choices}")
        if not isinstance(one.type, str):
            check_type(one.name, one.type, value)


def _check_run(plan: Plan, method: Method, federation: Federation) -> None:
    rounds, patience, privacy = plan.rounds, plan.patience, plan.privacy
    if rounds is not None and rounds < 1:
        raise TacitError(f"rounds={rounds!r}: at least 1 is needed")
    if len(federation) < 2:
        raise TacitError("there is only one task, so there is nobody to learn from")
    if privacy is not None:
        privacy.delta_for(len(federation))  # refuses one that says nothing
    if patience is not None and patience < 1:
        raise TacitError(f"patience={patience!r}: at least 1 is needed")
    if patience is not None and privacy is not None and isinstance(method, OnBillboard):
        raise TacitError(
            "early stopping looks at all tasks without noise, which no budget covers: leave "
            "patience out, or run without privacy"
        )
    if privacy is not None and isinstance(method, ExchangeMethod):
        raise TacitError(
            f"{method.called} exchanges models through a curator, without noise, so no ε "
            "can be promised: leave privacy out, or use a method on the billboard (tacit methods)"
        )
    if isinstance(method, ExchangeMethod):
        task = judges_without_rows(method, federation)
        if task is not None:
            raise TacitError(
                f"clients of {method.called} judge models by their validation rows, but "
                f"task {task!r} has none: keep some of every task (validation=0.2)"
            )
    units = isinstance(method, BillboardMethod) and method.units == "common"
    if units and federation.public is None and not Votes.of(method, federation).columns:
        raise TacitError(
            "units='common' brings the columns of a table to common units, but here every column "
            "has its scale already: leave it out, or load the table with scale='auto'"
        )
    refuse_unbounded(method, privacy)
    device_of(plan.device)


def _check_last_step(plan: Plan, method: Method, federation: Federation) -> None:
    personalise = plan.personalise
    if method.settles and personalise not in ("best", "none"):
        raise TacitError(
            f"personalise={personalise!r}: tasks of {method.called} end with an exact "
            "solution of their own, which has nothing to fine-tune; leave it out"
        )
    if needs_validation(method, personalise) and not len(federation.validation.y):
        raise TacitError(
            f"personalise={personalise!r} lets each task choose by its own validation rows, but "
            "there are none: keep some (validation=0.2), or pass personalise='none' "
            "(--personalise none)"
        )


def _check_channel(plan: Plan, method: Method) -> None:
    """Refuse settings that belong to another channel than the method's."""
    if plan.publishing is not None and isinstance(method, ExchangeMethod):
        raise TacitError(
            f"publishing= moves the billboard, but {method.called} has none: leave it out"
        )
    plain = plan.publishing is None or not plan.publishing.scales
    if isinstance(method, Grouped) and not plain:
        raise TacitError(
            f"the billboard of {method.called} also says where groups are, which a rule or an lr "
            "of publishing= would move: leave them out (average= is fine)"
        )
    if plan.attendance is not None and not isinstance(method, ExchangeMethod):
        raise TacitError(
            f"attendance= is simulated on the exchange, but {method.called} is not on it: "
            "leave it out (cohort= draws some tasks in each round)"
        )


def _check_unit(plan: Plan, method: Method, federation: Federation) -> None:
    """Refuse what would tell about persons, or hide somebody else than was asked for."""
    unit, known = (
        plan.privacy.unit if plan.privacy else "task",
        federation.train.persons is not None,
    )
    if unit == "task" and known:
        raise TacitError(
            "these rows were prepared to protect persons: pass privacy with unit='person' or 'row' "
            "(--unit), or load them without person="
        )
    if unit == "task":
        return
    if not known:
        raise TacitError(
            f"unit={unit!r} needs rows whose persons are known, because tasks prepare those in "
            "another way: load the table with person=COLUMN (--person), or person=True for "
            "unit='row'"
        )
    assert plan.privacy is not None and federation.train.persons is not None
    plan.privacy.check_crowd(len(torch.unique(federation.train.persons)))
    places = most_tasks(federation) if unit == "person" else 1
    if places > plan.privacy.at_most:
        raise TacitError(
            f"a person is at {places} tasks, but at_most={plan.privacy.at_most} pays for fewer: "
            f"pass at_most={places} (--at-most {places}), or give different persons different names"
        )
    if not method.asks_persons:
        can = ", ".join(name for name, kind in METHODS.items() if kind.asks_persons)
        raise TacitError(
            f"{method.called} contributes what tasks made of all their persons, so no single one "
            f"can be bounded: use one of {can}"
        )
    if federation.unscaled is not None and isinstance(method, RelatedMethod):
        raise TacitError(
            f"{method.called} has a sum for every task, and so no votes of all persons for units "
            "of columns: give constants for all columns (in the schema, or scale=, target_scale=)"
        )
    counts = ["clip_quantile"] if getattr(method, "clip_quantile", None) else []
    counts += [method.called] if isinstance(method, Grouped) else []
    if plan.privacy.tasks_epsilon is not None and counts:
        raise TacitError(
            f"{counts[0]} counts persons, and a task's sum that is shortened for tasks_epsilon "
            "counts fewer: leave one of the two out"
        )
    if plan.engine != SIMULATE:
        raise TacitError("engine='flower' has tasks as its unit: leave engine or unit out")


def _check_curator(plan: Plan, method: Method, federation: Federation) -> None:
    """Refuse what a curator of servers cannot do for this method."""
    curator = plan.curator
    if curator is None:
        return
    name = method.called
    if isinstance(method, ExchangeMethod):
        _check_exchange(federation, method, curator)
        return
    if not isinstance(method, OnBillboard):
        raise TacitError(f"nothing leaves the tasks of {name}, so nobody curates: leave it out")
    if curator.trust is not None:
        raise TacitError(
            f"trust={curator.trust!r}: a sum needs no products, and additive shares already hide "
            "contributions from all servers but one together; leave trust out"
        )
    if curator.bits is not None:
        raise TacitError(f"bits={curator.bits}: sums choose their own ring; leave bits out")
    if curator.slots is not None:
        raise TacitError("slots are for task layers on the exchange: leave slots out")
    if curator.dealer is not None:
        raise TacitError("a sum needs no dealer: leave dealer out")
    if plan.privacy is None or plan.privacy.noise == 0:
        raise TacitError(
            "servers open sums with noise only: give privacy=... with noise (--epsilon), or leave "
            "curator out"
        )
    if plan.privacy.noise_by == "task":
        raise TacitError(
            "noise_by='task' with a curator: servers add the noise, and nobody sees a task's sum; "
            "leave one of the two out"
        )
    curator.require()
    if curator.peers and plan.seed is not None:
        raise TacitError(
            "server processes draw their own noise, which no seed can decide: leave seed out, or "
            "peers to simulate them"
        )
    _check_peers(federation, curator)


def _check_exchange(federation: Federation, method: ExchangeMethod, curator: Secure) -> None:
    name = method.called
    if not isinstance(method, FedMTL):
        raise TacitError(
            f"the curator of {name} does not run on shares: use FedMTL or a method on the "
            "billboard (tacit methods), or leave curator out"
        )
    for choice in (method.shared, method.heads):
        if choice not in ON_SHARES:
            raise TacitError(
                f"{choice!r} is not computed on shares: choose {', '.join(ON_SHARES)}, or leave "
                "curator out"
            )
    if curator.trust is None:
        raise TacitError(
            "products on shares need trust: 'dealer' (all servers but one may collude, and one "
            "dealer beside them with none), or 'replicated' (three servers, no two collude)"
        )
    if curator.trust == "replicated" and curator.servers != 3:
        raise TacitError(f"servers={curator.servers}: replicated shares are for exactly 3")
    if curator.peers and (curator.trust == "dealer") != (curator.dealer is not None):
        raise TacitError("trust='dealer' needs the dealer's address (dealer=...), and only that")
    curator.require()
    _check_peers(federation, curator)


def _check_peers(federation: Federation, curator: Secure) -> None:
    if not curator.peers:
        return
    if not Path(curator.certificates or "").is_dir():
        raise TacitError(f"there is no folder of certificates {curator.certificates!r}")
    for name in federation.names:
        check_name(name)


def _check_engine(plan: Plan, method: Method) -> None:
    """Refuse an engine that is not there, or that cannot do what is asked for."""
    if plan.engine == SIMULATE:
        return
    if any(importlib.util.find_spec(name) is None for name in ("flwr", "ray")):
        raise TacitError("engine='flower' needs Flower and Ray: pip install 'tacit[ray]'")
    kind = method.called
    if not isinstance(method, OnBillboard | ExchangeMethod):
        raise TacitError(
            f"nothing leaves a task with {kind}, so engine='flower' would have nothing to send: "
            "leave engine out, or choose another method (tacit methods)"
        )
    if type(method) not in METHODS.values():
        raise TacitError(
            f"engine='flower' makes methods anew at every worker, by name, and {kind} is not among "
            "those that `tacit methods` lists: leave engine out"
        )
    if model_name(plan.model) is None:
        raise TacitError(
            "engine='flower' makes the model anew at every worker, by name: give one of "
            f"{', '.join(MODELS)}, or leave engine out"
        )
    for name in ("patience", "attendance", "curator"):
        if getattr(plan, name) is not None:
            raise TacitError(f"{name}= is not for engine='flower': leave one of the two out")
    device = device_of(plan.device)
    if device.type != "cpu":
        raise TacitError(
            f"engine='flower' computes on CPUs, but device={str(device)!r}: leave one of the two "
            "out"
        )
    for name, value in dataclasses.asdict(method).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise TacitError(
                f"{name}={value} cannot be sent to the workers of engine='flower': give a finite "
                "number, or leave engine out"
            )
