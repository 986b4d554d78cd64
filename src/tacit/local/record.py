"""A function of tensors as the list of operations that it makes, recorded while it runs once.

What is recorded knows nothing but its arguments: a number that is read off a tensor would be that
of the blank rows, so it is refused. Tensors from outside are constants of the list.

PyTorch has such a recorder (`make_fx`), which loads its compiler first and knows shapes by symbols;
that takes longer than many a run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from tacit.errors import TacitError

Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]


def recorded(
    function: Callable[..., Sequence[Tensor]],
    arguments: Sequence[Tensor],
    simplify: Callable[[fx.Graph], None] = lambda graph: None,
) -> fx.GraphModule:
    """The operations of `function` on arguments like these, made into code once simplified."""
    recorder = _Recorder()
    for number, argument in enumerate(arguments):
        recorder.name(argument, recorder.graph.placeholder(f"argument_{number}"))
    with recorder:
        results = function(*arguments)
        recorder.graph.output([recorder.node_of(value) for value in results])
    simplify(recorder.graph)
    return fx.GraphModule(recorder.constants, recorder.graph)


class _Recorder(TorchDispatchMode):
    """Sees every operation below `vmap` and `grad`, on plain tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.constants: dict[str, Any] = {}
        self._nodes = WeakTensorKeyDictionary()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A word of PyTorch's: True would load its compiler, to keep it off this class."""
        return False

    def name(self, value: Any, node: fx.Node) -> None:
        """From now on this value is what the node gives."""
        if isinstance(value, Tensor):
            self._nodes[value] = node
            node.meta["layout"] = (value.shape, value.stride(), value.dtype)
        elif isinstance(value, (list, tuple)):
            for place, one in enumerate(value):
                self.name(one, self.graph.call_function(operator.getitem, (node, place)))

    def node_of(self, value: Any) -> Any:
        """The node that gives a tensor, also inside a list; everything else is what it is."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.node_of(one) for one in value)
        if not isinstance(value, Tensor):
            return value
        if value not in self._nodes:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = value
            self.name(value, self.graph.get_attr(name))
        return self._nodes[value]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise TacitError(
                "a number is read off a tensor (item, float, if) where only operations on tensors "
                "can be recorded: compute with the tensor instead, for example by torch.where"
            )
        if func is torch.ops.aten.lift_fresh.default:  # a constant that may be written to later
            func = torch.ops.aten.lift_fresh_copy.default
        result = func(*args, **(kwargs or {}))
        named = {name: self.node_of(value) for name, value in (kwargs or {}).items()}
        self.name(result, self.graph.call_function(func, self.node_of(args), named))
        return result
