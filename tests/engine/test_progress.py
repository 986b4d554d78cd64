"""Bars: in a notebook, where there is no terminal, and labelled."""

from __future__ import annotations

import sys
import types

import pytest

from tacit.engine.progress import NotebookBar, in_notebook, silent
from tacit.experiment.start import progress_of


class Shown:
    def __init__(self, pictures: list[str]) -> None:
        self.pictures = pictures

    def update(self, picture: str) -> None:
        self.pictures.append(picture)


@pytest.fixture
def notebook(monkeypatch) -> list[str]:
    """The parts of IPython that are used, as a kernel has them."""
    pictures: list[str] = []

    def display(picture, *, display_id):
        assert display_id
        pictures.append(picture)
        return Shown(pictures)

    shell, inner = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    shell.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    inner.HTML, inner.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    return pictures


def test_a_notebook_has_a_bar_that_goes_on_and_away(notebook):
    bar = progress_of(None)
    assert isinstance(bar, NotebookBar)
    bar.say("preparing")
    with bar.rounds("<b>pmtl</b>", 2) as on_round:
        on_round(1, {"loss": 0.5, "epsilon": 1.25})
        on_round(2, {"loss": 0.25, "epsilon": 1.5})
    first, _, last, after = notebook
    assert 'value="0" max="2"' in first and "&lt;b&gt;pmtl" in first
    assert 'value="2"' in last and "ε 1.5" in last
    assert "loss 0.25 (not covered by the guarantee)" in last
    assert after == "<span></span>"


def test_a_bar_does_not_flood_the_browser(notebook):
    with NotebookBar().rounds("pmtl", 10_000) as on_round:
        for round in range(10_000):
            on_round(round, {})
    assert len(notebook) < 100


def test_without_a_kernel_there_is_no_notebook(monkeypatch):
    assert not in_notebook()
    shell = types.ModuleType("IPython")
    shell.get_ipython = lambda: types.SimpleNamespace()  # IPython in a terminal
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert not in_notebook()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert progress_of(None) is silent
