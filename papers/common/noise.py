"""Noise multipliers and ε curves in a file, so that a machine without an accountant can train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.privacy.sampling import Sampler

FILE = "noise.json"


class NoiseTable:
    """What was calibrated so far; add-remove neighbours throughout."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        if path.is_file():
            self._known = json.loads(path.read_text(encoding="utf-8"))

    def multiplier(self, epsilon: float, delta: float, sampler: Sampler, rounds: int) -> float:
        """The noise with which `rounds` releases cost at most ε."""
        key = f"ε={epsilon:g} δ={delta:.6g} {sampler} rounds={rounds}"
        if key not in self._known:
            from tacit.privacy.calibration import noise_for

            self._need_accountant(key)
            self._add(key, noise_for(epsilon, delta, sampler, rounds, "add-remove"))
        return self._known[key]

    def growth(self, noise: float, delta: float, sampler: Sampler, rounds: int) -> list[float]:
        """ε after 0, 1, …, `rounds` releases."""
        key = f"growth noise={noise:.6g} δ={delta:.6g} {sampler} rounds={rounds}"
        if key not in self._known:
            from tacit.privacy.accounting import Release, growth

            self._need_accountant(key)
            curve = growth([Release(sampler, noise)] * rounds, delta, "add-remove")
            self._add(key, [round(epsilon, 6) for epsilon in curve])
        return self._known[key]

    def _need_accountant(self, key: str) -> None:
        try:
            import dp_accounting  # noqa: F401
        except ImportError:
            raise TacitError(
                f"the noise for {key} is not in {self._path.name}, and dp-accounting is not "
                "installed here: run the same command with --noise-only where it is"
            ) from None

    def _add(self, key: str, value: Any) -> None:
        self._known[key] = value
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = (
            f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(self._known[name])}"
            for name in sorted(self._known)
        )
        self._path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
