"""`tacit.audit`: attack a run, and set what the attack proves beside what the run promises.

| attack    | what is run                                            | what bounds ε from below    |
|-----------|--------------------------------------------------------|-----------------------------|
| many runs | the run's channel alone, with one worst task           | `guesses.told_apart`        |
| one run   | the whole run, with canaries put in by fair coins      | `guesses.guess`             |
| neighbour | the first round, with a row more or less in one task   | `guesses.told_apart`        |

Where persons are hidden, the worst task is a worst person, canaries are persons who are made up,
and a neighbour has one person more or less.

An attack can refute a promise; it cannot prove one. A bound below the promise says that this
observer, with so many tries, found nothing.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

from tacit.attacks import attempts as attacks
from tacit.attacks.audited import Audit, Promised
from tacit.data.federation import Federation
from tacit.engine.progress import Progress
from tacit.engine.simulate import Simulation
from tacit.errors import TacitError
from tacit.experiment.auto import choose
from tacit.experiment.engines import SIMULATE
from tacit.experiment.plan import AUTO, Plan, takes_settings
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import device_of, model_of, progress_of
from tacit.methods import Method, OnBillboard
from tacit.privacy import Ledger, sampler_for
from tacit.randomness import Randomness

FEWEST, CANARIES = 100, 1000
CANARY_NUMBERS = 200_000_000
"""In the vectors of all canaries together: for large models there are fewer of them."""


@takes_settings
def audit(
    federation: Federation,
    method: Method | str = AUTO,
    *,
    many_runs: int | None = None,
    one_run: bool = False,
    canaries: int | None = None,
    neighbour: Federation | None = None,
    ledger: Ledger | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
    **settings: Any,
) -> Audit:
    """Attack the run that `tacit.train` would make of the same arguments.

    With a seed the attack can be repeated.

    Parameters
    ----------
    many_runs : how often the channel is run (2000 to 20 000 times, by the rounds)
    one_run, canaries : make the whole run once instead, with so many canaries (1000)
    neighbour : the same federation with a row more or less in one task (where persons are hidden,
        with one more or less of them): does any other contribution move, and by how much the sum?
        Only the first round is run
    ledger : of a run that was made: the releases that it booked are attacked
    confidence : of the lower bound
    """
    started = time.monotonic()
    given = Plan.of(method=method, **settings)
    found = choose(federation, given)
    if neighbour is not None:
        neighbour = choose(neighbour, given).federation
    plan, federation, rounds, cohort = found.plan, found.federation, found.rounds, found.cohort
    # What is not attacked, or not a part of the attack, is left out.
    plan = plan.but(patience=None, personalise="none", store="memory", engine=SIMULATE)
    plan.check(federation)
    privacy, seed = plan.privacy, plan.seed
    asked = {"many_runs": many_runs, "one_run": one_run or None, "neighbour": neighbour}
    _check_attack(asked, canaries, confidence, ledger)
    if privacy is None or privacy.noise == 0 or not isinstance(found.method, OnBillboard):
        raise TacitError(
            "this run promises no ε, so there is nothing to refute: give an epsilon (--epsilon) "
            "and a method on the billboard (tacit methods)"
        )
    privacy = dataclasses.replace(privacy, delta=privacy.delta_for(len(federation)))
    plan = plan.but(privacy=privacy, curator=plan.curator and plan.curator.simulated)
    compute, progress = device_of(plan.device), progress_of(progress)
    # Those who pool what they know need noise that can be recomputed.
    pooled = plan.curator is not None or privacy.noise_by == "task"
    own = int.from_bytes(os.urandom(6), "little") if one_run and pooled else None
    randomness = Randomness.of(own if seed is None else seed)
    made = model_of(plan.model, federation, randomness.key("model", 0)).to(compute)

    def ready(extra: int = 0, of: Federation = federation) -> Simulation:
        """The run as it would start, in a federation of so many more tasks."""
        progress.say("calibrating the noise" if privacy.epsilon else "preparing")
        crowd, each = privacy.crowd(len(federation)), privacy.at_most
        share = cohort / crowd if extra and cohort > 1 else cohort
        sampler = sampler_for(privacy.sampling, share, crowd + extra * each, each)
        return simulation_of(plan, of.to(compute), made, sampler, randomness, compute)

    how = attacks.How(privacy, many_runs, seed, confidence, progress)
    if one_run:
        number = _canaries(ready()) if canaries is None else canaries
        found = attacks.one_run(ready(number), number, how)
    elif neighbour is not None:
        found = attacks.neighbour((ready(), ready(of=neighbour)), how)
    else:
        booked = None if ledger is None else attacks.noise_booked(ledger)
        channel = ready().channel
        found = attacks.many_runs(channel, booked, rounds, how)
        if ledger is not None:  # the books, and nothing else, decide what was promised
            promised = Promised.of(ledger.releases(), privacy, channel.sampler)
            found = dataclasses.replace(found, promised=promised)
    if seed is not None:
        found = dataclasses.replace(found, assumed=(*found.assumed, "nobody knows the seed"))
    return dataclasses.replace(found, seconds=round(time.monotonic() - started, 1))


def _canaries(simulation: Simulation) -> int:
    """As many as do not drown each other: together they are no louder than the noise."""
    channel, length = simulation.channel, simulation.course.contribution_size
    assert channel.release is not None
    quiet = max(FEWEST, int(length * channel.release.noise_multiplier**2))
    return max(1, min(quiet, CANARIES, CANARY_NUMBERS // length))


def _check_attack(
    asked: dict[str, object], canaries: int | None, confidence: float, ledger: Ledger | None
) -> None:
    given = [name for name, value in asked.items() if value is not None]
    both = {"many_runs", "neighbour"}
    if len(given) > 1 and set(given) != both:
        raise TacitError(f"{' and '.join(given)} are different attacks: choose one")
    runs = asked["many_runs"]
    if isinstance(runs, int) and runs < 10:
        raise TacitError(f"many_runs={runs}: at least 10 are needed, and thousands to find much")
    if canaries is not None and (canaries < 1 or asked["one_run"] is None):
        raise TacitError(f"canaries={canaries}: at least 1, and only with one_run (--one-run)")
    if not 0 < confidence < 1:
        raise TacitError(f"confidence={confidence!r}: a probability between 0 and 1 is needed")
    if ledger is not None and given and "many_runs" not in given:
        raise TacitError("a ledger is attacked by many runs: leave it out for other attacks")
