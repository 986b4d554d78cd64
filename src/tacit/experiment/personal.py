"""One task's model as a torch module for raw rows: scaling and what it combines are inside."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from tacit.data.federation import Federation
from tacit.data.representation import represent
from tacit.engine.blend import Blend


class PersonalModel(nn.Module):
    """Raw rows in, numbers in the target's units out (or scores: logits, logarithms of counts).

    `inner` is the network itself, which sees scaled rows and speaks in scaled targets.
    """

    def __init__(
        self, inner: nn.Module, federation: Federation, task: int, blend: Blend | None = None
    ) -> None:
        super().__init__()
        self.inner = inner
        self._made, self._task = federation.preprocessing, task
        self._representation = federation.representation
        self._blend = None
        if blend is not None:
            self._blend = dataclasses.replace(blend, place=blend.place[task : task + 1])
        scale = federation.target_scale
        numbers = federation.kind == "regression" and scale is not None
        self._shift = float(scale.shift[task]) if numbers and scale is not None else 0.0
        self._scale = float(scale.scale[task]) if numbers and scale is not None else 1.0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """[n] or [n, outputs] for rows [n, …] as they were before training scaled them."""
        seen = x.float() if self._made is None else self._made.apply(x, self._task)
        if self._representation is not None:
            seen = represent(self._representation, seen)
        out = self.inner(seen)
        if out.ndim == 2 and out.shape[1] == 1:
            out = out[:, 0]
        if self._blend is not None:
            out = self._blend(seen, out, torch.zeros(len(seen), dtype=torch.int64))
        return self._shift + self._scale * out
