"""Names: one thing is called by one name, and a name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_no_class_name_exists_twice():
    places = defaultdict(list)
    for file in sorted(file for root in ("src", "papers") for file in (ROOT / root).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 200
    assert {n: at for n, at in places.items() if len(at) > 1} == {}
