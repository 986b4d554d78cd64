"""Links between files of the repository, as links between pages of the site.

A page may link to anything in the repository. Markdown becomes a page, a picture is copied, and any
other text becomes a page that shows it: the site is whole without a server that has the source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PICTURES = {".png", ".svg", ".jpg"}
FILES = PICTURES | {".csv", ".ipynb"}
"""What is handed on as it is."""
PLACES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
}
LINK = re.compile(r"(?<!`)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)


class Link(NamedTuple):
    """One link of a page: what it shows, where it goes, and to which heading there."""

    text: str
    target: str
    anchor: str

    @property
    def outside(self) -> bool:
        return ":" in self.target.split("/")[0]


def links(text: str) -> Iterator[Link]:
    """All links of a Markdown text, without those in code."""
    for shown, target in LINK.findall(FENCE.sub("", text)):
        path, _, anchor = target.partition("#")
        yield Link(shown, path, anchor)


def file_of(page: Path, target: str) -> Path:
    """The file in the repository that a link of this page means; a folder means its README."""
    found = (page.parent / target).resolve()
    return found / "README.md" if found.is_dir() else found


def place_of(file: Path) -> str:
    """Where a file of the repository is in the site."""
    if file.is_relative_to(DOCS) and file.suffix != ".py":
        return file.relative_to(DOCS).as_posix()
    inside = file.relative_to(ROOT)
    if inside.as_posix() in PLACES:
        return PLACES[inside.as_posix()]
    if file.name == "README.md":
        return (inside.parent / "index.md").as_posix()
    if file.suffix in {".md", *FILES}:
        return inside.as_posix()
    return f"source/{inside.as_posix()}.md"


def for_the_site(text: str, file: Path, linked: Callable[[Path], None]) -> str:
    """The text of a page, with links that hold in the site; tells which files they need.

    What docs/make writes itself (the reference, tutorials) is linked as if it were in docs/.
    """
    here = Path(place_of(file)).parent

    def moved(match: re.Match[str]) -> str:
        shown, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or Link(shown, path, anchor).outside:
            return match.group(0)
        there = file_of(file, path)
        if there.exists():
            linked(there)
        return f"[{shown}]({os.path.relpath(place_of(there), here)}{hash_}{anchor})"

    parts, last = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(moved, text[last : fence.start()]), fence.group(0)]
        last = fence.end()
    return "".join([*parts, LINK.sub(moved, text[last:])])
