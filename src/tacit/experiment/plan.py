"""The plan of a run: every setting, declared once.

`tacit.train(...)`, `tacit.tune(...)` and `tacit.audit(...)`, the flags of the command line, an
experiment's file and a consortium's only make a plan, and `Plan.check` alone refuses one.

`tacit --help` reads this module, so it imports no torch. A type that needs it is written in quotes;
in files and on the command line such a setting is text.
"""

import inspect
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from tacit.checks import near
from tacit.errors import TacitError
from tacit.experiment.engines import SIMULATE
from tacit.local.recipes import Personalise
from tacit.secure.settings import Secure
from tacit.shown import as_html

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tacit.data.federation import Federation
    from tacit.engine.attendance import Attendance
    from tacit.local.flat import ModelFactory
    from tacit.methods import Method, Publishing
    from tacit.privacy import Privacy

AUTO = "auto"
RENAMED = {"server": "publishing"}
"""Settings that had another name; that one works for one more version."""
Takes = TypeVar("Takes", bound=Callable[..., Any])


class Flag(NamedTuple):
    """A setting on the command line, and its place in an experiment's file."""

    name: str
    kind: Any
    """What is read: `list` for names with commas, `dict` for name=value, said again and again."""
    help: str
    panel: str
    section: str
    key: str


def setting(
    default: Any,
    help: str = "",
    *,
    panel: str = "Run",
    place: str = "run",
    parts: Mapping[str, tuple[Any, str]] | None = None,
    decides: bool = True,
    agreed: bool = False,
) -> Any:
    """A setting with its flag; `parts` are flags for settings of its own.

    `place` is its section in a file, or the section and the name there. A setting that `decides`
    what the result is must be the same when a run is resumed. One that is `agreed` stands in a
    consortium's file too.
    """
    about = {"help": help, "panel": panel, "place": place, "parts": parts or {}}
    return field(default=default, metadata=about | {"decides": decides, "agreed": agreed})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that decides a run.

    Parameters
    ----------
    method : "auto" chooses by public facts (`.auto`); or a name that `tacit methods` lists;
        or `tacit.PMTL(...)`, `tacit.FedMTL(...)`, `tacit.Local(...)`, …
    model : a torch module, a function `federation -> module`, or a name in `tacit.models.MODELS`
    publishing : what is done with a release before it is published, such as averaging
        (`tacit.Publishing`); only on the billboard
    privacy : what to promise; None publishes exact sums (no clip, no noise, no guarantee)
    curator : `tacit.Secure(...)` for servers that sum on secret shares, with noise inside, so that
        nobody sees a contribution; None for one machine that sees them all
    rounds, cohort : how often, and the rate (0, 1] or number of tasks per round; None for what is
        usual for the method: mostly 100 rounds with everyone
    seed : makes the run reproducible, and therefore *not private*
    patience : stop after so many evaluations without a lower validation loss; refused with
        `privacy`, because the moment of stopping would tell something about all tasks
    attendance : which clients join late or are lost in a round (`tacit.Attendance`); only on the
        exchange
    personalise : the last step, which each task takes on its own rows at no privacy cost: "best"
        chooses and combines all it could do (see docs/methods.md), one way of fine-tuning
        ("vanilla", "mean", "kl", "ewc"), or "none" to keep the method's own models
    baselines : also measure training alone, a global model and, where that is cheap, the same
        without privacy; their models are thrown away, their scores are not covered by the guarantee
    device : "cpu" or "cuda"
    store : "disk" keeps personal models in one memory-mapped file in `out`
    engine : "simulate" trains all tasks in this process; "flower" makes the same run on Flower's
        simulation engine, with every task a silo at Ray's workers: on the cluster that RAY_ADDRESS
        names (then `out` must be on a file system that all its machines share), otherwise on the
        cores of this machine. It needs `tacit[ray]`, a model and a method by name, and CPUs
    out : folder for ledger, checkpoint, result, models and report; a private run without a seed
        always has one (default `runs/<method>-<time>`), because its ledger must survive
    """

    method: "Method | str" = setting(
        AUTO,
        "auto (default) or one of `tacit methods`.",
        panel="Method",
        place="method.name",
        parts={
            "lr": (float, "Local step size."),
            "local_steps": (int, "Local steps per round."),
            "batch": (int, "Rows per local step."),
            "clip": (float, "Largest norm of a contribution."),
            "pull": (float, "PMTL: pull towards the mean."),
            "set": (dict, "Any other setting of the method: name=value."),
        },
    )
    model: "nn.Module | ModelFactory | str" = setting(
        "linear", "linear (default), mlp, cnn, …", panel="Method", agreed=True
    )
    publishing: "Publishing | None" = setting(
        None,
        panel="Method",
        place="publishing",
        parts={
            "publishing": (
                dict,
                "What is done with a release before it is published: rule=momentum, lr=0.5, …",
            )
        },
    )
    privacy: "Privacy | None" = setting(
        None,
        panel="Privacy",
        place="privacy",
        parts={
            "epsilon": (float, "The promise; without it (or --noise), no privacy."),
            "delta": (float, "Default 1 / (10 tasks), at most 0.001."),
            "large_delta": (Literal[True], "Take a δ above 1 / tasks."),
            "noise": (float, "Noise multiplier, instead of ε."),
            "neighbours": (str, "add-remove or replace."),
            "sampling": (str, "poisson, in-turn or everyone."),
            "unit": (str, "Whom to hide: task (default), person, or row."),
            "persons": (int, "About how many persons (or rows) there are in all, as is public."),
            "at_most": (int, "How many tasks a person may be at (1)."),
            "noise_by": (str, "curator (default), or task: each adds its own, and trusts nobody."),
            "tasks_epsilon": (float, "With persons hidden: also hide whole tasks, at this ε."),
        },
    )
    curator: Secure | None = setting(
        None,
        "secure: servers work on shares, so that none sees a contribution.",
        panel="Curator",
        place="curator.kind",
        parts={
            "servers": (int, "How many servers (3)."),
            "trust": (str, "dealer or replicated; only on the exchange."),
            "bits": (int, "32 or 64; only on the exchange."),
            "slots": (
                int,
                "Task layers that each client uploads, fakes among them (as many as heads).",
            ),
            "peers": (list, "Addresses of server processes, with commas."),
            "dealer": (str, "Address of the dealer's process."),
            "certificates": (Path, "Folder of all parties' certificates."),
        },
    )
    rounds: int | None = setting(
        None, "Number of rounds, if not what is usual for the method.", agreed=True
    )
    cohort: float | int | None = setting(
        None, "Share (1 = all) or number of tasks per round.", agreed=True
    )
    seed: int | None = setting(None, "Reproducible, and therefore not private.", agreed=True)
    patience: int | None = setting(
        None, "Stop early on validation loss; not with privacy.", decides=False
    )
    attendance: "Attendance | None" = setting(None, place="")
    personalise: Personalise = setting(
        "best", "Each task's last step: best (default), vanilla, mean, kl, ewc or none."
    )
    baselines: bool = setting(
        True, "Compare with training alone and a global model.", decides=False
    )
    device: "str | torch.device" = setting("cpu", "cpu or cuda.", decides=False)
    store: Literal["memory", "disk"] = setting(
        "memory", "memory, or disk for very many tasks.", decides=False
    )
    engine: Literal["simulate", "flower"] = setting(
        SIMULATE,
        "simulate (default), or flower: the same on Ray, for which RAY_ADDRESS may name a cluster.",
    )
    out: str | Path | None = setting(None, "Folder for the result.", decides=False)

    @classmethod
    def of(cls, **settings: Any) -> "Plan":
        """A plan with these settings, if there are such and they are of the right types."""
        known = [one.name for one in fields(cls)]
        settings = with_new_names(settings)
        for name in settings:
            if name not in known:
                raise TacitError(f"there is no setting {name!r}{near(name, known, len(known))}")
        plan = cls(**settings)
        _refusals().refuse_types(plan)
        return plan

    def but(self, **changes: Any) -> "Plan":
        """The same with other values."""
        return replace(self, **changes)

    def check(self, federation: "Federation", *, resume: bool = False) -> None:
        """Refuse what cannot work on these data, before any work.

        `experiment.auto` has chosen what was left open.
        """
        _refusals().refuse(self, federation, resume)

    def check_tuning(self, federation: "Federation") -> None:
        """Refuse what cannot be tuned; beside `check`, and before anything is chosen."""
        _refusals().refuse_tuning(self, federation)

    def to_json(self) -> dict[str, Any]:
        """What decides the result, as plain values.

        A setting that came later than others is left out where it is the default, so that older
        runs can be resumed.
        """
        first = ("model", "privacy", "rounds", "cohort", "seed", "personalise", "publishing")
        decisive = {one.name: one.default for one in fields(Plan) if one.metadata["decides"]}
        del decisive["method"]  # it has settings of its own
        values = {name: getattr(self, name) for name in decisive}
        return {
            name: _plain(value)
            for name, value in values.items()
            if name in first or value != decisive[name]
        }

    def _repr_html_(self) -> str:
        values = {one.name: (one.default, getattr(self, one.name)) for one in fields(self)}
        chosen = {name: _plain(value) for name, (usual, value) in values.items() if value != usual}
        usual = {name: _plain(value) for name, (value, _) in values.items() if name not in chosen}
        return as_html("plan", {"chosen": chosen, "usual": usual})


def with_new_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings; one that has its old name is taken, with a warning."""
    found = dict(settings)
    for old, new in RENAMED.items():
        value = found.pop(old, None)
        if value is None:
            continue
        if found.get(new) is not None:
            raise TacitError(f"{old} is the old name of {new}: leave {old} out")
        words = f"{old} is called {new} now, and by that name only from the next version on"
        warnings.warn(words, FutureWarning, stacklevel=2)
        found[new] = value
    return found


def flags() -> list[Flag]:
    """All settings of a run that can be given on the command line, in the order of its help."""
    own: list[Flag] = []
    parts: list[Flag] = []
    for one in fields(Plan):
        about = one.metadata
        section, _, key = about["place"].partition(".")
        if about["help"]:
            kind = _kind(one.type) if section == "run" else str
            flag = Flag(one.name, kind, about["help"], about["panel"], section, key or one.name)
            own.append(flag)
        for name, (kind, help) in about["parts"].items():
            parts.append(Flag(name, kind, help, about["panel"], section, name))
    panels = [one.metadata["panel"] for one in fields(Plan)]
    return sorted(own + parts, key=lambda flag: panels.index(flag.panel))


def in_files(agreed: bool = False) -> dict[str, Any]:
    """Type and default of all settings in [run]; with `agreed`, of those a consortium agrees on."""
    return {
        one.name: (str if isinstance(one.type, str) else one.type, one.default)
        for one in fields(Plan)
        if one.metadata["place"] == "run" and one.metadata["agreed"] >= agreed
    }


def takes_settings(function: Takes) -> Takes:
    """Show all settings of a plan in the signature of a function that takes them as keywords."""
    own = inspect.signature(function)
    kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(one.name, keyword, default=one.default, annotation=one.type)
        for one in fields(Plan)
        if one.name not in own.parameters
    ]
    function.__signature__ = own.replace(parameters=[*kept, *more])  # type: ignore[attr-defined]
    about = (Plan.__doc__ or "").partition("----------\n")[2]
    function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n{about}"
    return function


def _refusals() -> types.ModuleType:
    from tacit.experiment import refusals  # needs torch

    return refusals


def _kind(annotation: Any) -> Any:
    """What a flag for such a setting reads."""
    if isinstance(annotation, str) or get_origin(annotation) is Literal:
        return str
    given = [one for one in get_args(annotation) if one is not types.NoneType] or [annotation]
    if Path in given:
        return Path
    return given[0] if len(given) == 1 else float | int


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if callable(value):  # a model: by its name
        return getattr(value, "__name__", type(value).__name__)
    return value
