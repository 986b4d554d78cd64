"""The coordinator as a process: what `tacit coordinator run` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid

from tacit.deploy.agreement import Agreement
from tacit.deploy.conduct import Conducted, conduct
from tacit.deploy.diary import Diary
from tacit.deploy.flower.app import make_server_app
from tacit.deploy.flower.asking import FlowerSilos
from tacit.deploy.flower.limits import Strangers
from tacit.deploy.flower.link import Link
from tacit.deploy.keys import load_public
from tacit.deploy.site import AGREED
from tacit.engine.progress import Progress, silent
from tacit.errors import TacitError
from tacit.files import hold

Say = Callable[[str], None]


def run_coordinator(
    folder: Path,
    host: str,
    port: int,
    *,
    patience: float,
    say: Say = lambda line: None,
    progress: Progress = silent,
    servers: Mapping[str, Any] | None = None,
) -> Conducted:
    """Conduct the run of this folder to its end, from wherever it stands."""
    terms = Agreement.read(folder / AGREED).terms
    keys: dict[str, bytes] = {}
    for name in terms.silos:
        path = folder / "keys" / f"{name}.pub"
        if not path.is_file():
            raise TacitError(f"there is no {path}: get node.pub from {name}, and put it there")
        key = load_public(path)
        same = next((other for other, known in keys.items() if known == key), None)
        if same is not None:
            raise TacitError(f"{path} is the key of {same} too: each silo needs its own node.pub")
        keys[name] = key
    secure = None if servers is None else terms.make_curator(**servers)
    diary = Diary(folder, say)
    blamed: dict[str, str] = {}
    link = Link(host, port, keys, folder, Strangers(diary.write, blamed.setdefault))
    done: list[Conducted] = []

    def rounds(grid: Grid, context: Context) -> None:
        silos = FlowerSilos(
            grid, lambda: link.nodes(terms.silos), patience, on_expect=link.limits.expect
        )
        done.append(
            conduct(
                terms, folder, silos, also=say, progress=progress, blamed=blamed, servers=secure
            )
        )

    with hold(folder), link.running():
        link.run(make_server_app(rounds))
    return done[0]
