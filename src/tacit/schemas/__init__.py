"""JSON Schemas of the files that runs write and consortia agree on.

They are in the wheel, so that a file can be checked without anything but a validator:
`jsonschema.validate(json.load(file), tacit.schemas.schema("result"))`.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from tacit.checks import near
from tacit.errors import TacitError

FILES = {
    "result": "result.json",
    "ledger": "ledger.jsonl",
    "models": "models/about.json",
    "consortium": "consortium.toml",
}
"""Which file each schema is for. A ledger has one object on each line."""

__all__ = ["FILES", "schema"]


def schema(name: str) -> dict[str, Any]:
    """The schema of this name, as plain values; `FILES` has all names."""
    if name not in FILES:
        raise TacitError(f"there is no schema {name!r}{near(name, FILES, len(FILES))}")
    place = resources.files("tacit.schemas") / f"{name}.schema.json"
    return json.loads(place.read_text(encoding="utf-8"))
