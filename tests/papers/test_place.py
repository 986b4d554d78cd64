"""Reproductions are beside the package: none of them is installed, and they use public names."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tacit.cli import main

ROOT = Path(__file__).parents[2]


def packaged() -> list[Path]:
    """The modules that the wheel has, by what pyproject.toml says about it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel) == {"packages"}  # another way in would have to be listed here too
    return [path for name in wheel["packages"] for path in sorted((ROOT / name).rglob("*.py"))]


def reproductions() -> list[Path]:
    return sorted((ROOT / "papers").rglob("*.py"))


def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported(path: Path) -> set[str]:
    """Names of modules, wherever in the file they are imported."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_wheel_has_no_reproduction_code():
    found = packaged()
    assert ROOT / "src/tacit/__init__.py" in found and len(found) > 100
    words = {"papers", "reproduce"}
    assert not [p for p in found if words & {*p.relative_to(ROOT).with_suffix("").parts}]
    known = {path.read_text(encoding="utf-8") for path in found}
    assert not [path for path in reproductions() if path.read_text(encoding="utf-8") in known]


def test_the_package_imports_no_reproduction():
    strays = {
        path: names
        for path in packaged()
        if (names := {name for name in imported(path) if name.split(".")[0] == "papers"})
    }
    assert not strays


def test_reproductions_use_public_names_only():
    strays = []
    for path in reproductions():
        for name in imported(path):
            if name.startswith("tacit.") and any(part.startswith("_") for part in name.split(".")):
                strays.append((path.name, name))
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                if not own and not node.attr.startswith("__"):
                    strays.append((path.name, node.attr))
    assert not strays


def test_class_names_of_reproductions_are_their_own():
    of_papers = [n.name for p in reproductions() for n in nodes(p) if isinstance(n, ast.ClassDef)]
    of_package = {n.name for p in packaged() for n in nodes(p) if isinstance(n, ast.ClassDef)}
    assert not [name for name, count in Counter(of_papers).items() if count > 1]
    assert not of_package & set(of_papers)


def test_the_old_command_says_how_it_is_run_now(monkeypatch, capsys):
    given = ["tacit", "reproduce", "pmtl/figure3", "--data", "my data", "--reduced"]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert "python -m papers pmtl/figure3 --data 'my data' --reduced" in said
    assert "checkout" in said
