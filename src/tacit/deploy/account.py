"""A silo's own account of what it gave away, on its own disk, over all runs it took part in.

A round costs what the agreed release costs, whether or not the silo was in its cohort: that is what
sampling is worth. Where cohorts are secret, everybody is asked in every round, and a silo that is
asked in round t has all rounds up to t on its account before it begins to work.

This is enough where `finish` never comes, and where the silo was away to the end. Let T be the
rounds that this silo began to work in.

* Round t in T. The sum holds coin × vector of this silo. The coin is secret, independent of all
  before, and falls with the agreed rate: this costs the agreed release. An answer that is lost or
  late counts as zero, which is a lower rate, and costs less. Work that fails because of the rows
  fails after the booking.
* Round t not in T. The sum holds nothing of this silo, whatever its coin. Given what was published
  before, the release is made of others' rows and new noise: post-processing, which costs nothing.

By adaptive composition all others learn no more about this silo than the rounds in T cost, and all
of T is booked. Rounds that it missed before its last in T are booked as well: more than it owes,
and it need not know why it was not asked. Rounds after its last are not. So its account may hold
less than the coordinator's ledger, which is about silos that were always there. To book the whole
run at its first round would count what nobody can have learned.

Where cohorts are no secret there are no coins: those who are asked contribute, and nobody else
gives anything away. Only on Ray (`flower.simulation`) a secret cohort is asked alone. There a round
without a request may be one whose coin was zero, which has its price: it is booked with the next
request, or when the run is over.

Where persons (or rows) are protected, the coin is tossed for each of them by the silo itself, with
randomness that nobody else has: read "person" for "silo" above. All that is booked is about them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.deploy.events import Spending
from tacit.deploy.guard import Refused
from tacit.engine.store import confirm_ledger
from tacit.privacy import Booked, Ledger, Privacy, Release, spent
from tacit.privacy.accounting import affordable, growth
from tacit.privacy.guarantee import marks_of

EXTRA = -1
"""The round of releases beside the rounds."""


class Account:
    """The ledger of one run, beside the ledgers of other runs that go on at the same time."""

    def __init__(
        self,
        ledger: Ledger,
        others: Callable[[], list[Path]],
        coming: list[Release],
        privacy: Privacy,
        tasks: int,
        budget: float,
        *,
        seeded: bool = False,
    ) -> None:
        self.ledger, self._coming, self._privacy = ledger, coming, privacy
        self._delta, self.budget = privacy.delta_for(tasks), budget
        self._marks = "; ".join(marks_of(privacy, tasks, seeded=seeded))
        self._others = others
        self._counted: tuple[Counter[Booked], int, int] | None = None
        self._curve: list[float] | None = None

    @property
    def booked(self) -> int:
        """Releases of this run on the account."""
        return sum(self.ledger.has(number) for number in range(len(self._coming)))

    def pay(self, release: int, **details: Any) -> None:
        """Book all releases of this run up to this one; refuses what the budget does not allow."""
        self.ledger.catch_up()  # several processes may work for one silo in turn
        room = self._room()
        if release >= room:
            raise Refused(
                f"release {release + 1} would pass this silo's own budget of ε={self.budget:g}, "
                f"which allows {room} of this run"
            )
        for number in range(release + 1):
            if not self.ledger.has(number):
                self.ledger.book(number, self._coming[number], repeatable=True, **details)

    def pay_more(self, release: Release, most: int) -> None:
        """Book a release beside those of the rounds, if the plan and the budget allow it."""
        self.ledger.catch_up()
        if len(self.ledger) - self.booked >= most:
            raise Refused(f"a round was asked for once more, and {most} such retries were agreed")
        total = self._elsewhere() + self.ledger.releases()
        total[release] += 1
        if spent(total, self._delta, self._privacy.neighbours).epsilon > self.budget:
            raise Refused(f"one more release would pass this silo's own budget ε={self.budget:g}")
        self.ledger.book(EXTRA, release, repeatable=False)

    def close(self, releases: int) -> None:
        """Book the first releases, as far as they are not booked and the budget allows them."""
        self.pay(min(releases, self._room()) - 1)

    def _elsewhere(self) -> Counter[Booked]:
        """Releases of all other runs, as of now."""
        found: Counter[Booked] = Counter()
        for path in self._others():
            found.update(confirm_ledger(path).releases())
        return found

    def _room(self) -> int:
        """How many releases of this run the budget allows, beside all else that is booked."""
        elsewhere, booked = self._elsewhere(), self.booked
        extra = len(self.ledger) - booked
        if self._counted is None or self._counted[:2] != (elsewhere, extra):
            spent = elsewhere + self.ledger.releases()
            limits = self.budget, self._delta, self._privacy.neighbours
            more = affordable(spent, self._coming[booked:], *limits)
            self._counted = elsewhere, extra, booked + more
        return self._counted[2]

    def so_far(self) -> Spending:
        """What this run has spent, quickly, for a line of the log."""
        booked = self.booked
        if self._curve is None:
            self._curve = growth(self._coming, self._delta, self._privacy.neighbours)
        found = self._curve[booked]
        if len(self.ledger) > booked:  # rounds that were done twice are no part of the curve
            found = spent(self.ledger.releases(), self._delta, self._privacy.neighbours).epsilon
        return self._spending(found)

    def in_all(self) -> Spending:
        """What is spent in all, exactly."""
        total = self._elsewhere() + self.ledger.releases()
        found = spent(total, self._delta, self._privacy.neighbours)
        return self._spending(found.epsilon, found.accountant)

    def _spending(self, epsilon: float, accountant: str | None = None) -> Spending:
        found = epsilon if math.isfinite(epsilon) else None
        budget = self.budget if math.isfinite(self.budget) else None
        unit, neighbours = self._privacy.unit, self._privacy.neighbours
        sampling = self._coming[0].sampler.said(unit)
        means = neighbours, self._delta, sampling, accountant, unit
        return Spending(found, budget, *means, self._marks)
