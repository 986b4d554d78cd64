"""Convolutions that stay fast when every task has its own weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]

# Below this many values per kernel row, a product per row is too thin to be worth its call.
_THIN_ROW = 48


def _pair(value: Any) -> Pair:
    """The (height, width) form of an argument that may also be one number or a sequence of one."""
    if isinstance(value, int):
        return value, value
    first, *rest = value
    return int(first), int(rest[0] if rest else first)


@dataclass(frozen=True)
class _Lowering:
    """How a convolution over already padded images becomes matrix products.

    Images are [task, batch, channel, height, width] with channels innermost in memory where they
    leave here. Wide layers unfold along the width only: one product per kernel row then adds into
    the result, and the unfolded copy is smaller by the kernel's height. Thin ones (few channels,
    such as a first layer) unfold in both directions, with the pixels innermost, for one product.
    """

    batch: int
    channels: int
    size: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair

    @property
    def reach(self) -> Pair:
        """How many pixels the kernel spans in each direction."""
        (high, wide), (down, across) = self.kernel, self.dilation
        return (high - 1) * down + 1, (wide - 1) * across + 1

    @property
    def output(self) -> Pair:
        (high, wide), (down, across), (rows, columns) = self.size, self.stride, self.reach
        return (high - rows) // down + 1, (wide - columns) // across + 1

    @property
    def thin(self) -> bool:
        return self.kernel[1] * self.channels < _THIN_ROW

    def unfold(self, images: Tensor) -> Tensor:
        """Thin: [task, channel * kernel, pixel]; wide: [task, phase, row, batch, column, k * c].

        A wide layer's image rows are sorted by phase, their number modulo the stride, so that the
        rows any one kernel row meets lie next to each other and form a matrix without a copy.
        """
        (rows, columns), (down, across), (apart, aside) = self.reach, self.stride, self.dilation
        tasks = images.shape[0]
        if self.thin:
            windows = images.transpose(1, 2).unfold(3, rows, down).unfold(4, columns, across)
            windows = windows[..., ::apart, ::aside].permute(0, 1, 5, 6, 2, 3, 4)
            return windows.reshape(tasks, -1, self.batch * self.output[0] * self.output[1])
        strips = self._strips(images, tasks)
        by_row = images.permute(0, 3, 1, 4, 2).unfold(3, columns, across)[..., ::aside].mT
        for phase in range(down):
            part = by_row[:, phase::down]
            strips[:, phase, : part.shape[1]].copy_(part)
        return strips.flatten(-2)

    def _strips(self, like: Tensor, tasks: int) -> Tensor:
        down, width = self.stride[0], self.kernel[1]
        rows = -(-self.size[0] // down)
        return like.new_empty(tasks, down, rows, self.batch, self.output[1], width, self.channels)

    def factors(self, unfolded: Tensor) -> list[Tensor]:
        """The left factor [task, pixel, k] of each product, as views."""
        if self.thin:
            return [unfolded.mT]
        starts = (divmod(row * self.dilation[0], self.stride[0]) for row in range(self.kernel[0]))
        return [
            unfolded[:, phase, start : start + self.output[0]].flatten(1, 3)
            for start, phase in starts
        ]

    def fold(self, unfolded: Tensor) -> Tensor:
        """The transpose of unfold: sums every copy of a pixel back into that pixel."""
        tasks, (high, wide), (down, across) = unfolded.shape[0], self.output, self.stride
        if self.thin:
            parts = unfolded.view(tasks, self.channels, *self.kernel, self.batch, high, wide)
            images = unfolded.new_zeros(tasks, self.channels, self.batch, *self.size)
            for row in range(self.kernel[0]):
                for column in range(self.kernel[1]):
                    met = images[..., self._met(0, row), self._met(1, column)]
                    met += parts[:, :, row, column]
            return images.transpose(1, 2)
        images = unfolded.new_zeros(tasks, self.batch, *self.size, self.channels)
        by_row = images.transpose(1, 2)
        parts = unfolded.unflatten(-1, (self.kernel[1], self.channels))
        for phase in range(down):
            of_phase = by_row[:, phase::down]
            for column in range(self.kernel[1]):
                met = of_phase[:, :, :, self._met(1, column)]
                met += parts[:, phase, : of_phase.shape[1], :, :, column]
        return images.permute(0, 1, 4, 2, 3)

    def _met(self, axis: int, tap: int) -> slice:
        """The pixels along an axis that one kernel position meets."""
        start, step = tap * self.dilation[axis], self.stride[axis]
        return slice(start, start + (self.output[axis] - 1) * step + 1, step)

    def weights(self, weight: Tensor) -> Tensor:
        """The right factors [task, product, k, filter] for weights [task, filter, c, h, w]."""
        if self.thin:
            return weight.flatten(2).mT.unsqueeze(1)
        return weight.permute(0, 3, 4, 2, 1).flatten(2, 3)

    def weight_gradient(self, factors: Tensor) -> Tensor:
        """The inverse of weights."""
        if self.thin:
            return factors.squeeze(1).mT.unflatten(2, (self.channels, *self.kernel))
        return factors.unflatten(2, (self.kernel[1], self.channels)).permute(0, 4, 3, 1, 2)

    def to_images(self, pixels: Tensor) -> Tensor:
        high, wide = self.output
        if self.thin:
            images = pixels.unflatten(1, (self.batch, high, wide))
        else:
            images = pixels.unflatten(1, (high, self.batch, wide)).transpose(1, 2).contiguous()
        return images.permute(0, 1, 4, 2, 3)

    def to_pixels(self, images: Tensor) -> Tensor:
        order = (0, 1, 3, 4, 2) if self.thin else (0, 3, 1, 4, 2)
        return images.permute(order).flatten(1, 3)


def _over_tasks(function: Any, info: Any, in_dims: Any, *arguments: Any) -> Any:
    """A vmap rule for functions whose tensors lead with tasks: mapped copies are further tasks."""
    count = info.batch_size

    def joined(argument: Any, dim: int | None) -> Any:
        if not isinstance(argument, Tensor):
            return argument
        if dim is None:
            return argument.expand(count, *argument.shape).flatten(0, 1)
        return argument.movedim(dim, 0).flatten(0, 1)

    outputs = function.apply(*map(joined, arguments, in_dims))
    apart = tuple(None if out is None else out.unflatten(0, (count, -1)) for out in outputs)
    return apart, tuple(None if out is None else 0 for out in apart)


class _Convolution(torch.autograd.Function):
    """Images and weights, each with a leading task axis, to images and the unfolded input."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor | None, how: _Lowering) -> Any:
        unfolded = how.unfold(images)
        (left, *lefts), (right, *rights) = how.factors(unfolded), how.weights(weight).unbind(1)
        if bias is None:
            pixels = torch.bmm(left, right)
        else:
            pixels = torch.baddbmm(bias.unsqueeze(1), left, right)
        for left, right in zip(lefts, rights, strict=True):
            pixels.baddbmm_(left, right)
        return how.to_images(pixels), unfolded

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, weight, bias, ctx.how = inputs
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: None) -> Any:
        weight, unfolded = ctx.saved_tensors
        to_images, to_weight, to_bias = _Gradients.apply(
            gradient, weight, unfolded, ctx.how, ctx.needs_input_grad[0]
        )
        return to_images, to_weight, to_bias if ctx.has_bias else None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return _over_tasks(_Convolution, info, in_dims, *arguments)


class _Gradients(torch.autograd.Function):
    """The gradients for images (where asked for), weights and bias: itself mappable, no more."""

    @staticmethod
    def forward(
        gradient: Tensor, weight: Tensor, unfolded: Tensor, how: _Lowering, for_images: bool
    ) -> Any:
        pixels = how.to_pixels(gradient)
        lefts = how.factors(unfolded)
        to_weight = torch.stack([torch.bmm(left.mT, pixels) for left in lefts], dim=1)
        to_images = None
        if for_images:
            spread = torch.zeros_like(unfolded)
            rights = how.weights(weight).unbind(1)
            for left, right in zip(how.factors(spread), rights, strict=True):
                left.baddbmm_(pixels, right.mT)
            to_images = how.fold(spread)
        return to_images, how.weight_gradient(to_weight), pixels.sum(dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return _over_tasks(_Gradients, info, in_dims, *arguments)


def _padding(padding: Any, reach: Pair) -> tuple[int, int, int, int]:
    """Zeros to add at the top, bottom, left and right."""
    if padding == "valid":
        return 0, 0, 0, 0
    if padding == "same":
        high, wide = reach[0] - 1, reach[1] - 1
        return high // 2, high - high // 2, wide // 2, wide - wide // 2
    down, across = _pair(padding)
    return down, down, across, across


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """torch.conv2d by matrix products, or torch.conv2d itself in the cases not handled here."""
    supported = (
        input.ndim == 4
        and weight.ndim == 4
        and groups == 1
        and input.shape[1] == weight.shape[1]
        and input.dtype == weight.dtype
        and input.is_floating_point()
        and min(input.shape) > 0
    )
    if not supported:
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    kernel = (weight.shape[2], weight.shape[3])
    stride, dilation = _pair(stride), _pair(dilation)
    reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilation))
    top, bottom, left, right = _padding(padding, reach)
    if kernel == (1, 1) and not any((top, bottom, left, right)):
        pixels = input[..., :: stride[0], :: stride[1]].permute(0, 2, 3, 1)
        return functional.linear(pixels, weight.flatten(1), bias).permute(0, 3, 1, 2)
    if any((top, bottom, left, right)):
        input = functional.pad(input.permute(0, 2, 3, 1), (0, 0, left, right, top, bottom))
        input = input.permute(0, 3, 1, 2)
    how = _Lowering(
        input.shape[0], input.shape[1], (input.shape[2], input.shape[3]), kernel, stride, dilation
    )
    images, _ = _Convolution.apply(
        input.unsqueeze(0), weight.unsqueeze(0), None if bias is None else bias.unsqueeze(0), how
    )
    return images.squeeze(0)


class fast_convolutions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.conv2d:
            func = conv2d
        return func(*args, **(kwargs or {}))
