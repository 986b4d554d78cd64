"""`torch.func.grad`, without PyTorch's compiler.

While it goes backwards, PyTorch keeps its compiler from compiling that. To say so it loads the
compiler, which takes longer than a small run does. A compiler that nobody has loaded compiles
nothing: until somebody does, a stand-in is told so.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

COMPILER = "_dynamo"
STAND_IN = SimpleNamespace(compiled_autograd=SimpleNamespace(_disable=contextlib.nullcontext))


def grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """The gradient of a function, as `torch.func.grad` gives it."""
    taken = torch.func.grad(function, argnums, has_aux)

    def slopes(*arguments: Any) -> Any:
        with _compiler_not_loaded():
            return taken(*arguments)

    return slopes


@contextlib.contextmanager
def _compiler_not_loaded() -> Iterator[None]:
    if f"torch.{COMPILER}" in sys.modules:
        yield
        return
    setattr(torch, COMPILER, STAND_IN)
    try:
        yield
    finally:  # unless the real one came in between
        if torch.__dict__.get(COMPILER) is STAND_IN:
            delattr(torch, COMPILER)
