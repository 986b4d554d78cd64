"""What a person sees while a run goes on."""

from __future__ import annotations

import contextlib
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
                loss, epsilon = point.get("loss"), point.get("epsilon")
                parts = [f"ε {epsilon:.3g}" if epsilon is not None else ""]
                parts += [f"loss {loss:.4g} ({NOT_COVERED})" if loss is not None else ""]
                bars.update(bar, completed=round, state="  ".join(filter(None, parts)))

            yield on_round
