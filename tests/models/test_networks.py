"""LeNet, MobileNetV2 and SegNet: published counts, and training of clients at once."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.errors import TacitError
from tacit.local.flat import FlatModel
from tacit.models.cnn import UNITS, lenet_body
from tacit.models.mobilenet import CHANNELS, mobilenet_body
from tacit.models.multihead import MultiHead
from tacit.models.segnet import SegNet, pixel_head, unpool
from tests.models.plain import assert_equal_to_plain, batches, starts, together


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def two_heads(body: nn.Module, make) -> MultiHead:
    return MultiHead(body, {"a": make(3), "b": make(3)})


def lenet() -> MultiHead:
    return two_heads(lenet_body(), lambda outputs: nn.Linear(UNITS, outputs))


def mobilenet() -> MultiHead:
    return two_heads(mobilenet_body(), lambda outputs: nn.Linear(CHANNELS, outputs))


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def labels(clients: int, rows: int, steps: int = 2) -> torch.Tensor:
    """Yes, no or missing: the first client holds only the first head."""
    y = torch.randint(0, 2, (clients, steps, rows, 6)).double()
    y[0, ..., 3:] = torch.nan
    return y


def test_counts_are_the_published_ones():
    assert count(lenet_body(3, 32)) == 1_628_210
    assert count(nn.Linear(UNITS, 5)) == 2_505
    assert count(mobilenet_body(3, 32)) == count(mobilenet_body(3, 224)) == 2_223_872
    assert count(nn.Linear(CHANNELS, 5)) == 6_405
    assert count(SegNet(3)) == 24_943_296
    assert count(pixel_head(3)) == 37_123


def test_shapes():
    with torch.no_grad():
        assert lenet_body(1, 28).eval()(torch.zeros(2, 1, 28, 28)).shape == (2, UNITS)
        shrunk = {32: (2, 2), 64: (2, 2), 96: (3, 3)}
        for size, pixels in shrunk.items():
            body = mobilenet_body(3, size).eval()
            assert body[:-1](torch.zeros(1, 3, size, size)).shape == (1, CHANNELS, *pixels)
            assert body(torch.zeros(1, 3, size, size)).shape == (1, CHANNELS)
        segnet = MultiHead(SegNet(3), {"a": pixel_head(3), "b": pixel_head(2)}).eval()
        assert segnet(torch.zeros(1, 3, 32, 64)).shape == (1, 5, 32, 64)


def test_segnet_refuses_sides_it_cannot_halve():
    with pytest.raises(TacitError, match="40 x 32: crop or scale them to sides divisible by 32"):
        SegNet(3)(torch.zeros(1, 3, 40, 32))


def test_unpooling_is_that_of_pytorch():
    x = torch.randn(2, 5, 6, 8).relu()  # with ties at zero
    values, places = functional.max_pool2d(x, 2, return_indices=True)
    other = torch.randn_like(values)
    assert torch.equal(unpool(other, places), functional.max_unpool2d(other, places, 2))
    assert torch.equal(functional.max_pool2d(unpool(values, places), 2), values)


def test_no_layer_of_the_networks_draws_random_numbers():
    for module in (lenet(), mobilenet(), SegNet()):
        module.train()
        x = torch.randn(2, 3, 32, 32)
        with torch.no_grad():
            assert torch.equal(module(x), module(x))


def test_lenet_at_once_is_lenet_one_after_another():
    assert_equal_to_plain(lenet(), "multilabel", batches((3, 32, 32), labels(3, 4)))


def test_mobilenet_at_once_is_mobilenet_one_after_another():
    assert_equal_to_plain(mobilenet(), "multilabel", batches((3, 32, 32), labels(2, 3)))


def test_segnet_at_once_is_segnet_one_after_another():
    y = torch.randint(-1, 3, (3, 2, 2, 2, 32, 32)).to(torch.int8)
    y[0, :, :, 1] = -1
    # A quarter of its width: what is to be seen is the order of its layers, not their size.
    module = two_heads(SegNet(3, width=16), partial(pixel_head, width=16))
    assert_equal_to_plain(module, "segmentation", batches((3, 32, 32), y))


@pytest.mark.parametrize("make", [lenet, mobilenet])
def test_statistics_and_parameters_of_a_client_are_its_own(make):
    flat = FlatModel(make(), "multilabel")
    given = batches((3, 32, 32), labels(2, 3, steps=1))
    w = starts(flat, 2)
    changed = given._replace(x=given.x.clone())
    changed.x[1].sin_()
    before, after = together(flat, w, given), together(flat, w, changed)
    for ours, theirs in zip(before, after, strict=True):
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-12, atol=1e-12)
        assert not torch.allclose(ours[1], theirs[1])


def test_the_layers_of_a_head_that_a_client_does_not_hold_stay_as_they_were():
    flat = FlatModel(lenet(), "multilabel")
    given, w = batches((3, 32, 32), labels(2, 3)), starts(flat, 2)
    begin = dict(flat.layers)["heads.1"]
    trained, _ = together(flat, w, given)
    assert torch.equal(trained[0, begin:], w[0, begin:])
    assert not torch.isclose(trained[1, begin:], w[1, begin:]).any()


def test_traced_lenet_is_lenet():
    assert_equal_to_plain(
        lenet(), "multilabel", batches((3, 32, 32), labels(2, 2, steps=1)), trace=True
    )
