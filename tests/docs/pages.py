"""What the tests about pages have in common: which pages there are, and what is in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from docs.make.links import DOCS, ROOT
from docs.make.tutorials import tutorials

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
OUTSIDE = ("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md")


class Block(NamedTuple):
    """A block of code in a page."""

    language: str
    code: str


def pages() -> list[Path]:
    """Pages that people wrote, in docs/ and beside it."""
    return [*sorted(DOCS.glob("**/*.md")), *(ROOT / name for name in OUTSIDE)]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(language, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE))
        for indent, language, code in FENCE.findall(text)
    ]


def generated() -> set[Path]:
    """Pages that docs/make writes, as if they were in docs/."""
    names = ("index", "tacit", "data", "models", "methods", "privacy", "sklearn", "classical")
    names += ("commands", "settings", "files")
    found = {DOCS / "reference" / f"{name}.md" for name in names}
    return found | {DOCS / "tutorials" / f"{one.stem}.md" for one in tutorials()}
