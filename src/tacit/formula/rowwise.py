"""What a formula may compute: each row from itself.

Formulas hold Python, which could read all rows of all tasks (or anything else on the machine). So
only what is known to work row by row goes through: columns, constants, arithmetic, comparisons,
numpy's elementwise functions, and `C(x)`, whose levels are recorded as an assumption.
"""

from __future__ import annotations

import ast

import numpy as np

from tacit.errors import TacitError

FUNCTIONS: dict[str, np.ufunc] = {
    "abs": np.absolute,
    "exp": np.exp,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "sqrt": np.sqrt,
}
"""By their short names; numpy's others are called by theirs, like np.sin."""
POOLED = (
    "bs", "cc", "center", "cr", "cs", "hashed", "lag", "ns", "poly", "s", "scale", "standardize",
)  # fmt: skip
"""What formulaic or R offer and is not row by row, for a better sentence."""
INSTEAD = {
    "factor": "write C(x) for categories",
    "as.factor": "write C(x) for categories",
    "ordered": "write C(x) for categories",
    "offset": "these models have no offsets: add the column as an effect, like log(days)",
    "cbind": "one target stands before ~: give each trial a row of its own, with yes or no",
    "ifelse": "write I(x > 3), which is 1 where it holds and 0 elsewhere",
}
"""What else people know from R, and what to write here."""
PARTS = (
    ast.Expression, ast.expr_context, ast.Constant, ast.BinOp, ast.UnaryOp, ast.unaryop,
    ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Add, ast.Sub, ast.Mult,
    ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr,
)  # fmt: skip
"""Syntax that works on each row alone; not `@`, which sums over rows, nor `in`."""


def columns_of(expression: str) -> tuple[set[str], str | None]:
    """The columns that a piece of Python reads, and the one that it makes categories of, if any."""
    from formulaic.utils.code import sanitize_variable_names

    called = expression.partition("(")[0].strip()
    if called in INSTEAD:
        raise TacitError(f"{called}() in the formula is not known here; {INSTEAD[called]}")
    aliases: dict[str, str] = {}
    try:  # columns whose names are no Python names stand between backticks
        tree = ast.parse(sanitize_variable_names(expression, {}, aliases), mode="eval").body
    except SyntaxError:
        raise TacitError(
            f"{expression!r} in the formula is not an expression; correct it"
        ) from None
    names: set[str] = set()
    read = lambda node: names.update(_read(node, expression))  # noqa: E731
    category = None
    if _name(tree) == "C" and isinstance(tree, ast.Call) and tree.args:
        read(tree.args[0])
        _check_contrast(tree, expression)
        category = tree.args[0].id if isinstance(tree.args[0], ast.Name) else None
    else:
        read(tree)
    if not names:
        raise TacitError(f"{expression!r} in the formula reads no column; leave it out")
    own = {aliases.get(name, name) for name in names}
    return own, None if category is None else aliases.get(category, category)


def _read(node: ast.AST, whole: str) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Call):
        _check_call(node, whole)
        return set().union(*(_read(part, whole) for part in node.args))
    if isinstance(node, ast.BitXor):
        raise TacitError(f"{whole!r} in the formula: powers are written with **, like I(x**2)")
    if not isinstance(node, PARTS):
        raise TacitError(
            f"{whole!r} in the formula is not computed row by row, as far as we can "
            "tell; compute the column beforehand, or write its name in backticks if it is one"
        )
    return set().union(*(_read(part, whole) for part in ast.iter_child_nodes(node)))


def _check_call(node: ast.Call, whole: str) -> None:
    name = _name(node)
    known = FUNCTIONS.get(name)
    if name.startswith("np.") and name.count(".") == 1:
        known = getattr(np, name.removeprefix("np."), None)
    elementwise = isinstance(known, np.ufunc) and known.signature is None
    # A further argument would be written to.
    takes = known.nin if isinstance(known, np.ufunc) else 1
    if name in POOLED:
        raise TacitError(
            f"{name}() in the formula looks at the rows of all tasks, which no noise covers; write "
            "public constants instead, like I((x - 40) / 10) or I(x**2), or plain x: columns are "
            "brought to common units anyway"
        )
    if name != "I" and not elementwise:
        raise TacitError(
            f"{name}() in the formula is not known to compute each row from itself; there are "
            f"{', '.join(FUNCTIONS)}, I, C and numpy's elementwise functions, like np.sin; compute "
            "other columns beforehand, inside each task"
        )
    if node.keywords or len(node.args) != takes:
        raise TacitError(f"{whole!r} in the formula: {name}() takes {takes} column(s), and no more")


def _check_contrast(node: ast.Call, whole: str) -> None:
    """`C(x, contr.treatment("b"))`: how levels become columns, by constants."""
    if not node.keywords and all(map(_coding, node.args[1:])) and len(node.args) <= 2:
        return
    raise TacitError(
        f"{whole!r} in the formula: C() takes a column and perhaps a coding, like "
        'C(x, contr.treatment("first"))'
    )


def _coding(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not _name(node).startswith("contr."):
        return False
    values = [*node.args, *(one.value for one in node.keywords)]
    return _name(node).count(".") == 1 and all(isinstance(one, ast.Constant) for one in values)


def _name(node: ast.AST) -> str:
    """What is called, as it is written."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""
