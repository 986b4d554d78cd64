"""What a person sees while a run goes on."""

from __future__ import annotations

import contextlib
import html
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tacit.privacy import NOT_COVERED

OnRound = Callable[[int, dict[str, Any]], None]


class Progress(Protocol):
    """Shows that something happens."""

    def say(self, text: str) -> None: ...

    def rounds(self, title: str, total: int) -> contextlib.AbstractContextManager[OnRound]: ...


class Silent:
    def say(self, text: str) -> None:
        pass

    @contextlib.contextmanager
    def rounds(self, title: str, total: int) -> Iterator[OnRound]:
        yield lambda round, point: None


silent = Silent()


class Bar:
    """A bar on standard error: round, loss, ε so far, time left. It leaves nothing behind."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    def say(self, text: str) -> None:
        if self._console.is_terminal:
            self._console.print(f"[dim]{text} …[/dim]")

    @contextlib.contextmanager
    def rounds(self, title: str, total: int) -> Iterator[OnRound]:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=self._console, transient=True) as bars:
            bar = bars.add_task(title, total=total, state="")

            def on_round(round: int, point: dict[str, Any]) -> None:
                bars.update(bar, completed=round, state=_state(point))

            yield on_round


GONE = "<span></span>"
"""What a bar leaves in a notebook, which would show something empty as text."""


class NotebookBar:
    """The same in a cell's output of a notebook, which has no terminal and perhaps no widgets."""

    EVERY = 0.2
    """Seconds between two pictures: every one of them is sent to a browser."""

    def __init__(self) -> None:
        shows = importlib.import_module("IPython.display")  # which only notebooks have
        self._picture, self._display = shows.HTML, shows.display

    def say(self, text: str) -> None:
        pass

    @contextlib.contextmanager
    def rounds(self, title: str, total: int) -> Iterator[OnRound]:
        shown = self._display(self._picture(_bar(title, 0, total, "")), display_id=True)
        last = 0.0

        def on_round(round: int, point: dict[str, Any]) -> None:
            nonlocal last
            if round == total or time.monotonic() - last > self.EVERY:
                last = time.monotonic()
                shown.update(self._picture(_bar(title, round, total, _state(point))))

        try:
            yield on_round
        finally:
            shown.update(self._picture(GONE))


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this: IPython is there then, and was imported."""
    there = sys.modules.get("IPython")
    shell = None if there is None else there.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _state(point: dict[str, Any]) -> str:
    """ε so far, and the loss, which it does not cover."""
    loss, epsilon = point.get("loss"), point.get("epsilon")
    parts = [f"ε {epsilon:.3g}" if epsilon is not None else ""]
    parts += [f"loss {loss:.4g} ({NOT_COVERED})" if loss is not None else ""]
    return "  ".join(filter(None, parts))


def _bar(title: str, round: int, total: int, state: str) -> str:
    bar = f'<progress value="{round}" max="{total}"></progress>'
    return f"<div>{html.escape(title)} {bar} {round}/{total} {html.escape(state)}</div>"
