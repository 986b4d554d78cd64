"""A function of one task, run for many tasks at once.

`torch.func.vmap` lifts the function, and tracing turns the lifted function into a flat list of
tensor operations. The method's own Python code runs while tracing only, on blank tensors of the
right shapes: in a round, nothing but that list touches data. So the fence around a task does not
depend on what a method's author wrote, and small models do not pay for Python in every step
(measured with a linear model of 30 features: about three times faster than `vmap` alone).

Inside the function, tensors can be computed with but not branched on or read as numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree


class Together:
    """`function(shared, own)` for many tasks: `shared` is the same for all, `own` is stacked."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._lifted = vmap(function, in_dims=(None, 0), randomness="different")
        self._traced: dict[Any, tuple[fx.GraphModule, pytree.TreeSpec]] = {}

    def __call__(self, shared: Any, own: Any) -> Any:
        flat, spec = pytree.tree_flatten((shared, own))
        key = (spec, tuple((value.shape, value.dtype, value.device) for value in flat))
        if key not in self._traced:
            self._traced[key] = self._trace(flat, spec)
        graph, out_spec = self._traced[key]
        with torch.no_grad():
            return pytree.tree_unflatten(graph(*flat), out_spec)

    def rehearse(self, shared: Any, own: Any) -> Any:
        """The same without tracing, for a single call on blank tensors."""
        return self._lifted(shared, own)

    def _trace(
        self, flat: list[Tensor], spec: pytree.TreeSpec
    ) -> tuple[fx.GraphModule, pytree.TreeSpec]:
        shape: list[pytree.TreeSpec] = []

        def lifted(*tensors: Tensor) -> list[Tensor]:
            results, out_spec = pytree.tree_flatten(
                self._lifted(*pytree.tree_unflatten(list(tensors), spec))
            )
            shape.append(out_spec)
            return results

        blank = [torch.zeros_like(value) for value in flat]
        graph = make_fx(lifted)(*blank)
        _simplify(graph)
        return graph, shape[-1]


def _simplify(graph: fx.GraphModule) -> None:
    """Leave out operations that do nothing; for small models each costs as much as a real one."""
    aten = torch.ops.aten
    same_shape = {aten.expand.default, aten.view.default, aten._unsafe_view.default}
    for node in graph.graph.nodes:
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        source = node.args[0]
        unchanged = node.target in same_shape and _layout(node) == _layout(source) is not None
        times_one = node.target is aten.mul.Scalar and node.args[1] == 1
        if unchanged or times_one or node.target is aten.detach.default:
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _layout(node: fx.Node) -> Any:
    meta = node.meta.get("tensor_meta")
    return None if meta is None else (meta.shape, meta.stride, meta.dtype)
