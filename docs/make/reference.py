"""A page for each public module: every name with its arguments, its words and an example.

Docstrings of tacit are sentences, and what a method or a plan takes is a field of a dataclass. So
the pages are read off the objects themselves; no tool between knows another style.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

from docs.make import arguments
from docs.make.examples import MODULES, Example, examples, short

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
ITEM = re.compile(r"^(\S[^:\n]*?) : ", re.MULTILINE)


def pages() -> dict[str, str]:
    """Texts by the names of their files, in `reference/`."""
    made = {f"{short(module)}.md": module_page(module) for module in MODULES}
    return {"index.md": index_page()} | made


def public_names(module: str) -> list[str]:
    """What a module offers: its `__all__`, and nothing that it only hands on as a module."""
    found = importlib.import_module(module)
    return [one for one in found.__all__ if not inspect.ismodule(getattr(found, one))]


def index_page() -> str:
    lines = ["# Reference", "", "Every name that is public, and a line about it.", ""]
    lines += [
        "[Commands](commands.md), [settings](settings.md) and [files](files.md) have pages",
        "",
    ]
    lines[-2] += " of their own. What is not listed here is internal, and may change at any time"
    lines[-2] += " ([policy](../policy.md)). What cannot be used is refused with"
    lines[-2] += (
        " [`tacit.TacitError`](tacit.md#taciterror): one sentence with cause and remedy, before"
    )
    lines[-2] += " any work is done."
    for module in MODULES:
        lines += [f"## {module}", "", first(importlib.import_module(module)), ""]
        lines += ["| name | what it is |", "|---|---|"]
        owner = importlib.import_module(module)
        for name in public_names(module):
            about = first(getattr(owner, name)).replace("|", "\\|")
            lines.append(f"| [`{name}`]({short(module)}.md#{anchor(name)}) | {about} |")
        lines.append("")
    return "\n".join(lines)


def anchor(name: str) -> str:
    return name.lower()


def module_page(module: str) -> str:
    owner = importlib.import_module(module)
    shown = examples(module)
    parts = [f"# {module}", words(inspect.getdoc(owner) or "")]
    before = [one.code for one in shown if not one.names]
    if before:
        parts += ["Examples on this page begin with:", fence("\n".join(before))]
    for name in public_names(module):
        own = [one for one in shown if name in one.names]
        parts.append(entry(module, name, getattr(owner, name), own))
    return "\n\n".join(parts) + "\n"


def entry(module: str, name: str, thing: Any, shown: list[Example]) -> str:
    parts = [f"## {name} {{ #{anchor(name)} }}"]
    if inspect.isclass(thing) or inspect.isfunction(thing):
        parts.append(fence(signature(f"{module}.{name}", thing)))
    parts.append(words(doc(thing) or about_value(module, name)))
    parts += table("argument", list(arguments.rows(thing, doc(thing))))
    if dataclasses.is_dataclass(thing):
        parts += table("field", list(field_rows(thing)))
    if inspect.isclass(thing):
        parts += table("member", list(member_rows(thing)))
    for one in shown:
        parts += ["**Example**", fence(one.code)]
    return "\n\n".join(parts)


def table(head: str, rows: list[str]) -> list[str]:
    return ["\n".join([f"| {head} | |", "|---|---|", *rows])] if rows else []


def doc(thing: Any) -> str:
    """An object's own words, without those that a dataclass or a builtin brings along."""
    if not (inspect.isclass(thing) or callable(thing)):
        return ""
    own = inspect.getdoc(thing) or ""
    return "" if own.startswith((f"{getattr(thing, '__name__', '')}(", "dict()")) else own


def first(thing: Any) -> str:
    """The first sentence of an object, on one line."""
    text = inspect.getdoc(thing) if inspect.ismodule(thing) else doc(thing)
    return " ".join((text or "").partition("\n\n")[0].split())


def about_value(module: str, name: str) -> str:
    """The words under a value, as `NAME = …` has them in its module, or what it holds."""
    owner = importlib.import_module(module)
    said = texts_below(ast.parse(inspect.getsource(owner)).body)
    if name in said:
        return said[name]
    value = getattr(owner, name)
    if isinstance(value, dict):
        return f"By name: {', '.join(f'`{one}`' for one in value)}."
    return f"`{value!r}`"


def signature(name: str, thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (ValueError, TypeError):
        return name
    plain = [
        one.replace(annotation=inspect.Parameter.empty, default=_Default.of(one.default))
        for one in found.parameters.values()
    ]
    back = found.return_annotation
    is_told = inspect.isfunction(thing) and back is not inspect.Signature.empty
    ending = (
        f" -> {back if isinstance(back, str) else getattr(back, '__name__', back)}"
        if is_told
        else ""
    )
    bare = found.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    text = f"{name}{bare}{ending}"
    if len(text) <= 88:
        return text
    inner, star = [], False
    for one in plain:
        if one.kind is one.KEYWORD_ONLY and not star:
            inner.append("*")
            star = True
        star = star or one.kind is one.VAR_POSITIONAL
        inner.append(str(one))
    return f"{name}(\n" + "".join(f"    {one},\n" for one in inner) + f"){ending}"


class _Default:
    """A default as people would type it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, value: Any) -> Any:
        if value is inspect.Parameter.empty:
            return value
        if callable(value) and hasattr(value, "__name__"):
            return cls(value.__name__)
        text = repr(value)
        return cls(text if "<" not in text and len(text) < 60 else "…")


def field_rows(thing: Any) -> Iterator[str]:
    """Fields that have words of their own: the text under them, or the help of a setting."""
    below = fields_below(thing)
    for one in dataclasses.fields(thing):
        about = below.get(one.name) or one.metadata.get("help") or ""
        if not one.name.startswith("_") and about:
            yield f"| `{one.name}` | {cell(about)} |"


@cache
def fields_below(thing: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for owner in reversed(thing.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(owner))
        except (OSError, TypeError):
            continue
        body = ast.parse(source).body[0]
        found |= texts_below(body.body) if isinstance(body, ast.ClassDef) else {}
    return found


def texts_below(body: list[ast.stmt]) -> dict[str, str]:
    """Words that stand under an assignment, by the name that it assigns."""
    found: dict[str, str] = {}
    for node, after in itertools.pairwise(body):
        target = getattr(node, "target", None) or (getattr(node, "targets", None) or [None])[0]
        match (target, after):
            case (ast.Name(id=name), ast.Expr(value=ast.Constant(value=str(text)))):
                found[name] = inspect.cleandoc(text)
    return found


def member_rows(thing: type) -> Iterator[str]:
    """Own methods and properties that have words."""
    for name in dir(thing):
        member = inspect.getattr_static(thing, name)
        inner = getattr(member, "__func__", getattr(member, "fget", member))
        ours = getattr(inner, "__module__", "") or ""
        if name.startswith("_") or not ours.startswith("tacit") or not callable(inner):
            continue
        own = inspect.getdoc(inner)
        if not own or inspect.isclass(member):
            continue
        shown = name if isinstance(member, property) else f"{name}{brief(inner)}"
        yield f"| `{shown}` | {cell(own.partition(chr(10) * 2)[0])} |"


def brief(function: Any) -> str:
    try:
        names = list(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        return "()"
    return f"({', '.join(one for one in names if one not in ('self', 'cls'))})"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def words(text: str) -> str:
    """A docstring as Markdown; what is under `Parameters` becomes a list."""
    head, *sections = SECTION.split(text)
    parts = [head.rstrip()]
    for title, body in zip(sections[::2], sections[1::2]):
        rows = ITEM.split(textwrap.dedent(body).strip())
        parts.append(f"**{title}**")
        if len(rows) < 3:
            parts.append(body.strip())
            continue
        for names, about in zip(rows[1::2], rows[2::2]):
            what, blank, rest = about.partition("\n\n")
            parts.append(f"* `{names}`: {' '.join(what.split())}")
            if blank and not rest.startswith(" "):
                parts.append(textwrap.dedent(rest).strip())
    return "\n\n".join(parts)


def fence(code: str) -> str:
    return f"```python\n{code}\n```"
