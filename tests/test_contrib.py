"""Files for those who run parties: whatever they call exists, and nothing runs as root."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from tacit import __version__
from tacit.cli import COMMANDS, _load

ROOT = Path(__file__).parents[1]
CONTRIB = ROOT / "contrib"
UNITS = sorted((CONTRIB / "systemd").glob("*.service"))
DOCKER = [
    line
    for line in (CONTRIB / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]


def check_command(words: list[str]) -> str:
    """Parse the words of `tacit …` as the command line would; nothing is run."""
    assert words[0] in COMMANDS, words
    command, rest = _load(words[0]), words[1:]
    while isinstance(command, click.Group):
        assert rest[0] in command.commands, words
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context("tacit", rest, resilient_parsing=False).close()
    return words[0]


def compose() -> dict:
    return yaml.safe_load((CONTRIB / "compose.yaml").read_text())["services"]


def test_the_image_is_pinned_and_not_run_by_root():
    (base,) = [line for line in DOCKER if line.startswith("FROM")]
    assert re.fullmatch(r"FROM python:3\.\d+\.\d+-slim-[a-z]+", base)
    users = [line.split()[1] for line in DOCKER if line.startswith("USER")]
    assert users and users[-1] not in ("0", "root")
    known = {"FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}
    assert {line.split()[0] for line in DOCKER} <= known
    (entry,) = [line for line in DOCKER if line.startswith("ENTRYPOINT")]
    assert json.loads(entry.split(" ", 1)[1]) == ["tacit"]


def test_the_image_is_made_of_files_and_extras_that_there_are():
    copied = [line.split()[1:-1] for line in DOCKER if line.startswith("COPY")]
    assert all((ROOT / name).exists() for names in copied for name in names)
    (install,) = [line for line in DOCKER if "pip install" in line]
    assert "-c constraints.txt" in install
    extras = re.findall(r"\.\[(.*?)\]", install)[0].split(",")
    project = (ROOT / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in project for extra in extras)


@pytest.mark.parametrize("name", ["coordinator", "silo", "server"])
def test_a_container_runs_a_command_that_there_is_with_few_rights(name):
    service = compose()[name]
    assert check_command([str(word) for word in service["command"]]) == name
    assert service["user"] not in ("0", "root") and "privileged" not in service
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["image"] == f"tacit:{__version__}"
    assert (CONTRIB / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    parser = configparser.RawConfigParser(strict=False, dict_type=dict, empty_lines_in_values=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(path)
    starts = re.findall(r"^ExecStart=(.*)$", path.read_text(), re.MULTILINE)
    found = {name: {key: [value] for key, value in parser[name].items()} for name in parser}
    found["Service"]["ExecStart"] = starts
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_a_command_that_there_is_and_not_as_root(path):
    service = unit(path)["Service"]
    assert service["User"] == ["tacit"] and service["NoNewPrivileges"] == ["yes"]
    assert service["ProtectSystem"] == ["strict"] and service["ReadWritePaths"][0]
    for line in service["ExecStart"]:
        program, *words = shlex.split(line.replace("$PARTY", "0").replace("$PEERS", "a:1,b:2,c:3"))
        if program.endswith("/tacit"):
            assert path.name == f"tacit-{check_command(words)}@.service"
        else:
            assert program in ("/usr/bin/install", "/usr/bin/mv")


def test_every_party_has_a_unit_and_nothing_of_it_is_in_the_wheel():
    names = {path.name for path in UNITS}
    assert {f"tacit-{name}@.service" for name in ("coordinator", "silo", "server")} <= names
    assert not CONTRIB.is_relative_to(ROOT / "src")
    watched = (CONTRIB / "systemd" / "tacit-metrics@.path").read_text()
    from tacit.deploy.conduct import GAUGES

    assert f"/{GAUGES}\n" in watched
