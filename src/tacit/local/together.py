"""A function of one task, run for many tasks at once.

`torch.func.vmap` lifts the function, and tracing turns the lifted function into a flat list of
tensor operations. The method's own Python code then runs while tracing only, on blank tensors of
the right shapes: in a round, nothing but that list touches data. And small models do not pay for
Python in every step
(a linear model with 30 features trains about three times as fast as under `vmap` alone).

Inside the function, traced or not, tensors can be computed with, but not branched on, read as
numbers, written to anything outside or used later: `vmap` refuses. So does it refuse random
numbers, which would be drawn for the whole chunk (`local.dropout` has a task's own). That is the
fence around a task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import vmap
from torch.utils import _pytree as pytree

from tacit.local.record import Layout, recorded
from tacit.local.replay import Replay


class Together:
    """`function(shared, own)` for many tasks: `shared` is the same for all, `own` is stacked.

    `trace=False` is for functions of very many operations, whose tracing would take longer than it
    saves. With `single`, one task by itself runs as it is: models so large that no two fit into a
    chunk gain nothing from being mapped. There is no fence then, so it is not for the billboard.
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], *, trace: bool = True, single: bool = False
    ) -> None:
        self.traces, self._single, self._function = trace, single, function
        self._lifted = vmap(function, in_dims=(None, 0), randomness="error")
        self._traced: dict[Any, tuple[Callable[..., Any], pytree.TreeSpec]] = {}

    def __call__(self, shared: Any, own: Any) -> Any:
        if not self.traces:
            if self._single and len(pytree.tree_leaves(own)[0]) == 1:
                result = self._function(shared, pytree.tree_map(lambda value: value[0], own))
                return pytree.tree_map(lambda value: value.unsqueeze(0), result)
            return self._lifted(shared, own)
        flat, spec = pytree.tree_flatten((shared, own))
        key = (spec, tuple((v.shape, v.stride(), v.dtype, v.device) for v in flat))
        if key not in self._traced:
            graph, out_spec = self._trace(flat, spec)
            on_gpu = all(value.is_cuda for value in flat)
            self._traced[key] = (Replay(graph) if on_gpu else graph, out_spec)
        graph, out_spec = self._traced[key]
        with torch.no_grad():
            return pytree.tree_unflatten(graph(*flat), out_spec)

    def rehearse(self, shared: Any, own: Any) -> Any:
        """The same without tracing, for a single call on blank tensors."""
        return self._lifted(shared, own)

    def _trace(
        self, flat: list[Tensor], spec: pytree.TreeSpec
    ) -> tuple[fx.GraphModule, pytree.TreeSpec]:
        return _traced(self._lifted, flat, spec)


def fixed(function: Callable[..., Any], *example: Any) -> Callable[..., Any]:
    """The function as it is now, as a list of tensor operations for arguments like `example`.

    Traced before any data are touched, it cannot come to depend on anything but its arguments.
    """
    flat, spec = pytree.tree_flatten(example)
    graph, out_spec = _traced(function, flat, spec)

    def run(*arguments: Any) -> Any:
        leaves, given = pytree.tree_flatten(arguments)
        assert given == spec, "arguments of another structure than the example"
        with torch.no_grad():
            return pytree.tree_unflatten(graph(*leaves), out_spec)

    return run


def _traced(
    function: Callable[..., Any], flat: list[Tensor], spec: pytree.TreeSpec
) -> tuple[fx.GraphModule, pytree.TreeSpec]:
    shape: list[pytree.TreeSpec] = []

    def on_leaves(*tensors: Tensor) -> list[Tensor]:
        results, out_spec = pytree.tree_flatten(
            function(*pytree.tree_unflatten(list(tensors), spec))
        )
        shape.append(out_spec)
        return results

    graph = recorded(on_leaves, [_blank(value) for value in flat], _simplify)
    return graph, shape[-1]


def _blank(like: Tensor) -> Tensor:
    """Zeros with the same shape and strides: what is traced must fit the layout it meets later."""
    pairs = zip(like.shape, like.stride(), strict=True)
    numbers = sum((size - 1) * stride for size, stride in pairs) + 1 if like.numel() else 0
    return like.new_zeros(numbers).as_strided(like.shape, like.stride())


def _simplify(graph: fx.Graph) -> None:
    """Leave out operations that do nothing; for small models each costs as much as a real one.

    The gradient of a sum begins with a tensor of ones and multiplies by it: without those products
    nothing uses the loss itself any more, and its forward half goes too. Where something is changed
    in place (statistics of BatchNorm), copies are left alone.
    """
    in_place = any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in graph.nodes
    )
    for node in graph.nodes:
        source = _same_view(node) or (None if in_place else _same_product(node))
        if source is not None:
            node.replace_all_uses_with(source)
    graph.eliminate_dead_code()


def _same_view(node: fx.Node) -> fx.Node | None:
    """The node that this one is a view of, if it looks at it exactly as it is."""
    aten = torch.ops.aten
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node):
        return None
    if node.target is aten.detach.default:
        return source
    if node.target in (aten.expand.default, aten.view.default, aten._unsafe_view.default):
        return source if _layout(node) == _layout(source) is not None else None
    if node.target is source.target is aten.transpose.int:
        inner = source.args[0]
        if isinstance(inner, fx.Node) and set(node.args[1:]) == set(source.args[1:]):
            return inner if _layout(inner) == _layout(node) is not None else None
    return None


def _same_product(node: fx.Node) -> fx.Node | None:
    """The other factor of a product with ones."""
    aten = torch.ops.aten
    if node.target is aten.mul.Scalar and node.args[1] == 1:
        return node.args[0] if isinstance(node.args[0], fx.Node) else None
    if node.target is aten.mul.Tensor:
        for ones, other in (node.args, node.args[::-1]):
            if not isinstance(ones, fx.Node) or not isinstance(other, fx.Node):
                continue
            if _all_ones(ones) and _layout(other) == _layout(node) is not None:
                return other
    return None


def _all_ones(node: fx.Node) -> bool:
    aten = torch.ops.aten
    while node.target in (aten.view.default, aten.expand.default, aten.unsqueeze.default):
        node = node.args[0]  # type: ignore[assignment]
    return node.target is aten.ones_like.default


def _layout(node: fx.Node) -> Layout | None:
    return node.meta.get("layout")
