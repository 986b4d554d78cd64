"""Convolution, ReLU and pooling in one operator: as PyTorch has them, on a GPU to rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from tacit.local import fused
from tacit.local.fused import ConvolutionSizes

CASES = {
    "first layer": (ConvolutionSizes(3, 1, 12, 12, 5, 5, 8), True),
    "second layer": (ConvolutionSizes(3, 32, 12, 12, 5, 5, 40), True),
    "no pooling": (ConvolutionSizes(2, 17, 9, 10, 3, 2, 20), False),
    "many filters": (ConvolutionSizes(2, 24, 6, 6, 3, 3, 150), True),
    "many channels": (ConvolutionSizes(2, 130, 6, 5, 3, 3, 16), False),
    "one pixel": (ConvolutionSizes(1, 4, 3, 3, 3, 3, 2), False),
}
TASKS = 3
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))]  # fmt: skip


def drawn(of: ConvolutionSizes, device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    fan_in = of.channels * of.kernel_height * of.kernel_width
    images = torch.randn(TASKS, of.batch, *of[1:4], generator=generator)
    weight = torch.randn(TASKS, of.filters, of.channels, *of[4:6], generator=generator)
    bias = torch.randn(TASKS, of.filters, generator=generator)
    return [part.to(device) for part in (images, weight / fan_in**0.5, bias)]


def score(convolve, of: ConvolutionSizes, pool: bool):
    """An uneven function of the result, and the result."""

    def one(images: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        found = convolve(images, weight, bias, of, pool)
        return (found.sin() * found).sum(), found

    return vmap(grad(one, argnums=(0, 1, 2), has_aux=True))


def by_kernels(images, weight, bias, of, pool):
    return fused.convolution(images, weight, bias, of, pool=pool)


def by_pytorch(images, weight, bias, of, pool):
    found = functional.conv2d(images, weight, bias)
    return functional.max_pool2d(functional.relu(found), 2) if pool else found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_values_and_slopes_are_those_of_pytorch(case, device):
    of, pool = CASES[case]
    given = drawn(of, device)
    slopes, found = score(by_kernels, of, pool)(*given)
    exact = [part.double() for part in given]
    expected_slopes, expected = score(by_pytorch, of, pool)(*exact)
    for ours, theirs in zip((found, *slopes), (expected, *expected_slopes), strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).norm() / theirs.norm()) < 2e-5


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_not_finite_stays_so(device):
    of, pool = CASES["first layer"]
    images, weight, bias = drawn(of, device)
    weight[1, 2] = torch.nan
    found = vmap(lambda *given: by_kernels(*given, of, pool))(images, weight, bias)
    assert bool(found[1, :, 2].isnan().all())
    assert bool(found[[0, 2]].isfinite().all())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["first layer", "second layer"])
def test_a_task_has_the_same_bits_whoever_is_beside_it(case, device):
    of, pool = CASES[case]
    given = drawn(of, device)
    turned = [part[[2, 0, 1]].clone() for part in given]
    turned[0][0] *= 3  # task 2 is now first, and another
    (slopes, found), (other, moved) = (
        score(by_kernels, of, pool)(*rows) for rows in (given, turned)
    )
    for before, after in zip((found, *slopes), (moved, *other), strict=True):
        assert torch.equal(before[:2], after[1:])
