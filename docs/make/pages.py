"""All pages of the site as Markdown: those that people wrote, and those that are generated."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from docs.make import commands, formats, reference, tutorials
from docs.make.links import DOCS, FILES, PLACES, ROOT, for_the_site, place_of

LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json"}
DRAWING = re.compile(r"^!\[([^\]]*)\]\(([^)]*drawings/[^)]+\.svg)\)$", re.MULTILINE)


def write_pages(folder: Path) -> None:
    """Write every page, and whatever pages link to, into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    written: set[Path] = set()
    waiting = [*sorted(DOCS.glob("**/*.md")), *(ROOT / name for name in PLACES)]
    waiting += [ROOT / "benchmarks" / "README.md"]
    waiting += sorted((ROOT / "papers").glob("*/README.md"))
    waiting.remove(ROOT / "README.md")  # the site begins with docs/index.md
    while waiting:
        file = waiting.pop()
        if file in written:
            continue
        written.add(file)
        place = folder / place_of(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            text = with_drawings(file.read_text(encoding="utf-8"), file)
            place.write_text(for_the_site(text, file, waiting.append), encoding="utf-8")
        elif file.suffix in FILES:
            shutil.copy(file, place)
        else:
            place.write_text(as_page(file), encoding="utf-8")
    shutil.copytree(DOCS / "assets", folder / "assets")
    for name, text in {**reference.pages(), **commands.pages(), **formats.pages()}.items():
        (folder / "reference").mkdir(exist_ok=True)
        (folder / "reference" / name).write_text(text, encoding="utf-8")
    tutorials.write(folder / "tutorials")


def with_drawings(text: str, file: Path) -> str:
    """Drawings inside the page, so that their lines have the colour of its text."""

    def inside(match: re.Match[str]) -> str:
        drawing = (file.parent / match.group(2)).read_text(encoding="utf-8")
        return f'<div class="wide">{" ".join(drawing.split())}</div>'

    return DRAWING.sub(inside, text)


def as_page(file: Path) -> str:
    """A page that shows a file of the repository."""
    inside = file.relative_to(ROOT).as_posix()
    code = file.read_text(encoding="utf-8")
    return f"# {inside}\n\n~~~~{LANGUAGES.get(file.suffix, 'text')}\n{code.rstrip()}\n~~~~\n"
