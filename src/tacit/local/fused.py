"""Convolutions of many tasks on a GPU as single operators: with bias, and with ReLU and pooling.

PyTorch's own operations write every image of every layer to memory several times, and none of its
matrix products has a fast kernel for small images of a hundred networks. Here a convolution, its
bias, ReLU and pooling are one kernel, and so are the slopes of pixels and of filters
(`gpu.kernels`).

**Precision.** Tensor cores multiply bfloat16. A number in single precision goes in as two of them,
a = aₕ + aₗ with |a − aₕ − aₗ| ≤ 2⁻¹⁷|a|, and a product as aₕbₕ + aₕbₗ + aₗbₕ, added up in single
precision. What is left out, aₗbₗ, is at most 2⁻¹⁶ of it: between single precision and TF32 (2⁻¹¹),
near the former. The pixels of a first layer are computed in single precision.
`benchmarks/local_training.py` prints how far a round ends from a float64 loop.

**What keeps tasks apart.** A program of the GPU works for one task, and every sum is in an order
that only sizes decide: so a task's bits depend neither on its place in the chunk nor on the others.

Beside each operator is the same in plain PyTorch, which other devices run and tests compare with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional, grad

from tacit import gpu

WIDEST = 128
"""Images of more columns have no kernel."""
FEW = 128
"""Numbers under a kernel of which a first layer has no more."""


class ConvolutionSizes(NamedTuple):
    """Of padded images and the kernel that goes over them in steps of one."""

    batch: int
    channels: int
    height: int
    width: int
    kernel_height: int
    kernel_width: int
    filters: int

    @property
    def output(self) -> tuple[int, int]:
        return self.height - self.kernel_height + 1, self.width - self.kernel_width + 1

    @property
    def few(self) -> bool:
        """Whether a pixel is made of so few numbers that they stay whole on the way to it.

        Two nearly equal pixels of a window may change places by rounding, and a first layer has
        most of the windows.
        """
        return self.kernel_height * self.kernel_width * self.channels <= FEW


def fits(images: Tensor, of: ConvolutionSizes) -> bool:
    """Whether there are kernels for it, on this device."""
    alike = images.dtype == torch.float32 and of.width <= WIDEST
    return alike and gpu.usable(images.device)


def convolution(
    images: Tensor, weight: Tensor, bias: Tensor | None, of: ConvolutionSizes, *, pool: bool = False
) -> Tensor:
    """Of one task's images [batch, channels, height, width]; with `pool` max_pool2d(relu(…), 2)."""
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    led = (part.unsqueeze(0) for part in (images, weight, bias))
    return _FusedConvolution.apply(*led, of, pool)[0].squeeze(0)


class _FusedConvolution(torch.autograd.Function):
    """What is given, led by a task axis, to [task, batch, filter, row, column]; and what slopes
    need."""

    @staticmethod
    def forward(
        images: Tensor, weight: Tensor, bias: Tensor, of: ConvolutionSizes, pool: bool
    ) -> Any:
        return torch.ops.tacit.fused_convolution(images, weight, bias, list(of), pool)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *_, ctx.sizes, ctx.pool = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, *_: Tensor) -> Any:
        for_images = ctx.needs_input_grad[0]
        slopes = torch.ops.tacit.fused_slopes(
            slope, list(ctx.saved_tensors), list(ctx.sizes), ctx.pool, for_images
        )
        return slopes[0] if for_images else None, *slopes[1:], None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return with_more_tasks(_FusedConvolution.apply, info, in_dims, *arguments)


def with_more_tasks(function: Any, info: Any, in_dims: Any, *arguments: Any) -> Any:
    """A vmap rule for functions whose task axis leads: what is mapped over are further tasks."""

    def merged(argument: Any, dim: Any) -> Any:
        if isinstance(argument, list) and isinstance(dim, (list, tuple)):
            return list(map(merged, argument, dim))
        if not isinstance(argument, Tensor):
            return argument
        if dim is None:
            return argument.expand(info.batch_size, *argument.shape).flatten(0, 1)
        return argument.movedim(dim, 0).flatten(0, 1)

    outputs = function(*map(merged, arguments, in_dims))
    return tuple(out.unflatten(0, (info.batch_size, -1)) for out in outputs), (0,) * len(outputs)


# In plain PyTorch.


def _halves(values: Tensor) -> tuple[Tensor, Tensor]:
    high = values.bfloat16()
    return high, (values - high.float()).bfloat16()


def _by_tap(weight: Tensor) -> Tensor:
    """From [task, filter, channel, row, column] to [task, tap · channel, filter]."""
    return weight.permute(0, 3, 4, 2, 1).flatten(1, 3).contiguous()


def _pixels(high: Tensor, low: Tensor) -> Tensor:
    """From the kernels' [task, batch, row, column, channel] to [batch, task · channel, row, …]."""
    return (high.float() + low.float()).permute(1, 0, 4, 2, 3).flatten(1, 2)


def _filters(high: Tensor, low: Tensor, of: ConvolutionSizes) -> Tensor:
    """From the kernels' [task, tap · channel, filter] to [task · filter, channel, row, column]."""
    taps = (of.kernel_height, of.kernel_width, of.channels)
    return (high.float() + low.float()).unflatten(1, taps).permute(0, 4, 3, 1, 2).flatten(0, 1)


def _convolve(images: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], pool: bool) -> Any:
    of, tasks = ConvolutionSizes(*sizes), len(weight)
    xh, xl = _halves(images.permute(0, 1, 3, 4, 2).contiguous())
    wh, wl = _halves(_by_tap(weight))
    found = functional.conv2d(
        _pixels(xh, xl), _filters(wh, wl, of), bias.float().flatten(), groups=tasks
    )
    found = found.unflatten(1, (tasks, -1)).permute(1, 0, 3, 4, 2).contiguous()
    which = found.new_zeros(0, dtype=torch.int8).expand(tasks, 0)
    if pool:
        four = found.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))  # [t, b, ph, 2, pw, 2, f]
        four = four.transpose(3, 4).flatten(4, 5)
        best, place = four.max(dim=4)
        which = torch.where(best > 0, place, 4).to(torch.int8)
        found = best.relu()
    return found.permute(0, 1, 4, 2, 3), which, xh, xl, wh, wl


def _slopes(
    slope: Tensor, saved: list[Tensor], sizes: list[int], pool: bool, for_images: bool
) -> tuple[Tensor, Tensor, Tensor]:
    which, xh, xl, wh, wl = saved
    of, tasks = ConvolutionSizes(*sizes), len(wh)
    slope = slope.permute(0, 1, 3, 4, 2)
    if pool:
        places = torch.arange(4, device=which.device).reshape(4, 1)
        four = torch.where(which.unsqueeze(4) == places, slope.unsqueeze(4), 0.0)
        # [t, b, ph, pw, 4, f] back to rows and columns
        slope = four.unflatten(4, (2, 2)).transpose(3, 4).flatten(4, 5).flatten(2, 3)
    high, low = _halves(slope.contiguous())
    pixels, filters, slopes = _pixels(xh, xl), _filters(wh, wl, of), _pixels(high, low)
    to_images = slope.new_empty(tasks, 0)
    if for_images:
        to_images = grad.conv2d_input(pixels.shape, filters, slopes, groups=tasks)
        to_images = to_images.unflatten(1, (tasks, -1)).transpose(0, 1)
    to_weight = grad.conv2d_weight(pixels, filters.shape, slopes, groups=tasks)
    return to_images, to_weight.unflatten(0, (tasks, -1)), slope.sum(dim=(1, 2, 3))


# On a GPU.


def _blocks(length: int, most: int) -> int:
    """A power of two of at least sixteen, as tensor cores want, and at most so many."""
    return min(max(16, 1 << (length - 1).bit_length()), most)


def _convolve_fast(
    images: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], pool: bool
) -> Any:
    fast, of, tasks = gpu.load(), ConvolutionSizes(*sizes), len(weight)
    taps = of.kernel_height * of.kernel_width
    x = images.permute(0, 1, 3, 4, 2).contiguous()
    xh, xl = (torch.empty_like(x, dtype=torch.bfloat16) for _ in range(2))
    fast.split_numbers[(-(-x.numel() // 1024),)](x, xh, xl, x.numel(), 1024)
    w = weight if weight[0].is_contiguous() else weight.contiguous()
    wh = torch.empty(
        tasks, taps * of.channels, of.filters, dtype=torch.bfloat16, device=weight.device
    )
    wl = torch.empty_like(wh)
    grid = (-(-wh.shape[1] // 64) * -(-of.filters // 64), tasks)
    fast.split_filters[grid](w, wh, wl, w.stride(0), taps, of.channels, of.filters, 64)
    (high, wide), shrink = of.output, 2 if pool else 1
    shape = (tasks, of.batch, high // shrink, wide // shrink, of.filters)
    out = x.new_empty(shape)
    which = x.new_empty(shape if pool else (tasks, 0), dtype=torch.int8)
    columns, bias = _blocks(of.filters, 64), bias.contiguous()
    if of.few:
        pixels, inner = 64, _blocks(taps * of.channels, FEW)
        grid = (-(-out[0].numel() // (of.filters * pixels)) * -(-of.filters // columns), tasks)
        fast.convolve_few[grid](
            x, w, bias, out, which, w.stride(0), *of, pool, pixels, columns, inner, num_warps=4
        )
        return out.permute(0, 1, 4, 2, 3), which, xh, xl, wh, wl
    pixels = 128
    grid = (-(-of.batch * high * wide // pixels) * -(-of.filters // columns), tasks)
    fast.convolve[grid](
        xh, xl, wh, wl, bias, out, which, *of, pool, pixels, columns, 32,
        num_warps=8, num_stages=3,
    )  # fmt: skip
    return out.permute(0, 1, 4, 2, 3), which, xh, xl, wh, wl


def _slopes_fast(
    slope: Tensor, saved: list[Tensor], sizes: list[int], pool: bool, for_images: bool
) -> tuple[Tensor, Tensor, Tensor]:
    which, xh, xl, wh, wl = saved
    fast, of, tasks = gpu.load(), ConvolutionSizes(*sizes), len(wh)
    slope = slope.permute(0, 1, 3, 4, 2).contiguous()
    gh, gl, sums = _spread(slope, which, of, pool)
    to_images = _to_images(gh, gl, wh, wl, of) if for_images else slope.new_empty(tasks, 0)
    length, columns = wh.shape[1], _blocks(of.filters, 64)
    rows, total = _blocks(length, 128), gh[0].numel() // of.filters
    blocks = -(-length // rows) * -(-of.filters // columns)
    # Where a task has one block, several sums of a few hundred pixels keep a GPU busy.
    parts, step, how = 1, 32, {"num_warps": 4, "num_stages": 3}
    if blocks == 1:
        parts, step = min(-(-total // 256), 48), 64
        how = {"num_warps": max(2, rows * columns // 2048), "num_stages": 2}
    each = -(-total // (parts * step)) * step
    to_weight = slope.new_empty(tasks, parts, length, of.filters)
    fast.slopes_of_filters[(blocks, tasks, parts)](
        xh, xl, gh, gl, to_weight, *of, parts, each, rows, columns, step, **how
    )  # fmt: skip
    to_weight = to_weight[:, 0] if parts == 1 else to_weight.sum(dim=1)
    shape = (of.kernel_height, of.kernel_width, of.channels)
    return to_images, to_weight.unflatten(1, shape).permute(0, 4, 3, 1, 2), sums.sum(dim=1)


def _spread(
    slope: Tensor, which: Tensor, of: ConvolutionSizes, pool: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes at the pixels of the convolution, as halves, and sums of them."""
    (high, wide), tasks, columns = of.output, len(slope), _blocks(of.filters, 1 << 16)
    gh = slope.new_empty(tasks, of.batch, high, wide, of.filters, dtype=torch.bfloat16)
    gl, rows = torch.empty_like(gh), max(1, 2048 // columns)
    sums = slope.new_empty(tasks, -(-slope[0].numel() // (of.filters * rows)), of.filters)
    gpu.load().spread_slopes[(sums.shape[1], tasks)](
        slope, which, gh, gl, sums, of.batch, high, wide, of.filters, pool, rows, columns
    )
    return gh, gl, sums


def _to_images(gh: Tensor, gl: Tensor, wh: Tensor, wl: Tensor, of: ConvolutionSizes) -> Tensor:
    tasks, channels, pixels = len(gh), _blocks(of.channels, 64), 64 if of.width <= 64 else 128
    shape = (tasks, of.batch, of.height, of.width, of.channels)
    found = torch.empty(shape, device=gh.device)
    groups, inner = -(-of.batch // (pixels // of.width)), 64 if of.filters % 64 == 0 else 32
    grid = (groups * of.height * -(-of.channels // channels), tasks)
    gpu.load().slopes_of_pixels[grid](
        gh, gl, wh, wl, found, *of, pixels, channels, inner, num_warps=4, num_stages=3
    )
    return found.permute(0, 1, 4, 2, 3)


torch.library.define(
    "tacit::fused_convolution",
    "(Tensor images, Tensor weight, Tensor bias, int[] sizes, bool pool)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    "tacit::fused_slopes",
    "(Tensor slope, Tensor[] saved, int[] sizes, bool pool, bool for_images)"
    " -> (Tensor, Tensor, Tensor)",
)
for name, plain, fast in (
    ("fused_convolution", _convolve, _convolve_fast),
    ("fused_slopes", _slopes, _slopes_fast),
):
    torch.library.impl(f"tacit::{name}", "CPU", plain)
    torch.library.impl(f"tacit::{name}", "CUDA", fast)
    torch.library.register_vmap(
        f"tacit::{name}",
        lambda *given, name=name: with_more_tasks(getattr(torch.ops.tacit, name), *given),
    )
