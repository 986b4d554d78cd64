"""Teeth: would the tests notice if the code that keeps the promise were slightly wrong?

Seeded mutants of `privacy/`, of the summing and sharing of `secure/`, of the split and the batches:
an operator, a comparison or a constant is changed, or a line is dropped. Each runs against tests of
its module (`TARGETS`). A mutant that none of them notices is a survivor; it gets a test, or a word
here why it changes nothing (`EXPLAINED`).

    python benchmarks/mutants.py --count 200 --jobs 2
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("src/tacit")
CHANNEL = (
    "privacy/test_channel.py",
    "privacy/test_adaptive_clip.py",
    "privacy/test_moments.py",
    "interference/test_findings.py",
    "secure/test_curator.py",
    "methods/test_related.py",
)
BOOKS = (
    "privacy/test_sampling.py",
    "privacy/test_accounting.py",
    "privacy/test_ledger.py",
    "privacy/test_recomputed.py",
    "privacy/test_selection.py",
    "privacy/test_participation_attack.py",
    "runtime/test_train.py",
)
ROWS = (
    "local/test_batches.py",
    "data/test_arrays.py",
    "interference/test_findings.py",
    "interference/test_interference.py",
)
SHARES = (
    "secure/test_summing.py",
    "secure/test_sum_attack.py",
    "secure/test_curator.py",
    "secure/test_transcripts.py",
)
TARGETS: dict[str, tuple[str, ...]] = {
    "privacy/accounting.py": BOOKS,
    "privacy/bounds.py": CHANNEL,
    "privacy/calibration.py": BOOKS,
    "privacy/channel.py": (*CHANNEL, "runtime/test_train.py"),
    "privacy/covariance.py": ("privacy/test_covariance.py", "privacy/test_audit.py"),
    "privacy/gram.py": ("privacy/test_covariance.py", "runtime/test_between.py"),
    "grid.py": ("secure/test_summing.py", *CHANNEL),
    "privacy/guarantee.py": ("privacy/test_ledger.py", "runtime/test_train.py", *BOOKS),
    "privacy/ledger.py": ("privacy/test_ledger.py", "runtime/test_crash.py"),
    "privacy/moments.py": ("privacy/test_moments.py", "methods/test_prior.py"),
    "privacy/sampling.py": BOOKS,
    "privacy/schedule.py": ("privacy/test_schedule.py", "methods/test_mpmtl.py"),
    "privacy/selection.py": ("privacy/test_selection.py", "runtime/test_tune.py"),
    "secure/curator.py": SHARES,
    "secure/sharing.py": SHARES,
    "secure/summing.py": SHARES,
    "data/split.py": ROWS,
    "local/batches.py": (*ROWS, "methods/test_methods.py"),
    "local/chunks.py": ROWS,
}
"""Each module and the tests that should notice; the quickest first."""
EXPLAINED: dict[str, str] = {}
"""Survivors that change nothing that matters: `file: before -> after` and why."""
PATIENCE = 600.0
"""Seconds after which a mutant that hangs counts as noticed."""

BINARY = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Pow: "*",
    ast.Mod: "//", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of a few letters, and where."""

    file: str
    line: int
    begin: int
    end: int
    after: str
    before: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before!r} -> {self.after!r}"


def mutants(file: str, text: str) -> Iterator[Mutant]:
    """All that can be changed in a module, but for words and annotations."""
    starts = [0]
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    raw = text.encode()

    def place(node: ast.AST) -> tuple[int, int]:
        return (
            starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def mutant(node: ast.AST, begin: int, end: int, after: str) -> Mutant:
        before = raw[begin:end].decode()
        return Mutant(file, node.lineno, begin, end, after, before)  # type: ignore[attr-defined]

    def between(left: ast.AST, right: ast.AST, node: ast.AST, symbol: str) -> Mutant:
        begin, end = place(left)[1], place(right)[0]
        gap = raw[begin:end].decode()
        marks = "".join(c for c in gap if c in "()\n")  # brackets around an operand stay
        if marks.strip():
            return mutant(node, begin, begin, "")
        return mutant(node, begin, end, f" {symbol} ")

    for node in _code(ast.parse(text)):
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            yield between(node.left, node.right, node, BINARY[type(node.op)])
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield between(node.left, node.comparators[0], node, COMPARED[type(node.ops[0])])
        elif isinstance(node, ast.BoolOp):
            other = "or" if isinstance(node.op, ast.And) else "and"
            yield between(node.values[0], node.values[1], node, other)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield mutant(node, place(node)[0], place(node.operand)[0], "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield mutant(node, *place(node), str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield mutant(node, *place(node), f"({node.value!r} + 1)")
            if node.value not in (0, 1):
                yield mutant(node, *place(node), f"({node.value!r} / 2)")
        elif isinstance(node, ast.Expr | ast.AugAssign) and not _is_word(node):
            yield mutant(node, *place(node), "pass")


def _is_word(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


WORDS = ("__str__", "__repr__", "main", "curated", "trusts", "protects", "marks", "_chosen_by")
"""Functions that only find words; other tests read those."""


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs and counts: no words, no annotations, no messages, no decorators."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
            continue
        if isinstance(node, ast.IfExp) and any(map(_speaks, (node.body, node.orelse))):
            continue
        if isinstance(node, ast.FunctionDef) and node.name in WORDS:
            continue
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                yield from _code(ast.Module([inner], []))
            continue
        if isinstance(node, ast.FunctionDef | ast.AnnAssign | ast.arg):
            for inner in _parts(node):
                yield inner
                yield from _code(inner)
            continue
        yield node
        yield from _code(node)


def _speaks(node: ast.AST) -> bool:
    words = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return words or isinstance(node, ast.JoinedStr)


def _parts(node: ast.AST) -> list[ast.AST]:
    """Without the annotations."""
    if isinstance(node, ast.FunctionDef):
        return [*node.body, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
    return [node.value] if isinstance(node, ast.AnnAssign) and node.value else []


def tried(mutant: Mutant, copy: Path, tests: list[str]) -> tuple[bool, float]:
    """Whether some of these tests noticed it."""
    path = copy / SOURCE / mutant.file
    text = path.read_bytes()
    changed = text[: mutant.begin] + mutant.after.encode() + text[mutant.end :]
    began = time.monotonic()
    try:
        path.write_bytes(changed)
        return _fails(copy, tests), time.monotonic() - began
    finally:
        path.write_bytes(text)


def _quickest_first(jobs: int) -> dict[str, list[str]]:
    """The tests of every module's files, the quickest first; all of them pass as things are."""
    files = dict.fromkeys(name for tests in TARGETS.values() for name in tests)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        if _fails(
            ROOT, [f"tests/{name}" for name in files], "-n", str(jobs), f"--junitxml={report}"
        ):
            sys.exit(
                "the tests fail without any mutant, so they would notice everything: mend them"
            )
        cases = ElementTree.parse(report).iter("testcase")
    seconds: dict[str, dict[str, float]] = {}
    for case in cases:
        module = case.attrib["classname"].replace(".", "/") + ".py"
        name = f"{module}::{case.attrib['name']}"
        seconds.setdefault(module.removeprefix("tests/"), {})[name] = float(case.attrib["time"])
    ordered = {}
    for file, tests in TARGETS.items():
        known = {name: took for test in tests for name, took in seconds.get(test, {}).items()}
        ordered[file] = sorted(known, key=lambda name: known[name])
    return ordered


def _fails(copy: Path, tests: list[str], *more: str) -> bool:
    path = os.pathsep.join([str(copy / "src"), os.environ.get("PYTHONPATH", "")])
    settings = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not slow", *more, *tests]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=settings, capture_output=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def chosen(count: int, seed: int) -> list[Mutant]:
    """As many of each module as its share of all mutants, at least one."""
    every = []
    for file in TARGETS:
        text = (ROOT / SOURCE / file).read_text(encoding="utf-8")
        every += [m for m in mutants(file, text) if m.before != m.after and _parses(text, m)]
    return random.Random(seed).sample(every, min(count, len(every)))


def _parses(text: str, mutant: Mutant) -> bool:
    raw = text.encode()
    try:
        ast.parse(raw[: mutant.begin] + mutant.after.encode() + raw[mutant.end :])
    except SyntaxError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Seeded mutants of what keeps the promise.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    selected = chosen(given.count, given.seed)
    tests = _quickest_first(given.jobs)
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / str(number) for number in range(given.jobs)]
        for copy in copies:
            shutil.copytree(ROOT / "src", copy / "src")
        free = list(copies)

        def one(mutant: Mutant) -> tuple[Mutant, bool]:
            copy = free.pop()
            noticed, seconds = tried(mutant, copy, tests[mutant.file])
            free.append(copy)
            print(f"{'noticed ' if noticed else 'SURVIVED'} {seconds:5.0f} s  {mutant}", flush=True)
            return mutant, noticed

        with ThreadPoolExecutor(given.jobs) as pool:
            results = list(pool.map(one, selected))
    survivors = [mutant for mutant, noticed in results if not noticed]
    for mutant in survivors:
        key = f"{mutant.file}: {mutant.before} -> {mutant.after}"
        print(f"survivor: {mutant} ({EXPLAINED.get(key, 'needs a test')})")
    share = 100 * (1 - len(survivors) / len(results))
    print(f"{len(results) - len(survivors)} of {len(results)} noticed: {share:.1f} %")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(mutant) for mutant in survivors], indent=1))


if __name__ == "__main__":
    main()
