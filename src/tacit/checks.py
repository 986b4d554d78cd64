"""What people, files and messages give, against what is expected: types, names and addresses.

One type check for all of them, on real annotations. It is ours, and not pydantic's strict mode,
because settings also come from Python, where a number of NumPy is a number and any collection of
names is a list of them, and from JSON, where a tuple is a list. Files of settings as a whole are
pydantic's (`tacit.experiment.toml`).
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tacit.errors import TacitError
from tacit.words import LONGEST_NAME, shortened

NUMBERS = {int: Integral, float: Real}
"""Python types that count as a number of this kind; whole numbers also count as fractions."""
WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    types.NoneType: "none",
}
LISTED = 12
"""How many known names are listed when one is unknown."""


@functools.cache
def annotations_of(kind: type) -> dict[str, Any]:
    """The annotations of a class, its bases included, as types and not as text."""
    return get_type_hints(kind)


def fits(annotation: Any, value: Any) -> bool:
    """Whether a value is of the annotated type; True does not count as a number."""
    if annotation is Any:
        return True
    if annotation in NUMBERS:
        return isinstance(value, NUMBERS[annotation]) and not isinstance(value, bool)
    if isinstance(annotation, type) and type(annotation) is not types.GenericAlias:
        return isinstance(value, annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(fits(part, value) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            fits(parts[0], key) and fits(parts[1], one) for key, one in value.items()
        )
    if origin not in (list, tuple, Sequence):
        raise TypeError(f"no value can be checked against {annotation!r}")
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        return False
    if origin is tuple and parts[-1] is not ...:
        return len(value) == len(parts) and all(map(fits, parts, value))
    return all(fits(parts[0], one) for one in value)


def none_in_words(annotation: Any, value: Any) -> Any:
    """None where "none" was written, which TOML has no other word for, and cannot be meant."""
    said = (
        isinstance(value, str)
        and value == "none"
        and fits(annotation, None)
        and not fits(annotation, value)
    )
    return None if said else value


def check_type(name: str, annotation: Any, value: Any) -> None:
    """Refuse a value that is not of the annotated type."""
    if not fits(annotation, value):
        raise TacitError(f"{name}={shortened(repr(value))} must be {in_words(annotation)}")


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse what is not a whole number in this range."""
    if not fits(int, value) or value < least or (most is not None and value > most):
        span = f", {least} or more" if most is None else f" from {least} to {most}"
        raise TacitError(f"{name} is {value!r}, expected a whole number{span}")


def in_words(annotation: Any) -> str:
    """What an annotation asks for, for people."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(map(in_words, parts))
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (list, tuple, Sequence):
        many = f"{len(parts)}, each " if origin is tuple and parts[-1] is not ... else ""
        return f"a list of {many}{in_words(parts[0])}"
    if origin in (dict, Mapping):
        return "a table"
    return WORDS.get(annotation) or getattr(annotation, "__name__", str(annotation))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name, if one that is known is close to it."""
    small = {str(one).casefold(): str(one) for one in known}
    close = difflib.get_close_matches(name.casefold(), small, n=1)
    return f"; did you mean {small[close[0]]!r}?" if close else ""


def near(name: str, known: Iterable[str], most: int = LISTED) -> str:
    """The same, and which there are."""
    names = [shortened(str(one), LONGEST_NAME) for one in known]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{did_you_mean(name, names) or ';'} there are: {', '.join(names[:most])}{more}"


@contextlib.contextmanager
def needing(package: str, what: str, extra: str, otherwise: str = "") -> Iterator[None]:
    """For an import of a package that not everybody has; without it, how to get it."""
    try:
        yield
    except ImportError:
        remedy = f"pip install 'tacit[{extra}]'{otherwise}"
        raise TacitError(f"{what} needs {package}: {remedy}") from None


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of `host:port`, or of `[host]:port` for IPv6."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
        raise TacitError(f"{address!r} is not an address: write host:port, such as localhost:7000")
    return host, int(port)
