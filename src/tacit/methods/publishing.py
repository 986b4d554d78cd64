"""What is done with a release before it becomes the next billboard: free, as all post-processing.

Sashank Reddi, Zachary Charles, Manzil Zaheer, Zachary Garrett, Keith Rush, Jakub Konečný, Sanjiv
Kumar, Brendan McMahan. "Adaptive Federated Optimization." ICLR, 2021 (momentum, Adam).
Ohad Shamir, Tong Zhang. "Stochastic Gradient Descent for Non-smooth Optimization: Convergence
Results and Optimal Averaging Schemes." ICML, 2013 (polynomial-decay averaging).

A method's `publish` says where the billboard would go; the difference is the step that these rules
smooth. Their memory lies on the billboard itself, so it is public and survives a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.methods.base import Board

RULES = ("add", "momentum", "adam")
HIDDEN = "server."
"""Names of the rules' own tensors begin so, also in files; methods never read them."""


@dataclass(frozen=True, kw_only=True)
class Publishing:
    """How the billboard moves. The default adds each noisy mean as it is."""

    rule: Literal["add", "momentum", "adam"] = "add"
    """"momentum" keeps a running sum of steps, "adam" also scales each coordinate."""
    lr: float = 1.0
    """Length of the step; Adam needs a small one, such as 0.01."""
    momentum: float = 0.9
    """Share of the running step that is kept (momentum and Adam)."""
    halve_every: int | None = None
    """Halve the step after so many rounds."""
    average: float | None = None
    """Tasks end with an average of all billboards, round t weighing t^average; None: the last."""

    def __post_init__(self) -> None:
        checks = {
            "rule": (self.rule in RULES, f"one of {', '.join(RULES)}"),
            "lr": (self.lr > 0, "a positive number"),
            "momentum": (0 <= self.momentum < 1, "from 0 to below 1"),
            "halve_every": (self.halve_every is None or self.halve_every >= 1, "at least 1"),
            "average": (self.average is None or self.average >= 0, "zero or more, or None"),
        }
        for name, (holds, expected) in checks.items():
            if not holds:
                raise TacitError(f"Publishing({name}={getattr(self, name)!r}): must be {expected}")

    @property
    def scales(self) -> bool:
        """Whether the billboard goes anywhere else than where the method would have it."""
        return self.rule != "add" or self.lr != 1 or self.halve_every is not None

    def start(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The first billboard, with room for what the rule remembers."""
        kept = {}
        for name, value in tensors.items():
            if self.rule != "add":
                kept[f"{HIDDEN}first.{name}"] = torch.zeros_like(value)
            if self.rule == "adam":
                kept[f"{HIDDEN}second.{name}"] = torch.zeros_like(value)
            if self.average is not None:
                kept[f"{HIDDEN}average.{name}"] = value.clone()
        return tensors | kept

    def step(self, board: Board, proposed: dict[str, Tensor]) -> dict[str, Tensor]:
        """The next billboard, from the one the method proposes. `board.round` is a tensor."""
        after: dict[str, Tensor] = {}
        number = board.round + 1
        rate = self.lr
        if self.halve_every is not None:
            rate = rate * 0.5 ** (board.round // self.halve_every)
        for name, value in proposed.items():
            move = value - board[name]
            if self.rule != "add":
                first = self.momentum * board[f"{HIDDEN}first.{name}"]
                after[f"{HIDDEN}first.{name}"] = first = first + (
                    move if self.rule == "momentum" else (1 - self.momentum) * move
                )
                move = first
            if self.rule == "adam":
                decay = 0.99
                second = decay * board[f"{HIDDEN}second.{name}"]
                square = (value - board[name]) ** 2
                after[f"{HIDDEN}second.{name}"] = second = second + (1 - decay) * square
                first, second = move / (1 - self.momentum**number), second / (1 - decay**number)
                move = first / (second.sqrt() + 1e-8)
            after[name] = board[name] + rate * move
            if self.average is not None:
                share = (self.average + 1) / (number + self.average)
                mean = board[f"{HIDDEN}average.{name}"]
                after[f"{HIDDEN}average.{name}"] = mean + share * (after[name] - mean)
        return {name: after[name] for name in board.tensors}  # in the order of before

    def shown(self, board: Board) -> Board:
        """The billboard that tasks end with: averages in place of last values, if asked for."""
        if self.average is None:
            return board
        tensors = {
            name: board.tensors.get(f"{HIDDEN}average.{name}", value)
            for name, value in board.tensors.items()
        }
        return Board(tensors, board.round)


def shortened(mean: Tensor, most: float) -> Tensor:
    """At most so long."""
    return mean * (most / torch.linalg.vector_norm(mean).clamp(min=most))
