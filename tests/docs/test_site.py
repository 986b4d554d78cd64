"""The site as it is built: whole, without anything from elsewhere."""

from __future__ import annotations

import re

import pytest

from docs.make import tutorials
from docs.make.links import ROOT

pytest.importorskip("zensical")
LOADED = re.compile(r'<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)="([^"]+)"')


@pytest.mark.slow
def test_the_site_builds_without_a_dead_link_and_loads_nothing_from_elsewhere(
    monkeypatch, tmp_path
):
    from docs.make.__main__ import build

    monkeypatch.setattr(tutorials, "outputs", lambda file: [""] * 99)  # other tests run them
    site = build(tmp_path)
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for address in LOADED.findall(text):
            assert not address.startswith(("http:", "https:", "//")), f"{page}: {address}"
            if not address.startswith("data:"):
                place = page.parent / address.partition("?")[0].partition("#")[0]
                assert place.exists(), f"{page}: {address}"
        assert 'lang="en"' in text
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text(encoding="utf-8")
    index = (site / "search.js").read_text(encoding="utf-8")
    assert "privacy-officer.html" in index  # found without a server


def test_the_site_has_one_version_of_the_project():
    import tacit

    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {tacit.__version__}\n" in cited
    assert f"## {tacit.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
