"""Batch normalisation when every task has its own statistics.

PyTorch's own refuses to be mapped over tasks on a GPU, and on a CPU it wants channels outermost in
memory, where the engine's convolutions leave them innermost. As plain sums and products it runs
anywhere, and gives the same numbers but for rounding. Rows that only fill a batch (weight zero) do
not count: how many there are depends on the shape of a chunk, and statistics must not.

Statistics are buffers: they are computed from a task's rows, belong to its own state, and are never
part of a contribution (see `tacit.local.flat`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BatchNorm:
    """`torch.nn.functional.batch_norm` for inputs [batch, channels, ...]."""

    rows: Tensor | None = None
    """[batch], zero for rows that do not count; None, or another length, counts all."""

    def __call__(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if training:
            counted = input.new_ones(len(input))
            if self.rows is not None and len(self.rows) == len(input):
                counted = (self.rows > 0).to(input.dtype)
            places = input[0, 0].numel()
            count = counted.sum() * places
            share = (counted / count).reshape(-1, *[1] * (input.ndim - 1))
            axes = [axis for axis in range(input.ndim) if axis != 1]
            mean = (input * share).sum(dim=axes)
            centred = input - _along(mean, input)
            var = (centred.square() * share).sum(dim=axes)
            if running_mean is not None and running_var is not None:
                unbiased = var.detach() * (count / (count - 1).clamp(min=1))
                running_mean.mul_(1 - momentum).add_(mean.detach(), alpha=momentum)
                running_var.mul_(1 - momentum).add_(unbiased, alpha=momentum)
        else:
            assert running_mean is not None and running_var is not None
            centred, var = input - _along(running_mean, input), running_var
        scale = torch.rsqrt(var + eps)
        if weight is not None:
            scale = scale * weight
        if bias is None:
            return centred * _along(scale, input)
        return torch.addcmul(_along(bias, input), centred, _along(scale, input))


def _along(channels: Tensor, input: Tensor) -> Tensor:
    return channels.reshape(-1, *[1] * (input.ndim - 2))
