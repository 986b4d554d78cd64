"""Convolutions by matrix products agree with PyTorch's own, values and gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from tacit.local import convolution
from tacit.local.convolution import conv2d, task_layers
from tacit.models.cnn import femnist_cnn

CASES = {
    "plain": ((2, 12, 7, 6), (3, 12, 5, 5), {}),
    "thin": ((2, 1, 7, 6), (3, 1, 3, 3), {}),
    "thin all": ((2, 2, 9, 8), (3, 2, 3, 2), {"stride": (2, 1), "padding": 1, "dilation": (1, 2)}),
    "stride": ((2, 16, 8, 9), (3, 16, 3, 3), {"stride": 2}),
    "stride over kernel": ((2, 24, 11, 9), (3, 24, 2, 2), {"stride": (3, 4)}),
    "padding": ((2, 16, 5, 6), (3, 16, 3, 3), {"padding": 1}),
    "padding pair": ((2, 16, 5, 6), (3, 16, 3, 3), {"padding": (2, 1)}),
    "padding of one": ((2, 16, 5, 6), (3, 16, 3, 3), {"padding": (1,), "stride": [2]}),
    "same": ((2, 16, 5, 6), (3, 16, 3, 3), {"padding": "same"}),
    "same, dilated": ((2, 16, 5, 6), (3, 16, 3, 5), {"padding": "same", "dilation": (2, 1)}),
    "valid": ((2, 16, 5, 6), (3, 16, 3, 3), {"padding": "valid"}),
    "dilation": ((2, 16, 9, 9), (3, 16, 3, 3), {"dilation": 2}),
    "all at once": (
        (2, 24, 11, 10),
        (3, 24, 3, 2),
        {"stride": (2, 3), "padding": (2, 1), "dilation": (3, 2)},
    ),
    "row kernel": ((2, 16, 4, 8), (3, 16, 1, 5), {"padding": (0, 2)}),
    "column kernel": ((2, 50, 8, 4), (3, 50, 5, 1), {"stride": (2, 1)}),
    "one by one": ((2, 5, 4, 3), (3, 5, 1, 1), {}),
    "one by one, all": ((2, 5, 4, 3), (3, 5, 1, 1), {"stride": 2, "padding": 1}),
    "whole image": ((2, 12, 5, 5), (3, 12, 5, 5), {}),
    "one image": ((1, 16, 6, 6), (1, 16, 3, 3), {}),
}


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def all_gradients(convolve, arguments: tuple[Tensor, ...], options: dict) -> tuple[Tensor, ...]:
    """Result, then the gradient for each argument of an uneven function of it."""

    def score(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        result = convolve(*arguments, **options)
        return (result.sin() * result).sum(), result

    which = tuple(range(len(arguments)))
    gradients, result = grad(score, argnums=which, has_aux=True)(*arguments)
    return result, *gradients


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("case", CASES)
def test_agrees_alone_and_mapped(case: str, bias: bool) -> None:
    image_shape, weight_shape, options = CASES[case]
    tasks = 3
    arguments = (numbers(tasks, *image_shape), numbers(tasks, *weight_shape, seed=1))
    if bias:
        arguments = (*arguments, numbers(tasks, weight_shape[0], seed=2))
    expected = [
        all_gradients(torch.conv2d, tuple(part[task] for part in arguments), options)
        for task in range(tasks)
    ]
    expected = [torch.stack(parts) for parts in zip(*expected)]
    alone = all_gradients(conv2d, tuple(part[0] for part in arguments), options)
    mapped = vmap(lambda *parts: all_gradients(conv2d, parts, options))(*arguments)
    for want, one, many in zip(expected, alone, mapped):
        torch.testing.assert_close(one, want[0])
        torch.testing.assert_close(many, want)
    without_gradients = vmap(lambda *parts: conv2d(*parts, **options))(*arguments)
    torch.testing.assert_close(without_gradients, expected[0])


@pytest.mark.parametrize("case", CASES)
def test_agrees_when_only_weights_are_trained(case: str) -> None:
    image_shape, weight_shape, options = CASES[case]
    images, weights = numbers(3, *image_shape), numbers(3, *weight_shape, seed=1)

    def slope(convolve):
        def score(weight: Tensor, image: Tensor) -> Tensor:
            return convolve(image, weight, **options).square().sum()

        return grad(score)

    expected = torch.stack(list(map(slope(torch.conv2d), weights, images)))
    torch.testing.assert_close(vmap(slope(conv2d))(weights, images), expected)


@pytest.mark.parametrize("case", ["plain", "thin all", "all at once", "one by one, all"])
def test_gradcheck(case: str) -> None:
    image_shape, (filters, *_), options = CASES[case]
    arguments = [numbers(*image_shape), numbers(*CASES[case][1], seed=1), numbers(filters, seed=2)]
    for argument in arguments:
        argument.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *given: conv2d(*given, **options), arguments, fast_mode=True
    )


def test_float32_is_as_close_as_float32_gets() -> None:
    images, weight = numbers(4, 32, 12, 12), numbers(64, 32, 5, 5, seed=1)
    exact = torch.conv2d(images, weight)
    ours = conv2d(images.float(), weight.float())
    stock = torch.conv2d(images.float(), weight.float())
    assert ours.dtype == torch.float32
    assert (ours - exact).abs().max() < 2 * (stock - exact).abs().max() + 1e-4


@pytest.mark.parametrize("shared", ["images", "weight"])
def test_one_side_shared_between_tasks(shared: str) -> None:
    images, weight = numbers(3, 2, 16, 6, 6), numbers(3, 4, 16, 3, 3, seed=1)
    dims = (None, 0) if shared == "images" else (0, None)
    given = (images[0], weight) if shared == "images" else (images, weight[0])

    def one(image: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return all_gradients(conv2d, (image, weight), {})

    def stock(image: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return all_gradients(torch.conv2d, (image, weight), {})

    torch.testing.assert_close(vmap(one, dims)(*given), vmap(stock, dims)(*given))


def test_nested_maps_over_inner_axes() -> None:
    images, weight = numbers(2, 16, 3, 6, 6, 2), numbers(3, 4, 16, 3, 3, 2, seed=1)

    def run(convolve):
        inner = vmap(lambda i, w: all_gradients(convolve, (i, w), {}), in_dims=(2, 0))
        return vmap(inner, in_dims=(5, 5))(images, weight)

    torch.testing.assert_close(run(conv2d), run(torch.conv2d))


def test_second_derivatives_are_refused_not_wrong() -> None:
    images, weight = numbers(2, 16, 6, 6), numbers(3, 16, 3, 3, seed=1)
    weight.requires_grad_()
    (slope,) = torch.autograd.grad(conv2d(images, weight).square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize(
    ("image_shape", "weight_shape", "options"),
    [
        ((2, 4, 6, 6), (6, 2, 3, 3), {"groups": 2}),
        ((4, 6, 6), (6, 4, 3, 3), {}),
        ((0, 4, 6, 6), (6, 4, 3, 3), {}),
    ],
    ids=["groups", "no batch", "empty batch"],
)
def test_falls_through(image_shape, weight_shape, options, monkeypatch) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("not a case for matrix products")

    monkeypatch.setattr(convolution._Convolution, "apply", unexpected)
    images, weight = numbers(*image_shape).requires_grad_(), numbers(*weight_shape, seed=1)
    expected = torch.conv2d(images, weight, **options)
    torch.testing.assert_close(conv2d(images, weight, **options), expected)


@pytest.mark.parametrize(
    ("images", "weight", "options"),
    [
        (torch.zeros(2, 4, 6, 6), torch.zeros(6, 3, 3, 3), {}),
        (torch.zeros(2, 4, 2, 2), torch.zeros(6, 4, 3, 3), {}),
        (torch.zeros(2, 4, 6, 6), torch.zeros(6, 4, 3, 3, dtype=torch.float64), {}),
        (torch.zeros(2, 4, 6, 6), torch.zeros(6, 4, 3, 3), {"padding": "same", "stride": 2}),
        (torch.zeros(2, 4, 6, 6), torch.zeros(6, 4, 3, 3), {"stride": 0}),
        (torch.zeros(2, 4, 6, 6), torch.zeros(6, 4, 3, 3), {"padding": -1}),
        (torch.zeros(2, 4, 6, 6), torch.zeros(6, 4, 3, 3), {"dilation": (1, 2, 1)}),
        (torch.zeros(2, 4, 6, 6), torch.zeros(6, 4, 3, 3), {"padding": "most"}),
        (torch.zeros(2, 4, 6, 6), torch.zeros(6, 4, 3, 3), {"bias": torch.zeros(5)}),
    ],
)
def test_errors_are_those_of_torch(images: Tensor, weight: Tensor, options: dict) -> None:
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        torch.conv2d(images, weight, **options)
    with pytest.raises(theirs.type) as ours:
        conv2d(images, weight, **options)
    assert str(ours.value) == str(theirs.value)


def test_context_reaches_modules_and_functions_and_ends(monkeypatch) -> None:
    calls = []
    real = convolution.conv2d
    monkeypatch.setattr(convolution, "conv2d", lambda *a, **k: calls.append(1) or real(*a, **k))
    images, layer = torch.ones(1, 2, 5, 5), nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect")
    expected = layer(images)
    with task_layers():  # one task alone: PyTorch's own is fastest
        layer(images)
    assert not calls
    monkeypatch.setattr(convolution, "mapped", lambda: True)
    with task_layers():
        torch.testing.assert_close(layer(images), expected)
        functional.conv2d(images, layer.weight)
        torch.conv2d(input=images, weight=layer.weight)
    assert len(calls) == 3
    layer(images)
    assert len(calls) == 3


def test_whole_network_trains_like_a_loop_over_tasks() -> None:
    tasks, steps, batch, rate = 3, 2, 4, 0.05
    network = femnist_cnn().double()
    names, start = zip(*((name, p.detach()) for name, p in network.named_parameters()))
    sizes = [part.numel() for part in start]
    flat = torch.cat([part.flatten() for part in start])
    images = numbers(tasks, steps, batch, 1, 28, 28)
    labels = torch.arange(tasks * steps * batch).reshape(tasks, steps, batch) % 62

    def loss(flat: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        parts = (v.view(p.shape) for v, p in zip(flat.split(sizes), start))
        with task_layers():
            output = functional_call(network, dict(zip(names, parts)), (images,))
        return functional.cross_entropy(output, labels)

    def train(images: Tensor, labels: Tensor) -> Tensor:
        current = flat
        for step in range(steps):
            current = current - rate * grad(loss)(current, images[step], labels[step])
        return current

    def plain(images: Tensor, labels: Tensor) -> Tensor:
        own = copy.deepcopy(network)
        for step in range(steps):
            own.zero_grad()
            functional.cross_entropy(own(images[step]), labels[step]).backward()
            with torch.no_grad():
                for parameter in own.parameters():
                    assert parameter.grad is not None
                    parameter -= rate * parameter.grad
        return torch.cat([parameter.detach().flatten() for parameter in own.parameters()])

    expected = torch.stack(list(map(plain, images, labels)))
    torch.testing.assert_close(vmap(train)(images, labels), expected)
    assert not torch.allclose(expected[0], flat)


def test_cnn_sizes() -> None:
    assert femnist_cnn()(torch.zeros(2, 1, 28, 28)).shape == (2, 62)
    assert femnist_cnn()[-1].in_features == 1024
    assert femnist_cnn(3, 32, 10)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_agrees_on_a_gpu() -> None:
    images, weight = numbers(3, 2, 16, 6, 6).cuda(), numbers(3, 4, 16, 3, 3, seed=1).cuda()
    ours = vmap(lambda i, w: all_gradients(conv2d, (i, w), {}))(images, weight)
    stock = vmap(lambda i, w: all_gradients(torch.conv2d, (i, w), {}))(images, weight)
    torch.testing.assert_close(ours, stock)
