"""Every command that a page shows exists, with its flags; those in `sh` blocks run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from docs.make.commands import all_commands
from docs.make.links import DOCS, ROOT
from docs.make.tutorials import cells, tutorials
from tests.docs.pages import blocks, pages

COMMANDS = dict(all_commands())
INLINE = re.compile(r"(?:`|^ {4})(tacit [a-z][^`\n]*)", re.MULTILINE)


def shown(text: str, code: list[str]) -> list[str]:
    """Commands of a page: lines of its blocks, and what stands in backticks."""
    joined = "\n".join(code).replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines()]
    return [line for line in lines if line.startswith("tacit ")] + INLINE.findall(text)


def wrong(command: str) -> str:
    """What is wrong with a command; nothing where it is only named."""
    words = shlex.split(command, comments=True)
    while words and "|" in words:
        words = words[: words.index("|")]
    if words[1:2] in (["--version"], ["--help"]):
        return ""
    name = next((n for n in (" ".join(words[:3]), " ".join(words[:2])) if n in COMMANDS), None)
    if name is None:
        groups = {" ".join(one.split()[:2]) for one in COMMANDS}
        return "" if " ".join(words[:2]) in groups and len(words) < 3 else f"{command}: unknown"
    known = {flag for one in COMMANDS[name].params for flag in (*one.opts, *one.secondary_opts)}
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    return "".join(f"{command}: no {flag}" for flag in flags if flag not in {*known, "--help"})


def test_every_command_that_is_shown_exists_with_its_flags():
    found = []
    for page in pages():
        if page.name != "CHANGELOG.md":  # it also tells of what was
            code = [one.code for one in blocks(page) if one.language in ("", "sh")]
            found += shown(page.read_text(encoding="utf-8"), code)
    for file in tutorials():
        found += shown("\n".join(one.source for one in cells(file)), [])
    assert len(found) > 80
    assert [said for one in found if (said := wrong(one))] == []


def test_wrong_commands_are_found():
    assert wrong("tacit trian --data x.csv").endswith("unknown")
    assert wrong("tacit silo init x --table y.csv").endswith("no --table")
    assert wrong("tacit train --data x.csv --task a # a comment --nothing") == ""


def test_the_reference_has_every_flag_of_every_command():
    from docs.make.commands import commands_page

    page = commands_page()
    for name, command in COMMANDS.items():
        assert f"## {name} " in page
        for one in command.params:
            if isinstance(one, click.Option) and one.name != "help":
                assert f"`{one.opts[0]}`" in page


WITH_COMMANDS = [page for page in pages() if any(one.language == "sh" for one in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_commands_of_a_page_run_one_after_the_other(page: Path, tmp_path):
    """In a folder that has the table which the first page offers."""
    shutil.copy(DOCS / "patients.csv", tmp_path)
    path = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    for block in blocks(page):
        lines = block.code.replace("\\\n", " ").splitlines() if block.language == "sh" else ()
        for line in filter(None, map(str.strip, lines)):
            words = shlex.split(line, comments=True)
            assert words[0] == "tacit", line
            done = subprocess.run(
                [sys.executable, "-m", *words],
                cwd=tmp_path,
                env=os.environ | path,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
