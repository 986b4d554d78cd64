"""No link is dead: files, headings, and pages that the build makes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from docs.make.links import FENCE, ROOT, file_of, links
from docs.make.tutorials import cells, tutorials
from tests.docs.pages import generated, pages

ALL = [*pages(), ROOT / "benchmarks" / "README.md", *sorted((ROOT / "papers").rglob("*.md"))]


@cache
def anchors(page: Path) -> set[str]:
    """Of all headings, as the site makes them: Latin letters, digits and dashes."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        latin = plain.encode("ascii", "ignore").decode()
        found.add(re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", latin).strip()))
    return found


def dead(text: str, page: Path) -> list[str]:
    known = generated()
    found = []
    for link in links(text):
        if link.outside:
            continue
        there = file_of(page, link.target) if link.target else page
        notebook = there.suffix == ".ipynb" and there.with_suffix(".py").exists()
        if there in known or notebook:
            continue
        missing = not there.exists()
        if missing or (link.anchor and there.suffix == ".md" and link.anchor not in anchors(there)):
            found.append(f"{page.relative_to(ROOT)}: {link.target}#{link.anchor}")
    return found


def test_no_link_of_any_page_is_dead():
    assert len(ALL) > 40
    assert [one for page in ALL for one in dead(page.read_text(encoding="utf-8"), page)] == []


@pytest.mark.parametrize("file", tutorials(), ids=lambda file: file.stem)
def test_no_link_of_a_tutorial_is_dead(file):
    text = "\n\n".join(cell.source for cell in cells(file) if cell.is_text)
    assert dead(text, file) == []


def test_dead_links_are_found():
    """The checker has teeth."""
    page = ROOT / "docs" / "privacy.md"
    text = "[a](nowhere.md) [b](data.md#nowhere) [c](#nowhere) [d](data.md#public-rows)"
    found = ("nowhere.md#", "data.md#nowhere", "#nowhere")
    assert dead(text, page) == [f"docs/privacy.md: {one}" for one in found]


def test_every_page_is_in_the_menu_of_the_site():
    menu = (ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    own = [page for page in {*pages(), *generated()} if page.is_relative_to(docs)]
    assert [page for page in own if f'"{page.relative_to(docs).as_posix()}"' not in menu] == []
