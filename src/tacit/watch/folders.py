"""What can be seen of a folder while somebody works in it: a run, a silo or a coordinator.

Files are read and nothing is held, so nobody is disturbed. Every ε is added up from ledgers, where
it stands before a release is made. Who is in a cohort is not shown: others must not know it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.deploy.agreement import Agreement
from tacit.deploy.conduct import RESULT, STATUS, last_answer
from tacit.deploy.diary import Entry, read_diary
from tacit.deploy.events import (
    Contributed,
    Event,
    ModelKept,
    RequestFailed,
    RequestRefused,
    RunOver,
    ScoresSent,
    SharesHanded,
    SiloDeclined,
    SiloSilent,
    Spending,
)
from tacit.deploy.personal import REPORT
from tacit.deploy.site import AGREED, SETTINGS, Site
from tacit.deploy.terms import Terms
from tacit.engine.store import CHECKPOINT, confirm_ledger, saved_notes
from tacit.errors import TacitError
from tacit.experiment import train
from tacit.files import read_json, reading
from tacit.privacy import Booked, Ledger, Privacy, Release, spent
from tacit.privacy.guarantee import marks_of
from tacit.report.words import plural

AGAIN = "look again in a moment, or at log.txt"
UNKNOWN_DELTA = "ε is said at the end: this run does not say how many tasks it has"


@dataclass(frozen=True)
class View:
    """One folder at one moment."""

    kind: str
    title: str
    round: int
    rounds: int
    releases: int
    """Booked so far; in this folder, whichever run they are of."""
    spent: Spending | None
    no_epsilon: str = ""
    """Why there is none."""
    seeded: bool = False
    over: bool = False
    stopped: str | None = None
    """Why it ended before its last round."""
    left: tuple[tuple[str, str], ...] = ()
    """What left, in words."""
    silos: tuple[tuple[str, str, str, str], ...] = ()
    """Name, last answer, what it did not answer, why it is excluded; at a coordinator."""
    log: tuple[tuple[str, str], ...] = ()
    """When something happened and what, the latest last."""
    guarantee: Mapping[str, Any] | None = None
    """Once it is over."""
    verdict: Mapping[str, Any] | None = None
    adapted: bool = False


def look(folder: Path) -> View:
    """What can be seen now; one sentence where that cannot be read."""
    if (folder / SETTINGS).is_file():
        kind = look_at_silo
    elif (folder / AGREED).is_file():
        kind = look_at_coordinator
    elif (folder / CHECKPOINT / train.SETTINGS).is_file() or (folder / RESULT).is_file():
        kind = look_at_run
    else:
        raise TacitError(
            f"{folder} holds no run, silo or coordinator: give a folder of `tacit train`, `tacit "
            "silo init` or `tacit coordinator init`, or wait until the run has begun"
        )
    with reading(folder, AGAIN):
        return kind(folder)


def look_at_run(folder: Path) -> View:
    """A simulation, by what it wrote when it began, its ledger and its last checkpoint."""
    ledger = confirm_ledger(folder)
    booked = ledger.releases()
    if (folder / RESULT).is_file():
        result = read_json(folder / RESULT, {"guarantee": dict, "federation": dict}, AGAIN)
        rounds, stopped = int(result["config"].get("rounds", 0)), result.get("stopped")
        return View(
            "run",
            f"{result['federation']['source']}: {result['config'].get('method', 'a method')}",
            _last_round(ledger) if stopped else rounds,
            rounds,
            booked.total(),
            None,
            over=True,
            stopped=stopped,
            guarantee=result["guarantee"],
            verdict=result.get("verdict"),
            adapted=result["config"].get("clip_quantile") is not None,
        )
    begun = read_json(folder / CHECKPOINT / train.SETTINGS, {"settings": dict}, AGAIN)
    settings, tasks = begun["settings"], begun.get(train.TASKS)
    spending, why = None, "no privacy was asked for, so this run has no ε"
    if settings["privacy"] is not None:
        privacy, why = Privacy(**settings["privacy"]), UNKNOWN_DELTA
        if privacy.delta is not None or tasks is not None:
            seeded = settings["seed"] is not None
            spending = _spending(booked, privacy, tasks or 1, privacy.epsilon, seeded)
    done = (saved_notes(folder / CHECKPOINT) or {"round": 0})["round"]
    return View(
        "run",
        f"{folder.resolve().name}: {settings['method']}",
        max(done, _last_round(ledger)),
        int(settings["rounds"]),
        booked.total(),
        spending,
        why,
        seeded=settings["seed"] is not None,
    )


def look_at_silo(folder: Path) -> View:
    """A silo, by its own diary and its own ledgers of all runs."""
    site = Site.open(folder)
    terms, (entries, unreadable) = site.terms, read_diary(folder)
    events = [entry.event for entry in entries]
    booked: Counter[Booked] = Counter()
    for place in (folder / "runs").glob("*"):
        booked.update(confirm_ledger(place).releases())
    over = bool(events) and isinstance(events[-1], RunOver | ScoresSent | ModelKept)
    report = {}
    if over and (folder / REPORT).is_file():
        report = read_json(folder / REPORT, {}, AGAIN)
    rounds = [event.round + 1 for event in events if isinstance(event, Contributed | SharesHanded)]
    return View(
        "silo",
        f"{site.settings.name}, a silo of {terms.consortium}",
        rounds[-1] if rounds else 0,
        terms.rounds,
        booked.total(),
        _agreed_spending(terms, booked, site.settings.epsilon),
        "no privacy was agreed, so nothing is booked and there is no ε",
        seeded=terms.seed is not None,
        over=over,
        left=_left(events, unreadable),
        log=_log(entries),
        verdict=report.get("verdict"),
    )


def look_at_coordinator(folder: Path) -> View:
    """A coordinator, by its status, its diary and its ledger."""
    terms, (entries, _) = Agreement.read(folder / AGREED).terms, read_diary(folder)
    status = _read(folder / STATUS, {"round": int, "silos": dict})
    result = _read(folder / RESULT, {"guarantee": dict, "rounds": int})
    booked = confirm_ledger(folder).releases()
    return View(
        "coordinator",
        f"{terms.consortium}, its coordinator",
        max(status.get("round", 0), result.get("rounds", 0)),
        terms.rounds,
        booked.total(),
        _agreed_spending(terms, booked, None),
        "no privacy was agreed, so nothing is booked and there is no ε",
        seeded=terms.seed is not None,
        over=bool(result),
        stopped=result.get("stopped"),
        silos=tuple(_silos(terms, status.get("silos", {}), [entry.event for entry in entries])),
        log=_log(entries),
        guarantee=result.get("guarantee"),
    )


def _read(path: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    return read_json(path, fields, AGAIN) if path.is_file() else {}


def _last_round(ledger: Ledger) -> int:
    """The round that was last booked, counted from 1."""
    return max((entry["round"] + 1 for entry in ledger.entries), default=0)


def _agreed_spending(terms: Terms, booked: Counter[Booked], own: float | None) -> Spending | None:
    privacy = terms.make_privacy()
    if privacy is None:
        return None
    budget, seeded = own or privacy.epsilon, terms.seed is not None
    return _spending(booked, privacy, len(terms.silos), budget, seeded)


def _spending(
    booked: Counter[Booked], privacy: Privacy, tasks: int, budget: float | None, seeded: bool
) -> Spending:
    delta = privacy.delta_for(tasks)
    found = spent(booked, delta, privacy.neighbours)
    epsilon = found.epsilon if math.isfinite(found.epsilon) else None
    samplers = [release.sampler for release in booked if isinstance(release, Release)]
    sampling = samplers[0].said(privacy.unit) if samplers else "no release yet"
    means = privacy.neighbours, delta, sampling, found.accountant, privacy.unit
    marks = "; ".join(marks_of(privacy, tasks, seeded=seeded))
    return Spending(epsilon, budget, *means, marks)


def _left(events: list[Event], unreadable: int) -> tuple[tuple[str, str], ...]:
    def count(kind: type[Event]) -> str:
        return plural(sum(isinstance(event, kind) for event in events), "request")

    sent = [event for event in events if isinstance(event, Contributed) and event.takes_part]
    clip = sent[-1].clip if sent else None
    most = "" if clip is None else f", within a clip of {clip:g}"
    said = f"{len(sent)}; the last of {sent[-1].numbers} numbers{most}" if sent else "none yet"
    facts = [("Contributions", said), ("Refused", count(RequestRefused))]
    facts.append(("Failed", count(RequestFailed)))
    if unreadable:
        lines = f"{plural(unreadable, 'line')} of events.jsonl, so there may have been more"
        facts.append(("Cannot be read", lines))
    return tuple(facts)


def _silos(
    terms: Terms, known: Mapping[str, Any], events: list[Event]
) -> Iterable[tuple[str, str, str, str]]:
    silent = Counter(event.silo for event in events if isinstance(event, SiloSilent))
    declined = Counter(event.silo for event in events if isinstance(event, SiloDeclined))
    for name in terms.silos:
        silo = known.get(name, {})
        last, excluded = last_answer(silo.get("answered"), terms.rounds), silo.get("excluded")
        lacks = [f"{silent[name]} × silent"] if silent[name] else []
        lacks += [f"{declined[name]} × declined"] if declined[name] else []
        yield name, last, ", ".join(lacks), f"its message {excluded}" if excluded else ""


def _log(entries: Iterable[Entry]) -> tuple[tuple[str, str], ...]:
    return tuple((entry.when, entry.said) for entry in entries)
