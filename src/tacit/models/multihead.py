"""Hard sharing: one body that all tasks shape together, and a layer of its own for each head."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from tacit.data.federation import Federation
from tacit.errors import TacitError


class MultiHead(nn.Module):
    """Any body, then one layer per head; outputs of all heads side by side, in their order.

    [n, sum of outputs] for labels, [n, sum of classes, height, width] for pixels. Parameters are
    called `body.*` and then `heads.<k>.*`, so the shared ones lead every flat vector. Heads go by
    number there because their names may hold any characters, which names of modules may not.
    """

    def __init__(self, body: nn.Module, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        if not heads:
            raise TacitError("a model with many heads got none: give it at least one layer by name")
        if not isinstance(body, nn.Module):
            raise TacitError(f"the body is {body!r}, but a torch.nn.Module is needed")
        for name, layer in heads.items():
            if not isinstance(layer, nn.Module):
                raise TacitError(f"head {name!r} is {layer!r}, but a torch.nn.Module is needed")
        if len({id(layer) for layer in heads.values()}) < len(heads):
            raise TacitError("two heads are one and the same layer: give each head its own")
        self.names: tuple[str, ...] = tuple(heads)
        self.body = body
        self.heads = nn.ModuleList(heads.values())

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        return torch.cat([head(features) for head in self.heads], dim=1)


def with_heads(
    body: nn.Module, make: Callable[[int], nn.Module], federation: Federation
) -> MultiHead:
    """A body with the federation's heads, or one head "all" where every task predicts the same.

    `make(outputs)` makes one layer. Heads with the same number of outputs start from the same
    values, because FedMTL tells who is alike by the cosine of task layers: two random starts have
    a cosine near 0 whatever is learned afterwards, and thresholds of .75 and more could only ever
    be passed by tasks with the same heads. From one start, the cosine falls as far as what was
    learned differs.
    """
    heads = federation.heads
    names = ("all",) if heads is None else heads.names
    outputs = (federation.outputs,) if heads is None else heads.outputs
    made = {size: make(size) for size in dict.fromkeys(outputs)}
    pairs = zip(names, outputs, strict=True)
    return MultiHead(body, {name: copy.deepcopy(made[size]) for name, size in pairs})


def headed(
    network: nn.Sequential, make: Callable[[int], nn.Module], federation: Federation
) -> nn.Module:
    """A network as it is or, where tasks hold heads, with those in place of its last layer."""
    return network if federation.heads is None else with_heads(network[:-1], make, federation)
