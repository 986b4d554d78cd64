"""Imports go one way, as docs/architecture.md says; those inside functions count as well."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).resolve().parent.parent / "src"
LAYERS = (
    ("errors",),
    ("words", "files", "randomness", "shown", "gpu"),
    ("checks", "gauges"),
    ("data", "schemas"),
    ("families", "pixels", "models", "formula", "classical", "privacy"),
    ("survival",),
    ("metrics", "report", "local", "exchange", "secure"),
    ("methods",),
    ("engine", "inference"),
    ("loggers",),
    ("experiment",),
    ("attacks", "deploy"),
    ("sklearn", "demos", "watch"),
    ("cli",),
    ("__main__",),
)
DRAWS = "drawing is slow to import, and not every run is drawn"
FLOWER = "the help page is there without Flower, and does not wait for it"
LAZY = {
    "tacit.attacks.audited": DRAWS,
    "tacit.cli.coordinator": FLOWER,
    "tacit.cli.deploy": FLOWER,
    "tacit.cli.results": "the secure demo needs an extra package, the other one does not",
    "tacit.cli.secure": "a server that was given no agreement only adds, and needs no torch",
    "tacit.cli.silo": FLOWER,
    "tacit.cli.training": "training does not wait for what draws",
    "tacit.cli.train": "the help page does not wait for torch",
    "tacit.experiment.forecast": DRAWS,
    "tacit.experiment.plan": "flags are made from it, and those do not wait for torch",
    "tacit.experiment.finished": DRAWS,
    "tacit.inference.summary": DRAWS,
    "tacit.gpu": "Triton comes with PyTorch for GPUs, and nothing else has it",
    "tacit.privacy": "accounting is arithmetic, and does not wait for torch",
    "tacit.secure.ring.kernels": "numba is slow to import, and an extra package",
}
"""Modules with imports inside functions, and why; there are at most `MOST_LAZY` such imports."""
MOST_LAZY = 16


class Import(NamedTuple):
    source: str
    target: str
    lazy: bool


def modules() -> dict[str, Path]:
    found = {}
    for path in (SRC / "tacit").rglob("*.py"):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(name: str, path: Path) -> Iterator[Import]:
    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("tacit"):
                for alias in child.names:
                    full = f"{child.module}.{alias.name}"
                    yield Import(name, full if full in MODULES else str(child.module), lazy)
            elif isinstance(child, ast.Import):
                named = (alias.name for alias in child.names if alias.name.startswith("tacit."))
                yield from (Import(name, each, lazy) for each in named)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from visit(child, lazy or inside)

    return visit(ast.parse(path.read_text()), False)


IMPORTS = [each for name, path in MODULES.items() for each in imports_of(name, path)]


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_room_has_its_place():
    rooms = {room(name) for name in MODULES} - {""}
    assert rooms == {each for layer in LAYERS for each in layer}


def test_imports_go_one_way():
    place = {each: k for k, layer in enumerate(LAYERS) for each in layer}
    wrong = [
        f"{source} imports {target}"
        for source, target, _ in IMPORTS
        if room(source)
        and room(target)
        and room(source) != room(target)
        and place[room(target)] >= place[room(source)]
    ]
    assert not wrong


def test_no_import_goes_in_a_circle():
    graph = defaultdict(set)
    for source, target, _ in IMPORTS:
        if source != target:
            graph[source].add(target)
    done: set[str] = set()

    def walk(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " → ".join((*way[way.index(module) :], module))
        if module not in done:
            for other in sorted(graph[module]):
                walk(other, (*way, module))
            done.add(module)

    for module in MODULES:
        walk(module, ())


def test_few_imports_wait_inside_functions():
    lazy = sorted(f"{source} → {target}" for source, target, later in IMPORTS if later)
    assert len(lazy) <= MOST_LAZY, "\n".join(lazy)
    assert not {source for source, _, later in IMPORTS if later} - LAZY.keys()


MOST_PARAMETERS = 8
LONG = {
    "keywords that a user types": (
        "tacit.attacks.audit.audit",
        "tacit.data.arrays.from_arrays",
        "tacit.data.masks.from_masks",
        "tacit.data.sets.attributes.celeba_attributes",
        "tacit.data.sets.attributes.facea",
        "tacit.data.sets.attributes.lfwa",
        "tacit.data.sets.faces.lfw_pseudo",
        "tacit.data.sets.nyud2.nyud2",
        "tacit.data.sets.scenes.scenes",
        "tacit.data.sets.school.school",
        "tacit.data.sets.synthetic.personal_shift",
        "tacit.data.tabular.from_table",
        "tacit.experiment.forecast.forecast",
    ),
    "flags of a command": (
        "tacit.cli.account.account",
        "tacit.cli.coordinator.init",
        "tacit.cli.forecast.forecast",
        "tacit.cli.known.data_sets",
        "tacit.cli.mixed.mixed",
    ),
    "scikit-learn reads an estimator's settings off it": (
        "tacit.sklearn.mixed.PrivateMixedModel.__init__",
        "tacit.sklearn.private.PrivateMultiTaskRegressor.__init__",
        "tacit.sklearn.settings.PrivateSettings.__init__",
    ),
    "a compiled loop, whose values are kept in registers": (
        "tacit.secure.ring.compiled._sixteen",
        "tacit.gpu.kernels.add_up",
        "tacit.gpu.kernels.convolve",
        "tacit.gpu.kernels.convolve_few",
        "tacit.gpu.kernels.descend",
        "tacit.gpu.kernels.slopes_of_filters",
        "tacit.gpu.kernels.slopes_of_pixels",
        "tacit.gpu.kernels.split_filters",
        "tacit.gpu.kernels.spread_slopes",
    ),
}
"""Functions with more parameters than others, and why they may have them."""


def functions(node: ast.AST, place: str) -> Iterator[tuple[str, ast.arguments]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        inside = f"{place}.{child.name}" if named else place
        if named and not isinstance(child, ast.ClassDef):
            yield inside, child.args
        yield from functions(child, inside)


def test_few_parameters():
    long = {}
    for module, path in MODULES.items():
        for name, given in functions(ast.parse(path.read_text()), module):
            positional = [one.arg for one in (*given.posonlyargs, *given.args)]
            own = len(positional) - (positional[:1] in (["self"], ["cls"]))
            if own + len(given.kwonlyargs) > MOST_PARAMETERS:
                long[name] = own
    assert not long.keys() - {name for names in LONG.values() for name in names}
    typed = long.keys() & {*LONG["keywords that a user types"]}
    assert all(long[name] <= MOST_PARAMETERS - 3 for name in typed), "the rest are keyword-only"
