"""What an attack on a run found: the promise, the bound, and what was assumed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.files import read_json, replace
from tacit.privacy import Privacy, Release, Sampler, spent
from tacit.privacy.accounting import B
from tacit.privacy.guarantee import delta_up, differs, epsilon_up
from tacit.privacy.sampling import Neighbours, Unit
from tacit.words import counted

FILE = "audit.json"


@dataclass(frozen=True)
class Promised:
    """The promise that is attacked."""

    epsilon: float
    delta: float
    neighbours: Neighbours
    sampling: str
    accountant: str
    releases: int
    noise_multiplier: float
    unit: Unit = "task"

    @classmethod
    def of(
        cls,
        booked: Mapping[B, int],
        privacy: Privacy,
        sampler: Sampler,
        neighbours: Neighbours | None = None,
    ) -> Promised:
        """What these releases promise, as the guarantee of a run would have it."""
        assert privacy.delta is not None
        which = neighbours or privacy.neighbours
        total = spent(booked, privacy.delta, which)
        return cls(
            total.epsilon,
            privacy.delta,
            which,
            sampler.said(privacy.unit),
            total.accountant,
            sum(count for entry, count in booked.items() if isinstance(entry, Release)),
            min(entry.noise_multiplier for entry in booked),
            privacy.unit,
        )

    def __str__(self) -> str:
        releases = counted(self.releases, "release")
        return (
            f"ε={epsilon_up(self.epsilon)} at δ={delta_up(self.delta)}, "
            f"{differs(self.neighbours, self.unit)}, {self.sampling}, {releases}, "
            f"{self.accountant} accountant"
        )


@dataclass(frozen=True)
class Audit:
    """A finished attack."""

    attack: str
    """"many runs", "one run" or "neighbour"."""
    promised: Promised
    epsilon_lower: float
    """What the attack proves, with this confidence."""
    confidence: float
    tries: Mapping[str, float]
    """How often was tried what."""
    assumed: tuple[str, ...]
    broken: str = ""
    """What the attack saw that must not happen at all, whatever the noise hides of it."""
    seconds: float = 0.0

    @property
    def refuted(self) -> bool:
        return bool(self.broken) or self.epsilon_lower > self.promised.epsilon

    @property
    def verdict(self) -> str:
        """In one sentence."""
        return f"{self.ruling}: {self.grounds}"

    @property
    def ruling(self) -> str:
        return "REFUTED" if self.refuted else "not refuted"

    @property
    def grounds(self) -> str:
        """What the ruling rests on."""
        least, most = f"{_down(self.epsilon_lower)}", epsilon_up(self.promised.epsilon)
        sure = f"{100 * self.confidence:g} % confidence"
        if self.epsilon_lower > self.promised.epsilon:
            also = f"; {self.broken}" if self.broken else ""
            return f"ε is at least {least} ({sure}), but {most} was promised{also}"
        if self.broken:
            return self.broken
        return f"the attack proves ε ≥ {least} ({sure}), and {most} was promised"

    def __str__(self) -> str:
        return f"{self.verdict}; the promise: {self.promised}"

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        promised = {key: value for key, value in vars(self.promised).items()}
        finite = math.isfinite(self.epsilon_lower)
        return {
            "attack": self.attack,
            "promised": promised | {"in_words": str(self.promised)},
            "epsilon_lower": self.epsilon_lower if finite else None,
            "confidence": self.confidence,
            "refuted": self.refuted,
            "verdict": self.verdict,
            "tries": dict(self.tries),
            "assumed": list(self.assumed),
            "broken": self.broken,
            "seconds": self.seconds,
            "date": time.strftime("%Y-%m-%d"),
        }

    def save(self, folder: Path) -> None:
        """Into audit.json, in the place of an earlier attack of this kind, and into the report."""
        path = folder / FILE
        before = read_json(path, {}, "remove it") if path.is_file() else {}
        found = before | {self.attack: self.to_json()}
        replace(path, json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False).encode())
        result = folder / "result.json"
        if result.is_file():
            from tacit.report.html import write_html

            known = read_json(result, {"metrics": dict}, "run it again in another folder")
            write_html(known | {"audits": found}, folder / "report.html")


def _down(epsilon: float) -> str:
    """Two decimals, never rounded up."""
    return f"{math.floor(epsilon * 100) / 100:.2f}" if math.isfinite(epsilon) else "∞"
