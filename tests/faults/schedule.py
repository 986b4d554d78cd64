"""What goes wrong, where and when: drawn from one number, so that it can be done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

STOPS = ("kill", "torn", "after", "power")
"""A party is gone before a write, in the middle of it, behind it; or power is, with all that was
not flushed to disk."""
REFUSALS = ("full", "part", "short")
"""A write is refused, or takes half of what it was given, with or without an error."""
DAMAGE = ("flip", "double", "rot", "lose", "back")
"""A write puts down something else; or a file changes, is lost, or is an older one, while its party
is started again."""
LOSSES = ("lost", "unheard", "twice", "late", "stale")
"""A request or a reply is lost; a request comes twice, or after the next; a reply comes in the
place of the next one."""
GARBLES = ("cut", "flipped", "cut reply", "flipped reply")
CLOCK = ("clock",)
CUTS = ("before", "behind")
"""A connection with a server ends before something was handed over, or behind that."""
KINDS = {
    "disk": 2 * STOPS + 2 * REFUSALS + CLOCK,
    "message": 2 * LOSSES + GARBLES + CLOCK,
    "shares": CUTS,
}
Place = tuple[str, str]
"""A party, and one of the keys above."""


@dataclass(frozen=True)
class Fault:
    party: str
    seam: str
    at: int
    """How many writes, or messages, the party has behind it."""
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.seam} {self.at} of {self.party}"


@dataclass
class Schedule:
    """Faults that each happen once."""

    seed: str
    faults: tuple[Fault, ...] = ()
    steps: Counter[Place] = field(default_factory=Counter)
    """How often each place was passed."""
    happened: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(f"while {self.seed}")

    @classmethod
    def drawn(cls, seed: str, steps: Mapping[Place, int]) -> Schedule:
        """Evenly over what an undisturbed run did; at most one file is damaged, and seldom."""
        random = Random(seed)
        places = sorted(place for place, count in steps.items() if count)
        faults = []
        for _ in range(random.choice((1, 2, 3, 4, 6))):
            party, seam = random.choice(places)
            kind = random.choice(KINDS[seam])
            faults.append(Fault(party, seam, random.randrange(steps[party, seam]), kind))
        disks = [place for place in places if place[1] == "disk"]
        if random.random() < 0.3:
            party, seam = random.choice(disks)
            at = random.randrange(steps[party, seam])
            faults.append(Fault(party, seam, at, random.choice(DAMAGE)))
        return cls(seed, tuple(faults))

    def due(self, party: str, seam: str) -> str | None:
        """What happens at the next step of this party, if anything does."""
        number = self.steps[party, seam]
        self.steps[party, seam] += 1
        for fault in self.faults:
            if (fault.party, fault.seam, fault.at) == (party, seam, number):
                self.happened.append(fault)
                return fault.kind
        return None

    def had(self, kinds: tuple[str, ...], party: str | None = None) -> bool:
        """Whether one of these happened, to this party or to any."""
        return any(f.kind in kinds and party in (None, f.party) for f in self.happened)
