"""Every block of Python, example and tutorial runs, in a process of its own as a reader would."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make.arguments import SHARED, unsaid
from docs.make.examples import MODULES, examples, short
from docs.make.links import DOCS, ROOT
from docs.make.reference import doc as about
from docs.make.reference import fields_below, public_names
from docs.make.tutorials import cells, notebook, tutorials
from tests.docs.pages import blocks, pages

ELSEWHERE = {
    "docs/methods.md": "tests/test_docs.py runs its method",
    "docs/exchange.md": "tests/test_docs.py runs it on the four hospitals, if they are there",
    "docs/data.md": "tests/test_docs.py runs it on rows made there",
    "docs/ways.md": "tests/test_docs.py runs it with fewer rounds",
}
"""Pages whose Python is run by other tests."""


def run(code: str, folder: Path) -> None:
    (folder / "shown.py").write_text(code, encoding="utf-8")
    shutil.copy(DOCS / "patients.csv", folder)
    path = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "shown.py"],
        cwd=folder,
        env=os.environ | path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def python_of(page: Path) -> list[str]:
    return [one.code for one in blocks(page) if one.language == "python"]


WITH_PYTHON = [
    page
    for page in pages()
    if python_of(page) and page.relative_to(ROOT).as_posix() not in ELSEWHERE
]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_of_a_page_runs(page, tmp_path):
    run("\n".join(python_of(page)), tmp_path)


def test_python_that_is_not_run_here_can_at_least_be_read():
    for page in pages():
        for one in blocks(page):
            assert one.language in ("", "python", "sh", "text", "toml", "json"), page
            if one.language == "python":
                compile(one.code, str(page), "exec")


@pytest.mark.slow
@pytest.mark.parametrize("file", tutorials(), ids=lambda file: file.stem)
def test_a_tutorial_runs(file, tmp_path):
    run("\n".join(one.source for one in cells(file) if not one.is_text), tmp_path)


@pytest.mark.parametrize("file", tutorials(), ids=lambda file: file.stem)
def test_a_notebook_holds_what_its_tutorial_does(file):
    made = json.loads(json.dumps(notebook(file)))
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    assert made["cells"][0]["cell_type"] == "markdown"
    assert "".join(made["cells"][0]["source"]).startswith("# ")
    code = ["".join(one["source"]) for one in made["cells"] if one["cell_type"] == "code"]
    assert code == [one.source for one in cells(file) if not one.is_text]
    assert len({one["id"] for one in made["cells"]}) == len(made["cells"])
    compile("\n".join(code), file.name, "exec")


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_example_that_uses_it(module):
    shown = {name: one.code for one in examples(module) for name in one.names}
    names = public_names(module)
    assert [name for name in names if name not in shown] == []
    assert [name for name in shown if name not in names] == []
    assert [name for name in names if name.lower() not in shown[name].lower()] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_argument_has_words(module):
    """In the docstring, below the field, or among those that many functions share."""
    lacking = {}
    for name in public_names(module):
        thing = getattr(importlib.import_module(module), name)
        words = " ".join([about(thing), *(about(one) for one in getattr(thing, "__mro__", ()))])
        below = fields_below(thing) if inspect.isclass(thing) else SHARED
        if found := [one for one in unsaid(thing, words) if one not in below]:
            lacking[name] = found
    assert lacking == {}


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_examples_of_the_reference_run(module, tmp_path):
    run("\n".join(one.code for one in examples(module)), tmp_path)


def test_every_public_module_is_in_the_reference():
    """A package with a list of its names is public, or its name says here why it is not."""
    inner = {
        "formula",
        "report",
        "schemas",
        "watch",
    }  # used through tacit.mixed, run.report, the files page and the command
    listed = {
        file.parent.name if file.parent.name != "tacit" else "tacit"
        for file in (ROOT / "src" / "tacit").glob("**/__init__.py")
        if "\n__all__ = " in file.read_text(encoding="utf-8")
    }
    assert listed - inner == {short(module) for module in MODULES}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_says_what_it_is(module):
    from docs.make.reference import module_page

    page = module_page(module)
    for name in public_names(module):
        part = page.partition(f"## {name} {{ #")[2].partition("\n## ")[0]
        words = part.partition("}")[2].replace("```", "")
        assert len(words.split()) > 8, name
