"""Writes a Flower project around our silo and coordinator: what `tacit deploy flower-app` does.

Text only: what it imports when it runs is `deploy/flower/hosted.py`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tacit import __version__
from tacit.deploy.agreement import Agreement
from tacit.deploy.site import AGREED
from tacit.deploy.terms import Terms
from tacit.errors import TacitError
from tacit.files import copy, make_folder, replace
from tacit.words import tame

SILO = "tacit-silo"
"""In a SuperNode's `--node-config`: the folder of its silo. In a reply: the name of the silo."""
FOLDER, PATIENCE = "folder", "patience"
"""In the configuration of a run: the coordinator's folder, and seconds to answer in."""
PACKAGE = "tacit_app"
LONGEST = 32
"""Letters that Flower takes in a name."""

PROJECT = """\
[project]
name = "{name}"
version = "{version}"
description = {description}
license = "Apache-2.0"
# Nothing is fetched when a run begins: install tacit where the SuperLink and the SuperNodes run,
# in the environment that they run in.
dependencies = []

[tool.flwr.app]
publisher = "tacit"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

[tool.flwr.app.config]
# At the SuperLink: billboard, ledger and log of the run. They must outlive it.
{folder} = {place}
# Seconds that a silo has to answer in; then it contributes zero.
{patience} = 300
"""

SERVER = '''\
"""The coordinator: its rounds, its sums, its noise and its ledger, over Flower's grid."""

from pathlib import Path

from tacit.deploy.flower.hosted import coordinator_app

app = coordinator_app(Path(__file__).with_name("{agreed}"))
'''

CLIENT = '''\
"""A silo: it answers from its own folder, by its own copy of what was agreed."""

from tacit.deploy.flower.hosted import silo_app

app = silo_app()
'''

README = """\
# {consortium}, as a Flower app

Whoever runs a SuperNode makes the folder of a silo, and tells the SuperNode where it is:

    tacit silo init SILO --consortium {agreed} --name NAME --data TABLE
    tacit silo check SILO
    flower-supernode … --node-config '{silo}="/whole/path/of/SILO"'

Names are {silos}. Whoever has the federation runs

    flwr run . --stream

and, once it is over, every silo

    tacit silo personalise SILO

The coordinator keeps its billboard and its ledger in the folder that `pyproject.toml` names, on the
machine of the SuperLink. Run the app again after a crash: it goes on. Public keys of SuperNodes may
be put there as `keys/NAME.pub`: then no other node can take the place of that silo.
"""


def check_hosted(terms: Terms) -> None:
    """Refuse what does not go over a SuperLink."""
    if terms.curator is not None:
        raise TacitError(
            "these terms agree on servers that work on shares, which a Flower app does not reach: "
            "leave [curator] out, or use `tacit coordinator run`"
        )


def write_project(folder: Path, consortium: Path) -> list[Path]:
    """A Flower project for what was agreed; returns its files."""
    terms = Agreement.read(consortium).terms
    check_hosted(terms)
    if (folder / "pyproject.toml").exists():
        raise TacitError(f"{folder} has a project already: give another folder, or remove it")
    name = _name(terms.consortium)
    words = {
        "name": name,
        "version": __version__,
        "consortium": tame(terms.consortium),
        "description": json.dumps(f"The consortium {terms.consortium}, with tacit"),
        "package": PACKAGE,
        "agreed": AGREED,
        "silo": SILO,
        "silos": ", ".join(terms.silos),
        "folder": FOLDER,
        "place": json.dumps(f"~/{name}"),
        "patience": PATIENCE,
    }
    inside = folder / PACKAGE
    make_folder(inside)
    texts = {
        inside / "__init__.py": "",
        inside / "client_app.py": CLIENT,
        inside / "server_app.py": SERVER,
        folder / "README.md": README,
        folder / "pyproject.toml": PROJECT,
    }
    copy(consortium, inside / AGREED)
    for path, text in texts.items():
        replace(path, text.format(**words).encode())
    return [inside / AGREED, *texts]


def _name(consortium: str) -> str:
    """A name as Flower wants it: letters, digits and hyphens."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"tacit-{consortium}".lower())
    return plain[:LONGEST].strip("-")
