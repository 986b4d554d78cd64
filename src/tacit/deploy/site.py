"""A silo's folder: who it is, what it agreed to, where its rows are.

consortium.toml   its own copy of what was agreed
silo.toml         its own settings
node.key, ca.pem  who it is, and whom it trusts to be the coordinator
runs/             what it must not forget of each run
model/            its personal model
report.json       how good that is, and what it cost; report.html is the same to look at
log.txt           what left it, and what it refused, in plain words
events.jsonl      the same as JSON
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from tacit.deploy.agreement import Agreement
from tacit.deploy.diary import read_diary
from tacit.deploy.events import ModelKept
from tacit.deploy.personal import MODEL, keep_personal
from tacit.deploy.servers import ToServers
from tacit.deploy.silo import Silo
from tacit.deploy.table import own_rows
from tacit.deploy.terms import Terms
from tacit.engine.progress import Progress, silent
from tacit.errors import TacitError
from tacit.experiment.toml import Section, read, sentence
from tacit.files import hold, replace
from tacit.local.recipes import Personalise
from tacit.report.silo import write_page

SETTINGS, AGREED = "silo.toml", "consortium.toml"


class ServersSection(Section):
    """Where the servers on shares are, if the consortium has any."""

    peers: list[str]
    dealer: str | None = None
    certificates: str


class SiteSettings(Section):
    """What a silo decides for itself."""

    name: str
    data: str
    coordinator: str | None = None
    """Where our own coordinator listens; None where a Flower federation carries the messages."""
    epsilon: float | None = Field(None, gt=0)
    """This silo's own budget over all runs; None for what was agreed."""
    runs: int = Field(1, ge=1)
    """How many runs under these terms it takes part in."""
    person: str | None = None
    """The column that says whose row each is, where persons are protected."""
    personalise: Personalise = "best"
    servers: ServersSection | None = None


@dataclass(frozen=True)
class Site:
    """One silo, from its folder."""

    folder: Path
    settings: SiteSettings
    terms: Terms
    also: Callable[[str], None] = lambda line: None

    @classmethod
    def open(cls, folder: Path, also: Callable[[str], None] = lambda line: None) -> Site:
        for name in (SETTINGS, AGREED):
            if not (folder / name).is_file():
                raise TacitError(f"{folder} has no {name}: make it with `tacit silo init`")
        try:
            settings = SiteSettings.model_validate(read(folder / SETTINGS))
        except ValidationError as error:
            raise TacitError(sentence(error, SiteSettings, str(folder / SETTINGS))) from error
        terms = Agreement.read(folder / AGREED).terms
        terms.index(settings.name)
        return cls(folder, settings, terms, also)

    @property
    def table(self) -> Path:
        """The silo's own rows; a relative path begins at its folder."""
        return self.folder / self.settings.data

    @property
    def coordinator(self) -> str:
        """Where our own coordinator listens."""
        if self.settings.coordinator is None:
            raise TacitError(
                f'{self.folder / SETTINGS} names no coordinator: add coordinator = "host:port"'
            )
        return self.settings.coordinator

    @functools.cached_property
    def silo(self) -> Silo:
        """Reads the table; refuses one that does not fit what was agreed."""
        own = own_rows(self.terms, self.settings.name, self.table, self.settings.person)
        return Silo(
            self.terms,
            self.settings.name,
            own,
            self.folder,
            budget=self.settings.epsilon,
            runs=self.settings.runs,
            also=self.also,
            servers=self._servers(),
        )

    def _servers(self) -> ToServers | None:
        if self.terms.curator is None:
            return None
        if self.settings.servers is None:
            raise TacitError(
                f"these terms agree on servers that work on shares: say where they are, in "
                f"[servers] of {self.folder / SETTINGS}"
            )
        where = self.settings.servers.model_dump()
        settings = self.terms.make_curator(**where)
        assert settings is not None
        return ToServers(settings, self.settings.name)

    @property
    def unsettled(self) -> bool:
        """Whether a run is over from whose billboard no model was made yet."""
        work, made = self.silo.latest(), self.folder / MODEL / "about.json"
        if work is None or not work.finished:
            return False
        return not made.exists() or made.stat().st_mtime < work.saved_at

    def personalise(self, progress: Progress = silent) -> dict[str, Any]:
        """Make and keep the personal model, from the last billboard that this silo saw."""
        with hold(self.folder):
            work = self.silo.latest()
            if work is None:
                raise TacitError(f"{self.folder} took part in no run yet: there is nothing to use")
            mode = self.settings.personalise
            report = keep_personal(work, self.silo.own, mode, self.folder, progress)
            self.silo.diary.write(ModelKept(report["chosen"]))
            write_page(report, [(e.when, e.said) for e in read_diary(self.folder)[0]], self.folder)
            return report


def write_settings(
    folder: Path, servers: tuple[Sequence[str], Path] | None = None, **settings: Any
) -> None:
    """`silo.toml` with these settings, and the others explained.

    `servers` are the addresses of servers on shares, and the folder of certificates for them.
    """
    lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
    lines += [
        "# epsilon = 2.0          # its own budget over all runs; without it, the agreed one",
        "# runs = 1               # how many runs under these terms it takes part in",
        '# personalise = "best"   # its own last step: best, vanilla, mean, kl, ewc or none',
    ]
    if servers is not None:
        peers, certificates = ", ".join(map(_toml, servers[0])), _toml(str(servers[1]))
        lines += ["[servers]", f"peers = [{peers}]", f"certificates = {certificates}"]
    replace(folder / SETTINGS, ("\n".join(lines) + "\n").encode())


def _toml(value: str | int | float) -> str:
    if not isinstance(value, str):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
