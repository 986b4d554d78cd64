"""Examples of the reference: docs/examples has a file for each module.

A part begins with `# %%` and the names that it shows, with commas. Parts run in order, as one
program.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from docs.make.links import DOCS

MODULES = (
    "tacit",
    "tacit.data",
    "tacit.models",
    "tacit.methods",
    "tacit.privacy",
    "tacit.sklearn",
    "tacit.classical",
)
"""Whose names are public, and have a page each."""


class Example(NamedTuple):
    """Some lines, and the names that they show; those without names only prepare."""

    names: tuple[str, ...]
    code: str


def short(module: str) -> str:
    return module.rpartition(".")[2]


def examples(module: str) -> list[Example]:
    """The parts of a module's file, in their order."""
    text = (DOCS / "examples" / f"{short(module)}.py").read_text(encoding="utf-8")
    parts = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)[1:]
    return [
        Example(tuple(filter(None, re.split(r",\s*", names.strip()))), code.strip())
        for names, code in zip(parts[::2], parts[1::2])
    ]
