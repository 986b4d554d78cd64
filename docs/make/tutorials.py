"""Tutorials: Python files whose cells begin with `# %%`, as notebooks and as pages.

A cell `# %% [markdown]` is text in comments. The page shows what every cell printed when the site
was built, and links to the notebook.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from docs.make.links import DOCS, ROOT, for_the_site

FOLDER = DOCS / "tutorials"
SEPARATOR = "\N{INFORMATION SEPARATOR ONE}"


class Cell(NamedTuple):
    """Text, or code."""

    is_text: bool
    source: str


def tutorials() -> list[Path]:
    return sorted(FOLDER.glob("*.py"))


def cells(file: Path) -> list[Cell]:
    parts = re.split(r"^# %%(.*)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = []
    for kind, source in zip(parts[::2], parts[1::2]):
        is_text = "[markdown]" in kind
        text = re.sub(r"^# ?", "", source, flags=re.MULTILINE) if is_text else source
        found.append(Cell(is_text, text.strip()))
    return found


def notebook(file: Path) -> dict[str, Any]:
    """A notebook of format 4.5, with nothing run yet."""
    made = []
    for number, cell in enumerate(cells(file)):
        lines = cell.source.splitlines(keepends=True)
        kind = "markdown" if cell.is_text else "code"
        one: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        one |= {} if cell.is_text else {"execution_count": None, "outputs": []}
        made.append(one | {"source": lines})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def run(file: Path) -> list[str]:
    """What every code cell prints, and the value of its last line, as a notebook would show it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    said = []
    for cell in cells(file):
        if cell.is_text:
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            tree = ast.parse(cell.source)
            last = tree.body[-1]
            shown = last.value if isinstance(last, ast.Expr) else ast.Constant(None)
            tree.body = tree.body[:-1] if isinstance(last, ast.Expr) else tree.body
            exec(compile(tree, file.name, "exec"), names)
            value = eval(compile(_alone(shown), file.name, "eval"), names)
            if value is not None:
                print(value)
        said.append(out.getvalue().rstrip())
    return said


def _alone(value: ast.expr) -> ast.Expression:
    return ast.fix_missing_locations(ast.Expression(value))


def write(folder: Path) -> None:
    """Run every tutorial in a process of its own; write its page and its notebook."""
    folder.mkdir(exist_ok=True)
    for file in tutorials():
        (folder / f"{file.stem}.ipynb").write_text(json.dumps(notebook(file), indent=1))
        page = page_of(file, outputs(file))
        source = FOLDER / f"{file.stem}.md"
        (folder / source.name).write_text(for_the_site(page, source, lambda _: None))


def outputs(file: Path) -> list[str]:
    """What its cells printed; one that did not change is not run again until `make clean`."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    kept = ROOT / "build" / "tutorials" / f"{file.stem}-{digest}.txt"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(_said(file), encoding="utf-8")
    return kept.read_text(encoding="utf-8").split(SEPARATOR)


def _said(file: Path) -> str:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "COLUMNS": "88"}
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [sys.executable, "-m", "docs.make.tutorials", str(file)],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise SystemExit(f"{file.name} did not run:\n{done.stderr}")
    return done.stdout


def wrapped(line: str) -> list[str]:
    """A long sentence on several lines, as a terminal would show it."""
    return textwrap.wrap(line, 88, subsequent_indent="  ") or [""]


def page_of(file: Path, said: list[str]) -> str:
    answers = iter(said)
    parts = []
    for cell in cells(file):
        if cell.is_text:
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if answer := next(answers).strip():
            lines = [one for line in answer.splitlines() for one in wrapped(line)]
            parts.append("\n".join(["```text", *lines, "```"]))
    head, *rest = parts
    note = f"[Download it as a notebook]({file.stem}.ipynb)."
    return "\n\n".join([head, note, *rest]) + "\n"


if __name__ == "__main__":
    print(SEPARATOR.join(run(Path(sys.argv[1]))))
