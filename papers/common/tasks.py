"""A federation of fewer tasks."""

from __future__ import annotations

import dataclasses
from typing import Any

from tacit.data.federation import PARTS, Federation, Rows


def first_tasks(federation: Federation, tasks: int) -> Federation:
    """The first so many tasks."""

    def cut(rows: Rows) -> Rows:
        end = int(rows.offsets[tasks])
        return Rows(rows.x[:end], rows.y[:end], rows.offsets[: tasks + 1])

    if tasks >= len(federation):
        return federation
    parts: dict[str, Any] = {name: cut(federation.part(name)) for name in PARTS}
    return dataclasses.replace(federation, names=list(federation.names[:tasks]), **parts)
