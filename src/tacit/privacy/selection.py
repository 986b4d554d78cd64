"""What it costs to try many settings and keep the best: repeat and select, booked as one event.

    draw K ─► K times: draw settings ─► T releases ─► one noisy score ─► keep the best of the K

**Claim.** Let a run be: settings drawn at random without looking at the data, T noisy sums, and one
more noisy sum, the score. Let K be drawn from the logarithmic distribution, and let only the run
with the best score leave the machine. Then what leaves is Rényi-private with, at every order λ > 1,

    ε'(λ) = ε(λ) + min over λ̂ of [(1 − 1/λ̂) ε(λ̂) + ln(1/γ) / λ̂] + ln E[K] / (λ − 1),

where ε(·) is that of one run *with its score* and P(K = k) = (1 − γ)^k / (k ln(1/γ)), k = 1, 2, ….

**Proof sketch.** One run's releases compose adaptively: the accountant adds T of one kind and one
of the other. All settings cost the same, because clip, step size and the like do not enter ε and
everything that does (rounds, cohort, noise) is shared; given the settings the divergence at order λ
is at most ε(λ). The settings have the same distribution on both neighbours and are part of the
output, so e^((λ − 1) D) averages over them and D stays below the largest, ε(λ). The score is part
of the output, so the order in which runs are compared is a function of outputs alone. Papernot &
Steinke, "Hyperparameter Tuning with Rényi Differential Privacy" (2022), Theorem 2 with η = 0, is
then the formula above; dp-accounting computes it as `RepeatAndSelectDpEvent` with shape 0. By the
billboard lemma the personal models of the other tasks cost nothing more (see `channel`). ∎

**Persons.** Where persons are hidden, a personal model is made of all persons of its task, and so
is every score of it: one person would move the scores of all. So each person says how good the
*shared* model is on its own rows, which depends on releases and on that person alone; all of the
above then holds with "person" for "task".

The proof needs that nobody sees K or a losing run. So all runs are made on the machine that sums,
which is trusted anyway; where tasks are asked to take part round by round, they see every run, and
the plain sum of all runs is what it costs.

Why this distribution: noise for ε = 2, δ = 0.001 in total, 100 rounds, cohorts of half the tasks
(a single run needs 7.3):

| expected runs           |   5  |  10  |  20  |
|-------------------------|------|------|------|
| logarithmic             | 14.7 | 16.1 | 17.4 |
| geometric               | 17.5 | 19.9 | 21.9 |
| Poisson (may run nothing) | 15.1 | 20.9 | 30.1 |

It is the cheapest, grows slowest, and always runs at least once. It is also uneven: with 10 runs
expected, a quarter of all tunings make one run only and one in 200 makes more than 100. Cutting it
off at either end would change the distribution that the proof is about.

| edge case                            | what happens                                              |
|--------------------------------------|-----------------------------------------------------------|
| one run expected                     | K = 1; costs more than a plain run, never less            |
| a task without validation rows       | contributes nothing, which reads as the middle score ½    |
| score NaN or outside [0, 1]          | counts as ½, or is clipped to the interval                |
| two equal scores                     | the earlier run wins: still a function of outputs alone   |
| noise 0                              | runs, and the guarantee says ε = ∞                        |
| crash after booking                  | the whole tuning is spent, whatever was run of it         |
| sampling without a valid RDP bound   | refused: only RDP knows this event                        |
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError
from tacit.privacy.accounting import Release, merged
from tacit.privacy.sampling import Accountant, Everyone, Neighbours, Sampler, Unit
from tacit.randomness import Randomness

if TYPE_CHECKING:
    import dp_accounting

LOGARITHMIC = 0.0
"""dp-accounting's `shape` of the distribution of the number of runs."""

SCORE_SHARE = 0.1
"""Part of one run's cost (in inverse variance) that pays for its score."""


@dataclass(frozen=True)
class Repeated:
    """A whole tuning, as the accountant sees it: a run, repeated, of which the best is kept."""

    run: frozenset[tuple[Release, int]]
    """The releases of one run with their counts, the score among them."""
    mean: float
    """How many runs there are on average; their true number is drawn in secret."""
    shape: float = LOGARITHMIC
    """Of the distribution that their number is drawn from."""

    @property
    def noise_multiplier(self) -> float:
        """The smallest of its releases."""
        return min(release.noise_multiplier for release, _ in self.run)

    @property
    def unit(self) -> Unit:
        """All of its releases have the same."""
        return next(release.unit for release, _ in self.run)

    @property
    def published(self) -> int:
        """Releases that leave the machine: those of the best run, with its score."""
        return sum(count for _, count in self.run)

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        for release, _ in self.run:
            if "RDP" not in release.accountants(neighbours):
                raise TacitError(
                    "only the RDP accountant covers tuning, and it has no bound for "
                    f"{release.sampler.name} sampling with {neighbours} neighbours: use "
                    "neighbours='add-remove', or sampling='in-turn' or 'everyone'"
                )
        return ("RDP",)

    def event(self, moved: float) -> dp_accounting.DpEvent:
        import dp_accounting
        from dp_accounting.dp_event import RepeatAndSelectDpEvent

        # Ordered, so that the same releases give the same last digit. That replacing may move a sum
        # by less than two clips is not claimed here.
        plain = merged(self.run, "add-remove")
        ordered = sorted(plain, key=lambda pair: (str(pair[0]), pair[1]))
        one: list[dp_accounting.DpEvent] = [
            dp_accounting.SelfComposedDpEvent(release.event(moved), count)
            for release, count in ordered
        ]
        return RepeatAndSelectDpEvent(dp_accounting.ComposedDpEvent(one), self.mean, self.shape)

    def to_json(self) -> dict[str, Any]:
        run = sorted(self.run, key=lambda pair: (str(pair[0]), pair[1]))
        return {
            "kind": "tuning",
            "mean": self.mean,
            "shape": self.shape,
            "run": [release.to_json() | {"count": count} for release, count in run],
        }


def tuning(
    sampler: Sampler,
    noise: float,
    rounds: int,
    tasks: int,
    neighbours: Neighbours,
    runs: float,
    unit: Unit = "task",
) -> tuple[Repeated, Release]:
    """What a tuning books, and the release of a score that is part of it.

    All tasks (or persons) are asked for their score: at the same cost, sampling them would only add
    to the noise. The score's own noise follows from that of the rounds, so that one number is
    calibrated: T rounds cost about T q² / z² at a secret rate q and ⌈T q⌉ / z² in turn, a score
    costs 1 / z'².
    """
    if not (runs >= 1 and math.isfinite(runs)):
        raise TacitError(f"expected_runs={runs!r}: a number of at least 1 is needed")
    rate = sampler.expected(tasks) / tasks
    paid = rate**2 * rounds if sampler.secret else math.ceil(rate * rounds)
    odds = math.sqrt((1 - SCORE_SHARE) / SCORE_SHARE)
    score = Release(Everyone(), noise * odds / math.sqrt(paid), unit=unit)
    each = (Release(sampler.at(round), noise, unit=unit) for round in range(rounds))
    one = Counter([*each, score])
    booked = Repeated(frozenset(one.items()), float(runs))
    booked.accountants(neighbours)
    return booked, score


def halting(mean: float) -> float:
    """γ of the logarithmic distribution with this mean, (1/γ − 1) / ln(1/γ)."""
    if mean <= 1 + 1e-9:
        return 1.0

    # In ln(1/γ), which is about ln(mean · ln mean), halving until no digits are left.
    low, high = 1e-12, 10 + 2 * math.log(mean)
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if math.expm1(middle) / middle < mean else (low, middle)
    # … and then on the side of fewer runs than were paid for.
    return min(1.0, math.exp(-low) * (1 + 1e-7))


def number_of_runs(mean: float, randomness: Randomness) -> int:
    """K, from the operating system unless seeded (Kemp 1981: two uniforms, no table).

    Given q = 1 − γ^u, K is geometric: P(K > k) = q^k; averaged over u that is logarithmic.
    """
    log = math.log(halting(mean))
    u, v = randomness.uniform("tuning", 0, 0, 2).tolist()
    q = -math.expm1(log * u)
    return 1 + math.floor(math.log(v) / math.log(q)) if q > 0 else 1
