"""`python -m docs.make`: the whole site, in build/site."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.make.links import DOCS, ROOT
from docs.make.pages import write_pages

SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>')
"""What the generator asks a server for, so that search works on pages read from a disk."""
NAMELESS = re.compile(r'<a id="__codelineno[^>]*></a>')
"""Links at every line of code: whoever listens to a page hears of them, and nobody uses them."""


def build(folder: Path = ROOT / "build") -> Path:
    """Write pages and site into a folder; the first dead link ends it."""
    folder.mkdir(exist_ok=True)
    write_pages(folder / "pages")
    site = folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    settings = shutil.copy(DOCS / "zensical.toml", folder)
    made = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(settings)],
        env=os.environ | {"NO_COLOR": "1"},
    )
    if made.returncode:
        raise SystemExit(made.returncode)
    (site / "404.html").unlink()  # for a server at the root of its host; this site may lie anywhere
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        up = "../" * (len(page.relative_to(site).parts) - 1)
        own = f'<script src="{up}assets/site.js"></script>'
        page.write_text(NAMELESS.sub("", SHIM.sub(own, text)), encoding="utf-8")
    return site


if __name__ == "__main__":
    print(f"{build() / 'index.html'}")
