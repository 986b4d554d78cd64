"""The text of a formula: target ~ fixed effects + (own effects | task)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.checks import needing
from tacit.errors import TacitError
from tacit.formula.rowwise import columns_of

EXAMPLE = "like (1 | school) or (1 + age | school)"


@dataclass(frozen=True)
class Formula:
    """What a formula says, each part as text that formulaic reads."""

    text: str
    target: str
    column: str | None
    """The name of the target, if it is a plain column."""
    fixed: str
    own: str
    task: str
    columns: tuple[str, ...]
    """Those that effects read."""
    target_columns: tuple[str, ...]
    categories: frozenset[str]
    """Those that C(…) makes categories of, whatever they hold."""

    def wrong(self, why: str) -> TacitError:
        return _wrong(self.text, why)


def parse(text: str) -> Formula:
    """Split off the bracket, and refuse what does not compute each row from itself.

    That happens before formulaic sees the text, because it evaluates some of it while parsing.
    """
    tokens = _tokens(text)
    tildes = [at for at, token in enumerate(tokens) if _operator(token, "~")]
    if len(tildes) != 1 or tildes == [0]:
        raise _wrong(text, "write target ~ fixed effects + (own effects | task)")
    opened, bar, closed = _bracket(text, tokens)
    begin, middle, end = (tokens[at].source_start for at in (opened, bar, closed))
    task = tokens[bar + 1 : closed]
    if len(task) != 1 or task[0].kind.value != "name":
        raise _wrong(
            text,
            "one column names the task, after the bar in the bracket; if tasks are nested in "
            "others, make one column of both names beforehand",
        )
    if any(_operator(one, "-") or one.token == "0" for one in tokens[opened:bar]):
        raise _wrong(
            text,
            "these models give every task an own intercept, because tasks differ in level before "
            "they differ in anything else; write 1 instead of 0 in the bracket",
        )
    first, _ = _columns(tokens[: tildes[0]])
    others, categories = _columns(tokens[tildes[0] : bar] + tokens[closed:])
    plain = tildes[0] == 1 and tokens[0].kind.value == "name"
    column = tokens[0].token if plain else None
    for name, role in ((task[0].token, "task"), (column, "target")):
        if name in others:
            raise _wrong(text, f"column {name!r} is the {role}, so it cannot be an effect too")
    before, after = text[:begin].rstrip(), text[end + 1 :].strip()
    after = after.removeprefix("+") if before.endswith("~") else after
    target, fixed = f"{before.removesuffix('+')} {after}".split("~")
    return Formula(
        text=text,
        target=target.strip(),
        column=column,
        fixed=fixed.strip() or "1",
        own=text[begin + 1 : middle].strip(),
        task=task[0].token,
        columns=tuple(others),
        target_columns=tuple(first),
        categories=frozenset(categories),
    )


def _tokens(text: str) -> list[Any]:
    with needing("formulaic", "a formula", "formula"):
        from formulaic.errors import FormulaicError
        from formulaic.parser.algos.tokenize import tokenize
    if not isinstance(text, str) or not text.strip():
        raise TacitError(f"a formula is text like 'y ~ x + (1 | school)', but {text!r} was given")
    try:
        return list(tokenize(text))
    except FormulaicError as error:
        raise _wrong(text, reason(error)) from None


def _columns(tokens: list[Any]) -> tuple[dict[str, None], set[str]]:
    """The columns that are named, in order, and those that become categories."""
    names: dict[str, None] = {}
    categories = set()
    for token in tokens:
        if token.token == ".":
            raise TacitError("the formula has a dot for all columns; name those that you mean")
        if token.kind.value == "name":
            names[token.token] = None
        elif token.kind.value == "python":
            read, category = columns_of(token.token)
            names |= dict.fromkeys(sorted(read))
            categories |= {category} - {None}
    return names, categories


def _bracket(text: str, tokens: list[Any]) -> tuple[int, int, int]:
    """Where the bracket with the bar opens, has its bar, and closes."""
    bars = [at for at, token in enumerate(tokens) if _operator(token, "|")]
    if not bars:
        raise _wrong(text, f"say which column names the task, {EXAMPLE}")
    if len(bars) > 1:
        raise _wrong(text, _several([tokens[at + 1].token for at in bars if at + 1 < len(tokens)]))
    at = bars[0]
    if tokens[at].token != "|":
        raise _wrong(text, f"own effects may go together, so write one bar, {EXAMPLE}")
    depth, found = [], {}
    for place, token in enumerate(tokens):
        if token.kind.value == "context" and token.token in "([":
            depth.append(place)
        elif token.kind.value == "context" and depth:
            found[depth.pop()] = (place, len(depth))
    around = [open for open, (close, _) in found.items() if open < at < close]
    if len(around) != 1:
        raise _wrong(text, f"own effects stand in one bracket of their own, {EXAMPLE}")
    opened, closed = around[0], found[around[0]][0]
    joined = tokens[opened - 1].token.endswith(("+", "~")) if opened else False
    alone = closed + 1 == len(tokens) or tokens[closed + 1].token[0] in "+-"
    if not joined or not alone:
        raise _wrong(text, f"the bracket with own effects is added to the fixed effects, {EXAMPLE}")
    if at == opened + 1:
        raise _wrong(text, f"say which effects are own, before the bar, {EXAMPLE}")
    return opened, at, closed


def _several(groups: list[str]) -> str:
    """Why there is one bracket, by the columns that stand behind the bars."""
    first, *others = dict.fromkeys(groups)
    if not others:
        return f"own effects may go together, so write them in one bracket, {EXAMPLE}"
    return (
        f"tasks are grouped by {first} and by {', '.join(others)}, but the promise is for whole "
        f"tasks of one kind; keep the bracket of those to protect, and add {others[0]} to the "
        f"fixed effects, like C({others[0]})"
    )


def _operator(token: Any, sign: str) -> bool:
    return token.kind.value == "operator" and sign in token.token


def _wrong(text: str, why: str) -> TacitError:
    return TacitError(f"the formula {text!r}: {why}")


def reason(error: Exception) -> str:
    """What formulaic says, without the drawing below it."""
    return str(error).strip().splitlines()[0].rstrip(".")
