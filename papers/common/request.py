"""What was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import TacitError

PLAIN_COMMAND = "python -m papers"
"""How reproductions are run, from the root of a checkout."""


@dataclass(frozen=True)
class PageRequest:
    """A figure or table, where its data are, and how large its runs shall be."""

    name: str
    """Paper and page, like pmtl/figure3."""
    data: Path | None
    """The folder of data sets."""
    out: Path
    """The folder of the results."""
    seeds: int
    sets: tuple[str, ...] = ()
    """Only these data sets; all of the page's where there are none."""
    reduced: bool = False
    """Small, for two cores."""
    device: str = "cpu"
    together: bool = False
    """Make runs that no other process has begun, and no page (PMTL)."""
    noise_only: bool = False
    """Only calibrate the noise, for a machine without an accountant."""
    pages: bool = False
    """Make no runs: write the pages from what was run before (FedMTL, grids of PMTL)."""
    limit: float | None = None
    """Begin no run after so many seconds (FedMTL)."""
    say: Callable[[str], None] = print

    @property
    def paper(self) -> str:
        return self.name.split("/")[0]

    @property
    def stem(self) -> str:
        """What the page's files are called."""
        return self.name.split("/")[1]

    @property
    def page(self) -> Path:
        return self.out / f"{self.stem}.md"

    def check_sets(self, known: Iterable[str]) -> None:
        for key in self.sets:
            if key not in known:
                raise TacitError(f"{self.name} does not use {key!r}: choose of {', '.join(known)}")

    def check_seeds(self, most: int | None = None) -> None:
        if self.seeds < 1 or (most is not None and self.seeds > most):
            allowed = "at least 1 is needed" if most is None else f"from 1 to {most} are possible"
            raise TacitError(f"seeds={self.seeds}: {allowed}")

    def need_data(self) -> Path:
        """The folder of data sets, where one is needed."""
        if self.data is None:
            raise TacitError("pass --data DIR, or set TACIT_DATA to the folder of data sets")
        return self.data

    def command(self, *options: str) -> str:
        """The command that makes this page, with `options` between its name and its size."""
        parts = [PLAIN_COMMAND, self.name, *options]
        return " ".join([*parts, *(["--reduced"] if self.reduced else [])])

    def write_page(self, *parts: str) -> Path:
        """The Markdown page of these parts; empty ones are left out."""
        self.out.mkdir(parents=True, exist_ok=True)
        shown = [part.strip() for part in parts if part.strip()]
        self.page.write_text("\n\n".join(shown) + "\n", encoding="utf-8")
        return self.page

    @property
    def picture(self) -> str:
        """The page's plot in Markdown, where one was drawn."""
        drawn = (self.out / f"{self.stem}.png").is_file()
        return f"![{self.stem}]({self.stem}.png)" if drawn else ""
