"""Convolutions that stay fast when every task has its own weights.

Mapped over tasks, PyTorch turns a convolution into one grouped convolution, which has no fast
kernel. Here it becomes products of batched matrices, one per kernel row, with channels innermost
in memory for what follows.

Measured by `benchmarks/local_training.py` (see `benchmarks/README.md`) on the PMTL paper's FEMNIST
network: 1.5 times a plain loop over tasks on two cores and 46 times on a GPU, where the stock
convolution under vmap reaches 1.0 and 24 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from tacit.local import fused
from tacit.local.dropout import dropped, is_dropout
from tacit.local.fused import with_more_tasks
from tacit.local.normalisation import BatchNorm

Pair = tuple[int, int]

# With fewer values than this in a kernel row, one product per kernel row is too thin to pay.
_THIN_ROW = 48

# From this many channels on, the grouped convolution of a CPU has a fast kernel after all (1.3 to
# 2.7 times as fast as ours for 64 to 512 channels, on one and on two cores): ours would mostly
# rearrange weights.
_WIDE = 64

_RELUS = {functional.relu, torch.relu, Tensor.relu}


class _Geometry(NamedTuple):
    """The sizes of a convolution over padded images; flat, so that an operator can take it."""

    batch: int
    channels: int
    height: int
    width: int
    kernel_height: int
    kernel_width: int
    stride_down: int
    stride_across: int
    dilation_down: int
    dilation_across: int

    @property
    def output(self) -> Pair:
        span_down, span_across = self.span
        return (
            (self.height - span_down) // self.stride_down + 1,
            (self.width - span_across) // self.stride_across + 1,
        )

    @property
    def span(self) -> Pair:
        """How many pixels the dilated kernel covers."""
        return (
            (self.kernel_height - 1) * self.dilation_down + 1,
            (self.kernel_width - 1) * self.dilation_across + 1,
        )


def _strips(images: Tensor, of: _Geometry) -> Tensor:
    """Unfolds [task, batch, c, h, w] along the width: [task, phase, row, batch, column, k * c].

    Image rows are sorted by phase, their number modulo the stride, so that the rows met by any
    one kernel row lie next to each other: they form a matrix without a copy, and the unfolded
    images are smaller than those of a full im2col by the height of the kernel.
    """
    windows = images.permute(0, 3, 1, 4, 2).unfold(3, of.span[1], of.stride_across)
    windows = windows[..., :: of.dilation_across].mT
    rows = -(-of.height // of.stride_down)
    strips = images.new_empty(len(images), of.stride_down, rows, *windows.shape[2:])
    for phase in range(of.stride_down):
        part = windows[:, phase :: of.stride_down]
        strips[:, phase, : part.shape[1]] = part
    return strips.flatten(-2)


def _summed_strips(strips: Tensor, of: _Geometry) -> Tensor:
    """The transpose of `_strips`: every copy of a pixel is added back into that pixel."""
    images = strips.new_zeros(len(strips), of.batch, of.height, of.width, of.channels)
    copies = strips.unflatten(-1, (of.kernel_width, of.channels))
    for phase in range(of.stride_down):
        rows = images.transpose(1, 2)[:, phase :: of.stride_down]
        reach = (of.output[1] - 1) * of.stride_across + 1
        for tap in range(of.kernel_width):
            start = tap * of.dilation_across
            met = rows[:, :, :, start : start + reach : of.stride_across]
            met += copies[:, phase, : rows.shape[1], :, :, tap]
    return images.permute(0, 1, 4, 2, 3)


def _by_kernel_row(strips: Tensor, of: _Geometry) -> list[Tensor]:
    """For each kernel row, a view of the strips it meets: [task, row * batch * column, k * c]."""
    places = (divmod(row * of.dilation_down, of.stride_down) for row in range(of.kernel_height))
    rows = of.output[0]
    return [strips[:, phase, start : start + rows].flatten(1, 3) for start, phase in places]


def _filters(weight: Tensor) -> tuple[Tensor, ...]:
    """For each kernel row, the filters as a matrix: [task, k * c, filter]."""
    return weight.permute(0, 3, 4, 2, 1).flatten(2, 3).unbind(1)


def _gradients(
    gradient: Tensor, weight: Tensor, strips: Tensor, sizes: list[int], for_images: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """For images (empty unless asked for), weight and bias; the task axis leads everywhere."""
    of = _Geometry(*sizes)
    pixels = gradient.permute(0, 3, 1, 4, 2).flatten(1, 3)
    to_weight = torch.stack([row.mT @ pixels for row in _by_kernel_row(strips, of)], dim=1)
    to_weight = to_weight.unflatten(2, (of.kernel_width, of.channels)).permute(0, 4, 3, 1, 2)
    to_images = gradient.new_empty(len(gradient), 0)
    if for_images:
        to_strips = torch.empty_like(strips)
        # The first kernel row overwrites what it meets; only the rest must begin at zero.
        to_strips[:, 1:].zero_()
        to_strips[:, 0, of.output[0] :].zero_()
        rows = zip(_by_kernel_row(to_strips, of), _filters(weight), strict=True)
        for number, (row, filters) in enumerate(rows):
            row.baddbmm_(pixels, filters.mT, beta=min(number, 1))
        to_images = _summed_strips(to_strips, of)
    return to_images, to_weight, pixels.sum(dim=1)


# An operator rather than a second autograd.Function: under vmap(grad(...)) it costs far less
# to call, which is what limits small chunks of tasks and any accelerator.
torch.library.define(
    "tacit::convolution_gradients",
    "(Tensor gradient, Tensor weight, Tensor strips, int[] sizes, bool for_images)"
    " -> (Tensor, Tensor, Tensor)",
)
torch.library.impl("tacit::convolution_gradients", "CompositeExplicitAutograd", _gradients)
torch.library.register_vmap(
    "tacit::convolution_gradients",
    lambda *given: with_more_tasks(torch.ops.tacit.convolution_gradients, *given),
)


class _Convolution(torch.autograd.Function):
    """Images, filters and bias, all led by a task axis, to images and the strips they came from.

    The result is [task, batch, filter, row, column] with filters innermost in memory, the layout
    in which activations and pooling are fastest.
    """

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor | None, of: _Geometry) -> Any:
        strips = _strips(images, of)
        rows, filters = _by_kernel_row(strips, of), _filters(weight)
        if bias is None:
            pixels = rows[0] @ filters[0]
        else:
            pixels = torch.baddbmm(bias.unsqueeze(1), rows[0], filters[0])
        for row, matrix in zip(rows[1:], filters[1:], strict=True):
            pixels.baddbmm_(row, matrix)
        high, wide = of.output
        pixels = pixels.unflatten(1, (high, of.batch, wide)).transpose(1, 2).contiguous()
        return pixels.permute(0, 1, 4, 2, 3), strips

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, weight, bias, ctx.sizes = inputs
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(weight, output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> Any:
        for_images = ctx.needs_input_grad[0]
        to_images, to_weight, to_bias = torch.ops.tacit.convolution_gradients(
            gradient, *ctx.saved_tensors, list(ctx.sizes), for_images
        )
        return to_images if for_images else None, to_weight, to_bias if ctx.has_bias else None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return with_more_tasks(_Convolution.apply, info, in_dims, *arguments)


def _pair(value: int | Sequence[int]) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def _pads(padding: Any, span: Pair) -> tuple[int, int, int, int]:
    """Zeros at the left, right, top and bottom."""
    if padding == "same":
        down, across = span[0] - 1, span[1] - 1
        return across // 2, across - across // 2, down // 2, down - down // 2
    down, across = (0, 0) if padding == "valid" else _pair(padding)
    return across, across, down, down


def _is_usual(
    input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> bool:
    """Whether matrix products can do it; PyTorch does the rest, which includes every refusal."""
    if input.ndim != 4 or weight.ndim != 4 or input.shape[1] != weight.shape[1] or groups != 1:
        return False
    if not input.numel() or not input.is_floating_point() or input.dtype != weight.dtype:
        return False
    if bias is not None and (bias.shape != weight.shape[:1] or bias.dtype != weight.dtype):
        return False
    if isinstance(padding, str):
        return padding == "valid" or (padding == "same" and _pair(stride) == (1, 1))
    lengths = {len(sizes) for sizes in (stride, padding, dilation) if isinstance(sizes, Sequence)}
    return lengths <= {1, 2} and min(*_pair(stride), *_pair(dilation)) > 0 <= min(_pair(padding))


def _padded(input: Tensor, padding: Any, span: Pair) -> Tensor:
    pixels, pads = input.permute(0, 2, 3, 1), _pads(padding, span)
    return (functional.pad(pixels, (0, 0, *pads)) if any(pads) else pixels).permute(0, 3, 1, 2)


def _fused(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    pool: bool = False,
) -> Tensor | None:
    """The convolution, with `pool` max_pool2d(relu(…), 2) of it, where one kernel can do it."""
    if not input.is_cuda or not _is_usual(input, weight, bias, stride, padding, dilation, groups):
        return None
    kernel = (weight.shape[2], weight.shape[3])
    if (*_pair(stride), *_pair(dilation)) != (1, 1, 1, 1) or kernel == (1, 1):
        return None
    images = _padded(input, padding, kernel)
    of = fused.ConvolutionSizes._make((*images.shape, *kernel, len(weight)))
    if min(of.output) < 1 or (pool and any(side % 2 for side in of.output)):
        return None
    return (
        fused.convolution(images, weight, bias, of, pool=pool) if fused.fits(images, of) else None
    )


def _halves_sides(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> bool:
    """Whether pooling with these arguments is that of windows of two by two, side by side."""
    plain = _pair(padding) == (0, 0) and _pair(dilation) == (1, 1) and not return_indices
    return plain and _pair(kernel_size) == _pair(stride or kernel_size) == (2, 2)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.conv2d` as matrix products where they can do it, else `torch.conv2d` itself."""
    found = _fused(input, weight, bias, stride, padding, dilation, groups)
    if found is not None:
        return found
    if not _is_usual(input, weight, bias, stride, padding, dilation, groups):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    (down, across), spacing, kernel = _pair(stride), _pair(dilation), tuple(weight.shape[2:])
    if input.shape[1] >= _WIDE and kernel != (1, 1) and input.device.type == "cpu":
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    span = ((kernel[0] - 1) * spacing[0] + 1, (kernel[1] - 1) * spacing[1] + 1)
    images = _padded(input, padding, span)
    pixels = images.permute(0, 2, 3, 1)
    if images.shape[2] < span[0] or images.shape[3] < span[1]:
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    if kernel == (1, 1):
        pixels = functional.linear(pixels[:, ::down, ::across], weight.flatten(1), bias)
        return pixels.permute(0, 3, 1, 2)
    of = _Geometry._make((*images.shape, *kernel, down, across, *spacing))
    if kernel[1] * of.channels < _THIN_ROW and not input.requires_grad:
        # A first layer, as a rule: one product, and autograd never has to undo the unfolding.
        windows = images.transpose(0, 1).unfold(2, span[0], down).unfold(3, span[1], across)
        windows = windows[..., :: spacing[0], :: spacing[1]].permute(0, 4, 5, 1, 2, 3)
        left, right = windows.flatten(3).flatten(0, 2), weight.flatten(1)
        if bias is not None:  # as one more input that is always one: no pass over all pixels
            left = torch.cat([left, torch.ones_like(left[:1])])
            right = torch.cat([right, bias.unsqueeze(1)], dim=1)
        pixels = left.mT @ right.mT
        return pixels.unflatten(0, (of.batch, *of.output)).permute(0, 3, 1, 2)
    led = [None if part is None else part.unsqueeze(0) for part in (images, weight, bias)]
    return _Convolution.apply(*led, of)[0].squeeze(0)


def mapped() -> bool:
    """Whether the code runs for many tasks at once; for a single one PyTorch's own are fastest."""
    functorch = torch._C._functorch  # type: ignore[attr-defined]
    stack = functorch.get_interpreter_stack() or []
    return any(layer.key() == functorch.TransformType.Vmap for layer in stack)


class task_layers(TorchFunctionMode):
    """Layers as they run for a task: dropout with its own masks, every `batch_norm` that of
    `tacit.local.normalisation`, in which only rows with a weight count, and, where many tasks are
    mapped, every `conv2d` (also that of a `torch.nn.Conv2d`) the one above, and attention the plain
    one.

    And `max_pool2d(relu(x))` becomes `relu(max_pool2d(x))`: the same numbers and gradients (the
    largest of a window decides either way), with the activation on a fraction of the pixels. On a
    GPU the convolution before it is part of the same kernel (`local.fused`). What came before is
    computed all the same; in a traced function nothing uses it and it is left out.
    """

    def __init__(self, rows: Tensor | None = None) -> None:
        super().__init__()
        self._mapped, self._rows = mapped(), rows
        self._convolved: tuple[Any, Any, Any] = (None, None, None)
        self._activated: tuple[Any, Any] = (None, None)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        if is_dropout(func):
            return dropped(func, *args, **options)
        if func is functional.batch_norm:
            return BatchNorm(self._rows)(*args, **options)
        if not self._mapped:
            return func(*args, **options)
        if func is functional.scaled_dot_product_attention:
            with sdpa_kernel(SDPBackend.MATH):  # of all ways the one that can be mapped
                return func(*args, **options)
        if func is torch.conv2d:
            result = conv2d(*args, **options)
            self._convolved = (result, args, options)
            return result
        if (
            func is functional.max_pool2d
            and args
            and args[0] is self._activated[1]
            and not options.get("return_indices")
        ):
            convolved, given, named = self._convolved
            if self._activated[0] is convolved and _halves_sides(*args[1:], **options):
                found = _fused(*given, **named, pool=True)
                if found is not None:
                    return found
            return torch.relu(func(self._activated[0], *args[1:], **options))
        result = func(*args, **options)
        if func in _RELUS and len(args) == 1 and not options.get("inplace"):
            self._activated = (args[0], result)
        return result
