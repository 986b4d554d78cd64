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
import hashlib
import json
import os
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
    "privacy/test_moments.py",
    "privacy/test_accounting.py",
    "privacy/test_ledger.py",
    "privacy/test_recomputed.py",
    "privacy/test_selection.py",
    "privacy/test_participation_attack.py",
    "experiment/test_train.py",
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
ON_SHARES = ("secure/test_engine.py", "secure/test_fedmtl.py", "secure/test_transcripts.py")
TARGETS: dict[str, tuple[str, ...]] = {
    "privacy/accounting.py": BOOKS,
    "privacy/asked.py": ("privacy/test_guarantee.py", "experiment/test_train.py", *BOOKS),
    "privacy/bounds.py": CHANNEL,
    "privacy/calibration.py": BOOKS,
    "privacy/channel.py": (*CHANNEL, "experiment/test_train.py"),
    "privacy/covariance.py": ("privacy/test_covariance.py", "papers/test_attack.py"),
    "privacy/gram.py": ("privacy/test_covariance.py", "experiment/test_between.py"),
    "privacy/grid.py": ("secure/test_summing.py", *CHANNEL),
    "privacy/guarantee.py": (
        "privacy/test_guarantee.py",
        "privacy/test_ledger.py",
        "experiment/test_train.py",
        *BOOKS,
    ),
    "privacy/ledger.py": ("privacy/test_ledger.py", "engine/test_crash.py"),
    "privacy/moments.py": ("privacy/test_moments.py", "methods/test_prior.py"),
    "privacy/sampling.py": BOOKS,
    "privacy/schedule.py": ("privacy/test_schedule.py", "methods/test_mpmtl.py"),
    "privacy/selection.py": ("privacy/test_selection.py", "experiment/test_tune.py"),
    "secure/jobs/curator.py": SHARES,
    "secure/jobs/summing.py": SHARES,
    "secure/protocol/additive.py": ON_SHARES,
    "secure/protocol/replicated.py": ON_SHARES,
    "secure/protocol/uploads.py": ON_SHARES,
    "secure/ring/sharing.py": SHARES,
    "secure/ring/stream.py": ("secure/test_fixed.py", *ON_SHARES, *SHARES),
    "data/split.py": ROWS,
    "local/batches.py": (*ROWS, "methods/test_methods.py"),
    "local/chunks.py": ROWS,
}
"""Each module and the tests that should notice; the quickest first."""
EXPLAINED: dict[str, str] = {
    # Ties, which have probability zero
    "privacy/selection.py: if mean <= 1 + 1e-9::  <=  ->  < ": "a mean that is this very number",
    "privacy/grid.py: quiet = TAILS * noise * 2**fraction < LOUDEST"
    ":  <  ->  <= ": "noise that is at the limit to the last digit; the limit itself is far off",
    "privacy/grid.py: if quiet and widest * 2**fraction < 2 ** (bits - 1):"
    ":  <  ->  <= ": "a sum that is at the limit to the last digit, far out in the tails",
    "privacy/gram.py: quiet = (f for f in range(FINEST, 0, -1) if TAILS * noise * 4**f < LOUDEST)"
    ":  <  ->  <= ": "noise that is at the limit to the last digit; the limit itself is far off",
    # What is multiplied with zero, or has one length by construction, or is only said
    "privacy/bounds.py: return self.given if every else "
    "torch.where(finite.unsqueeze(1), self.given, 0.0)"
    ": 0.0 -> (0.0 + 1)": "the scale of such a contribution is zero",
    "data/split.py: kept = [name for name, kept in zip(names, keep.tolist(), strict=True) if kept]"
    ": True -> False": "there is one decision for each name",
    "privacy/accounting.py: logger.setLevel(logging.ERROR)  # RDP reports every fractional order "
    "that it leaves out: logger.setLevel(logging.ERROR) -> pass": "only the log",
    "privacy/accounting.py: return Spent(math.inf, common[-1])"
    ": 1 -> (1 + 1)": "ε is infinite, whichever accountant says so",
    "privacy/calibration.py: while low == high or (low > 1e-2 and cost(low) <= epsilon):"
    ":  <=  ->  < ": "a budget that is met to the last digit; the search then ends just above it",
    # Where a search begins and how it steps; what it ends with is tested
    "privacy/calibration.py: low, high = high, 1.5 * high"
    ": 1.5 -> (1.5 + 1)": "the bracket grows faster, and the search ends at the same place",
    "privacy/calibration.py: low, high = low / 1.5, low"
    ": 1.5 -> (1.5 + 1)": "the bracket grows faster, and the search ends at the same place",
    "privacy/calibration.py: while low == high or (low > 1e-2 and cost(low) <= epsilon):"
    ": 1e-2 -> (0.01 / 2)": "noise of a hundredth of a clip or less promises nothing of use",
    "privacy/calibration.py: if high > 1e9::  >  ->  >= ": "where to give up, far beyond any use",
    "privacy/calibration.py: if high > 1e9:"
    ": 1e9 -> (1000000000.0 + 1)": "where to give up, far beyond any use",
    "privacy/calibration.py: if high > 1e9:"
    ": 1e9 -> (1000000000.0 / 2)": "where to give up, far beyond any use",
    # How much is computed at a time
    "local/chunks.py: expected: float, of: int, limit: int, *, ragged: bool = False, "
    "overhead: int = 16"
    ": 16 -> (16 + 1)": "what a chunk is taken to cost: others are chosen, still whole vectors",
    "local/chunks.py: expected: float, of: int, limit: int, *, ragged: bool = False, "
    "overhead: int = 16"
    ": 16 -> (16 / 2)": "what a chunk is taken to cost: others are chosen, still whole vectors",
    "local/chunks.py: most = SLOTS * math.ceil("
    "min(expected + 3 * spread, max(limit, SLOTS)) / SLOTS)"
    ": 3 -> (3 + 1)": "larger chunks are looked at, which cost more, and are not taken",
    "local/chunks.py: most = SLOTS * math.ceil("
    "min(expected + 3 * spread, max(limit, SLOTS)) / SLOTS)"
    ": 3 -> (3 / 2)": "the largest chunks are not looked at; others are still whole vectors",
    "local/chunks.py: sizes = range(SLOTS, most + 1, SLOTS)"
    ": 1 -> (1 + 1)": "the last size is a multiple of SLOTS, so one more in the range adds none",
    "local/batches.py: small = counts <= batch"
    ":  <=  ->  < ": "a task with exactly a batch of rows goes through all of them in every step",
    "local/batches.py: order = order[torch.argsort(rank[order], stable=True)]"
    ": True -> False": "a CPU sorts such numbers stably anyway; where a GPU does not, it must",
    # The accountant's grid: any grid is an upper bound, and these are beside ε = 50 and more
    "privacy/accounting.py: variance += count * (math.log1p(rate**2 * math.expm1(one)) "
    "if one < 50 else one)"
    ":  <  ->  <= ": "a release of exactly this width, for which both forms make a valid grid",
    # Display: ε on the way is exact at some counts and interpolated between
    "privacy/accounting.py: exact = sorted({1, *(max(1, round(most * share)) "
    "for share in (0.01, 0.1, 0.3, 0.6, 1))})"
    ": 0.01 -> (0.01 / 2)": "exact at another count; interpolation is as close",
    "privacy/accounting.py: exact = sorted({1, *(max(1, round(most * share)) "
    "for share in (0.01, 0.1, 0.3, 0.6, 1))})"
    ": 0.1 -> (0.1 / 2)": "exact at another count; interpolation is as close",
    "privacy/accounting.py: exact = sorted({1, *(max(1, round(most * share)) "
    "for share in (0.01, 0.1, 0.3, 0.6, 1))})"
    ": 0.3 -> (0.3 / 2)": "exact at another count; interpolation is as close",
    "privacy/accounting.py: exact = sorted({1, *(max(1, round(most * share)) "
    "for share in (0.01, 0.1, 0.3, 0.6, 1))})"
    ": 0.6 -> (0.6 / 2)": "exact at another count; interpolation is as close",
    # Names and choices of which any other would do
    "privacy/sampling.py: def at(self, round: int, key: int = 0) -> Sampler:"
    ": 0 -> (0 + 1)": "samplers that take no turns do not read the key",
    "privacy/sampling.py: def at(self, round: int, key: int = 0) -> InTurn:"
    ": 0 -> (0 + 1)": "a name for the order of a run that is costed by itself",
    "privacy/sampling.py: key: int = 0"
    ": 0 -> (0 + 1)": "a name for the order of a run that is costed by itself",
    'privacy/selection.py: u, v = randomness.uniform("tuning", 0, 0, 2).tolist()'
    ": 0 -> (0 + 1)": "another stream of the same purpose, which nobody else draws from",
    "privacy/bounds.py: BITS_SHARE = 0.05"
    ": 0.05 -> (0.05 / 2)": "any share is paid for by the rest; update and bits cost one release",
    "privacy/covariance.py: d = matrix.shape[-1]: 1 -> (1 + 1)": "matrices are square",
    "secure/protocol/replicated.py: self.rounds += 1: self.rounds += 1 -> pass": "only reported",
}
"""Survivors that change nothing that matters: `file: line: before -> after`, and why.

The line is there so that an explanation covers no other place in the file.
"""
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
    code: str
    """The line as it is."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before!r} -> {self.after!r}"

    @property
    def name(self) -> str:
        """The same wherever in its file the line is."""
        return f"{self.file}: {self.code}: {self.before} -> {self.after}"


def mutants(file: str, text: str) -> Iterator[Mutant]:
    """All that can be changed in a module, but for words and annotations."""
    starts, lines, raw = [0], text.split("\n"), text.encode()
    for line in raw.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)

    def place(node: ast.AST) -> tuple[int, int]:
        return (
            starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def mutant(node: ast.AST, begin: int, end: int, after: str) -> Mutant:
        before, line = raw[begin:end].decode(), node.lineno  # type: ignore[attr-defined]
        return Mutant(file, line, begin, end, after, before, lines[line - 1].strip())

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
STEERING = ("_needed", "_guess", "_aim")
"""Functions that only say where to look next, or which of several right ways is the quickest. What
they answer decides how long something takes and not what is found, which is checked elsewhere."""


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs and counts: no words, no annotations, no messages, no decorators."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
            continue
        if isinstance(node, ast.IfExp) and any(map(_speaks, (node.body, node.orelse))):
            continue
        if isinstance(node, ast.FunctionDef) and node.name in (*WORDS, *STEERING):
            continue
        yield node
        yield from _code(_run(node))


def _speaks(node: ast.AST) -> bool:
    words = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return words or isinstance(node, ast.JoinedStr)


def _run(node: ast.AST) -> ast.AST:
    """The parts of it that run: without annotations, decorators and bases."""
    if isinstance(node, ast.ClassDef):
        return ast.Module(node.body, [])
    if isinstance(node, ast.FunctionDef):
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        return ast.Module([*node.body, *map(ast.Expression, defaults)], [])  # type: ignore[list-item]
    if isinstance(node, ast.AnnAssign):
        return ast.Module([ast.Expression(node.value)] if node.value else [], [])  # type: ignore[list-item]
    return node


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
    """Drawn by what they are, not by how many there are: when code changes, others stay chosen."""
    drawn: dict[str, Mutant] = {}
    for file in TARGETS:
        text = (ROOT / SOURCE / file).read_text(encoding="utf-8")
        for mutant in mutants(file, text):
            if mutant.before != mutant.after and _parses(text, mutant):
                name = f"{seed} {mutant.name}"
                while name in drawn:  # the same change once more in the same line
                    name += " again"
                drawn[name] = mutant
    first = sorted(drawn, key=lambda name: hashlib.sha256(name.encode()).digest())[:count]
    return [drawn[name] for name in first]


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
        print(f"survivor: {mutant} ({EXPLAINED.get(mutant.name, 'needs a test')})")
    explained = sum(mutant.name in EXPLAINED for mutant in survivors)
    counts = {
        f"of {len(results)} noticed": len(results) - len(survivors),
        "explained": explained,
        "not": len(survivors) - explained,
    }
    shares = (f"{n} {what} ({100 * n / len(results):.1f} %)" for what, n in counts.items())
    print(", ".join(shares))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(mutant) for mutant in survivors], indent=1))


if __name__ == "__main__":
    main()
