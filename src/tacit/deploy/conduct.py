"""A whole run as the coordinator conducts it: from terms and a folder to a guarantee.

The folder holds the billboard, the round, the ledger and the cohort of the round in progress. Start
it again after a crash, and the run goes on: what was booked stays booked, what was published stays
published, and silos answer a repeated request with what they sent before.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch

from tacit.data.heads import PUBLIC
from tacit.data.persons import FOUND
from tacit.deploy.coordinator import Asking, Coordination, Silos
from tacit.deploy.diary import Diary
from tacit.deploy.events import GuaranteeGiven, RoundsOver, ScoresWithheld, Spending
from tacit.deploy.servers import SharedJobs
from tacit.deploy.terms import Terms, agreed_noise
from tacit.deploy.work import BEGUN, CPU, RUN
from tacit.engine.progress import Progress, silent
from tacit.engine.rounds import epsilon_so_far
from tacit.engine.store import REMEDY, check_unused
from tacit.errors import TacitError
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of
from tacit.files import make_folder, read_json, replace
from tacit.gauges import Gauge, write_gauges
from tacit.methods.publishing import HIDDEN
from tacit.privacy import Guarantee, Privacy
from tacit.privacy.channel import Budget, BudgetSpent
from tacit.privacy.guarantee import marks_of
from tacit.randomness import Randomness
from tacit.secure.settings import Secure

STATUS, RESULT, BILLBOARD = "status.json", "result.json", "billboard.safetensors"
GAUGES = "metrics.prom"


@dataclass(frozen=True)
class Conducted:
    """What the coordinator has in the end: everything in it is public."""

    coordination: Coordination
    guarantee: Guarantee
    finished: tuple[str, ...]
    """Silos that have the last billboard."""
    scores: dict[str, float] | None

    def to_json(self) -> dict[str, Any]:
        asking = self.coordination.asking
        return {
            "consortium": asking.terms.consortium,
            "rounds": self.coordination.rounds.board.round,
            "stopped": self.coordination.rounds.stopped,
            "guarantee": self.guarantee.to_json(),
            "finished": list(self.finished),
            "excluded": asking.excluded,
            "scores": self.scores,
            "terms": asking.terms.to_json(),
        }


def conduct(
    terms: Terms,
    folder: Path,
    silos: Silos,
    *,
    also: Callable[[str], None] = lambda line: None,
    progress: Progress = silent,
    blamed: dict[str, str] | None = None,
    servers: Secure | None = None,
    one_owner: bool = False,
) -> Conducted:
    """Run all rounds that are left, then hand out the last billboard.

    `blamed` may name silos, while the run goes on, that the transport caught breaking its rules.
    `servers` says where the servers on shares are, if the terms agree on some. With `one_owner` all
    silos are of one party, from whom no cohort has to be hidden.
    """
    make_folder(folder)
    diary = Diary(folder, also)
    start = begin(terms, folder)
    asking = Asking(terms, start["run"], start["noise"], silos, folder, diary, one_owner)
    asking.blamed = asking.blamed if blamed is None else blamed
    together = _together(terms, servers, asking)
    coordination = open_run(terms, folder, start, asking, together)
    silos.expect(coordination.course.channel.place.size(coordination.course.contribution_size))
    privacy = terms.make_privacy()
    epsilon = epsilon_so_far(coordination.rounds, privacy, terms.rounds)
    with progress.rounds(terms.consortium, terms.rounds) as on_round:

        def after(round: int, point: dict[str, Any]) -> None:
            on_round(round, point)
            write_status(coordination, point.get("epsilon"))

        coordination.rounds.run(epsilon=epsilon, on_round=after)
    diary.write(RoundsOver(coordination.rounds.board.round, coordination.rounds.stopped))
    before = _result(folder)
    have = {terms.index(name) for name in before.get("finished", ())}
    finished = tuple(terms.silos[task] for task in sorted(coordination.finish(have)))
    scores = before.get("scores")
    if terms.metrics and not before:
        scores = _scores(coordination, diary)
    done = Conducted(coordination, promise(coordination), finished, scores)
    _write(done, folder)
    write_status(
        coordination, epsilon(coordination.course.channel.ledger.before(terms.rounds)), over=True
    )
    given = done.guarantee.to_json()
    diary.write(GuaranteeGiven(given["epsilon"], given["delta"], given["in_words"]))
    return done


def begin(terms: Terms, folder: Path, key: int | None = None) -> dict[str, Any]:
    """What stays the same in a run; made once, and found again after a crash.

    `key` is the run's, if it has one already (see `Randomness`).
    """
    path = folder / RUN
    if path.exists():
        known = read_json(path, {"run": str, **BEGUN}, REMEDY)
        if known["terms"] != terms.digest:
            raise TacitError(
                f"{folder} holds a run under other terms: finish it with those, or give another "
                "folder"
            )
        return known
    check_unused(folder, path)
    terms.plan().check(terms.federation())
    noise = agreed_noise(terms)
    key = Randomness.of(terms.seed).run_key if key is None else key
    start = {"run": secrets.token_hex(16), "key": key, "noise": noise, "terms": terms.digest}
    replace(path, json.dumps(start).encode())
    return start


def _together(terms: Terms, servers: Secure | None, asking: Asking) -> SharedJobs | None:
    if (servers is None) != (terms.curator is None):
        raise TacitError(
            "these terms agree on servers that work on shares: give --peers and --certificates"
            if servers is None
            else "these terms agree on no servers: leave --peers and --certificates out"
        )
    if servers is None:
        return None
    terms.plan().but(curator=servers).check(terms.federation())
    return SharedJobs(servers, asking)


def open_run(
    terms: Terms,
    folder: Path,
    start: dict[str, Any],
    asking: Asking,
    together: SharedJobs | None = None,
) -> Coordination:
    """The run in this folder, as it was left."""
    privacy, federation = terms.make_privacy(), terms.federation()
    randomness = Randomness(terms.seed, start["key"])
    model = model_of(terms.model, federation, randomness.key("model", 0))
    given = privacy and dataclasses.replace(privacy, epsilon=None, noise=start["noise"])
    plan = terms.plan().but(privacy=given, curator=None)
    engine = functools.partial(Coordination, asking=asking, together=together)
    made = simulation_of(plan, federation, model, terms.sampler(), randomness, CPU, folder, engine)
    assert isinstance(made, Coordination)
    if privacy is not None:
        made.course.channel.budget = Budget.of(privacy, privacy.delta_for(len(terms.silos)))
    made.rounds.resume()
    return made


def promise(coordination: Coordination) -> Guarantee:
    """The guarantee, read off the coordinator's ledger."""
    terms = coordination.asking.terms
    federation, seeded = coordination.federation, terms.seed is not None
    public = ([PUBLIC] if federation.heads else []) + ([FOUND] if federation.unscaled else [])
    curated = coordination.rounds.strategy.curated
    given: Any = {"seeded": seeded, "public": public, "curator": curated}
    return coordination.course.promise(federation, terms.make_privacy(), **given)


def _result(folder: Path) -> dict[str, Any]:
    """The result, if the run was over before; it is neither handed out nor released again."""
    path = folder / RESULT
    return read_json(path, {"finished": list}, REMEDY) if path.exists() else {}


def _scores(coordination: Coordination, diary: Diary) -> dict[str, float] | None:
    try:
        return coordination.measure()
    except BudgetSpent as reason:
        diary.write(ScoresWithheld(str(reason)))
        return None


def _write(done: Conducted, folder: Path) -> None:
    shown = done.coordination.rounds.shown.tensors
    public = {name: t.contiguous() for name, t in shown.items() if not name.startswith(HIDDEN)}
    replace(folder / BILLBOARD, safetensors.torch.save(public))
    text = json.dumps(done.to_json(), indent=2, ensure_ascii=False)
    replace(folder / RESULT, text.encode())


def write_status(coordination: Coordination, epsilon: float | None, *, over: bool = False) -> None:
    """For `tacit coordinator status`, which reads this file and disturbs nobody."""
    asking = coordination.asking
    privacy = asking.terms.make_privacy()
    status = {
        "consortium": asking.terms.consortium,
        "round": coordination.rounds.board.round,
        "rounds": coordination.course.length,
        "over": over,
        "epsilon": epsilon,
        "meaning": None if privacy is None else _meaning(coordination, privacy),
        "silos": {
            name: {"answered": asking.answered.get(name), "excluded": asking.excluded.get(name)}
            for name in asking.terms.silos
        },
    }
    replace(asking.folder / STATUS, json.dumps(status).encode())
    write_gauges(asking.folder / GAUGES, _gauges(coordination, status))


def last_answer(round: int | None, rounds: int) -> str:
    """Of a silo, in words."""
    if round is None:
        return "none yet"
    return f"round {round + 1}" if round < rounds else "has the last billboard"


def _gauges(coordination: Coordination, status: dict[str, Any]) -> Iterator[Gauge]:
    """Of what everybody knows, or the coordinator sees anyway; nothing comes from rows."""
    asking, round = coordination.asking, status["round"]
    of = {"consortium": asking.terms.consortium}
    numbers = {
        "round": ("Rounds that are over.", round),
        "rounds": ("Rounds that were agreed.", status["rounds"]),
        "over": ("Whether the run is over.", int(status["over"])),
        "releases": ("Releases in the ledger.", len(coordination.course.channel.ledger)),
        "silos": ("Silos that were agreed.", len(status["silos"])),
        "silos_answered": (
            "Silos that answered in the last round.",
            sum(last >= round - 1 for last in asking.answered.values()),
        ),
        "silos_excluded": ("Silos that broke the protocol.", len(asking.excluded)),
    }
    for name, (about, value) in numbers.items():
        yield Gauge(f"tacit_coordinator_{name}", about, value, of)
    if not _marks(coordination):  # noise from a seed hides nothing, and ε would say it does
        means = of | {"meaning": status["meaning"] or ""}
        about = "Spent so far; what it is about is in its label."
        yield Gauge("tacit_coordinator_epsilon", about, status["epsilon"], means)


def _meaning(coordination: Coordination, privacy: Privacy) -> str:
    """What ε is about: without that it says nothing."""
    delta = privacy.delta_for(len(coordination.federation))
    sampling = coordination.course.channel.sampler.said(privacy.unit)
    about = privacy.neighbours, delta, sampling, None, privacy.unit
    return Spending(None, privacy.epsilon, *about, "; ".join(_marks(coordination))).meaning


def _marks(coordination: Coordination) -> tuple[str, ...]:
    terms = coordination.asking.terms
    privacy = terms.make_privacy()
    if privacy is None:
        return ()
    return marks_of(privacy, len(terms.silos), seeded=terms.seed is not None)
