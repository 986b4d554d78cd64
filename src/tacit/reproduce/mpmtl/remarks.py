"""What there is to say about the numbers, in words; shown below the tables."""

from __future__ import annotations

BELOW: dict[str, tuple[str, ...]] = {}
FOUND: tuple[str, ...] = ()
