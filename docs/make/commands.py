"""Pages of all commands and of all settings, from the objects that the command line is made of."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import click

from docs.make.reference import cell, fields_below, first, table
from tacit.cli import COMMANDS, HIDDEN, _load
from tacit.experiment.plan import AUTO, Plan, flags
from tacit.methods import METHODS, Publishing
from tacit.privacy import Privacy
from tacit.secure.settings import Secure


def pages() -> dict[str, str]:
    return {"commands.md": commands_page(), "settings.md": settings_page()}


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name, such as `tacit silo run`."""
    for name in COMMANDS:
        if name not in HIDDEN:
            yield from _below(f"tacit {name}", _load(name))


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for inner, one in command.commands.items():
        yield from _below(f"{name} {inner}", one)


def commands_page() -> str:
    parts = ["# Commands", "Every command has `--help`. `tacit --version` says which tacit it is."]
    parts += table("command", [f"| [`{n}`](#{slug(n)}) | {line(c)} |" for n, c in all_commands()])
    for name, command in all_commands():
        parts.append(f"## {name} {{ #{slug(name)} }}")
        parts.append(inspect.cleandoc(command.help or ""))
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        usage = [
            f"[{a.human_readable_name}]" if not a.required else str(a.human_readable_name)
            for a in arguments
        ]
        parts.append(f"```text\n{' '.join([name, *usage, '[OPTIONS]'])}\n```")
        parts += table("", list(_options(command)))
    return "\n\n".join(parts) + "\n"


def slug(name: str) -> str:
    return name.replace(" ", "-")


def line(command: click.Command) -> str:
    return cell((command.help or "").partition("\n\n")[0])


def _options(command: click.Command) -> Iterator[str]:
    for one in command.params:
        about = getattr(one, "help", None) or ""
        if isinstance(one, click.Argument):
            yield f"| `{one.human_readable_name}` | {cell(about)} |"
        elif one.name != "help":
            names = " ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
            default = one.default
            plain = isinstance(default, int | float | str) and not isinstance(default, bool)
            usual = f" Default: `{default}`." if plain and str(default) not in about else ""
            yield f"| {names} | {cell(about)}{usual} |"


def settings_page() -> str:
    """Settings of a run by their place in a file; then those of every method."""
    parts = ["# Settings"]
    parts.append(
        "A setting has one name everywhere: a keyword of `tacit.train`, a flag of `tacit train` "
        "(with dashes), a key in an experiment's file. What cannot work together is refused before "
        "any work begins."
    )
    sections: dict[str, list[str]] = {}
    for flag in flags():
        key = "any other" if flag.kind is dict else f"`{flag.key}`"
        row = f"| {key} | `--{flag.name.replace('_', '-')}` | {cell(flag.help)} |"
        if flag.kind is not dict or flag.name != "publishing":
            sections.setdefault(flag.section, []).append(row)
    for section, rows in sections.items():
        head = ["| in the file | flag | |", "|---|---|---|"]
        parts += [f"## [{section}] {{ #{section} }}", "\n".join([*head, *rows])]
    parts += ["## [publishing] { #publishing }", first(Publishing)]
    parts += table("setting", list(settings_of(Publishing)))
    parts += [
        "## In Python { #python }",
        "`tacit.train` takes these; "
        "[`tacit.Privacy`](tacit.md#privacy) and [`tacit.Secure`](tacit.md#secure) hold what "
        "belongs to them.",
    ]
    known = inspect.getdoc(Plan) or ""
    names = [one.name for one in dataclasses.fields(Plan)]
    assert all(name in known for name in names)
    parts += table(
        "setting",
        [
            f"| `{one.name}` | {cell(one.metadata['help'])} Default: `{one.default}`. |"
            for one in dataclasses.fields(Plan)
        ],
    )
    for kind in (Privacy, Secure):
        parts += [f"### {kind.__name__}", *table("setting", list(settings_of(kind)))]
    parts += [
        "## Methods { #methods }",
        f"`{AUTO}` chooses one by public facts; "
        "[methods](../methods.md) says how, and what each is for.",
    ]
    for name, method in METHODS.items():
        parts += [f"### {name} {{ #method-{name} }}", first(method)]
        parts += table("setting", list(settings_of(method)))
    return "\n\n".join(parts) + "\n"


def settings_of(kind: Any) -> Iterator[str]:
    """Fields of a dataclass with defaults, and the words under them if there are any."""
    below = fields_below(kind)
    for one in dataclasses.fields(kind):
        if one.name.startswith("_") or not one.init:
            continue
        default = "" if one.default is dataclasses.MISSING else f"Default: `{one.default!r}`."
        yield f"| `{one.name}` | {cell(below.get(one.name, ''))} {default} |"
