"""Batch normalisation when clients train at once: each keeps the statistics of its own rows."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import vmap

from tacit.local.flat import FlatModel
from tests.models.plain import assert_equal_to_plain, batches, starts, together


def network() -> nn.Sequential:
    """Normalised images, pooled, and normalised features; after a convolution of either kind."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(2, 6, kernel_size=3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 6, kernel_size=3, groups=6),
            nn.BatchNorm2d(6, momentum=0.3),
            nn.ReLU6(),
            nn.Flatten(),
            nn.Linear(6 * 2 * 2, 5),
            nn.BatchNorm1d(5, affine=False),
            nn.ReLU(),
            nn.Linear(5, 3),
        )


def rows(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (3, 2, 5), generator=generator)
    return batches((2, 8, 8), y, seed)


def test_training_at_once_is_training_one_after_another():
    module, given = network(), rows()
    assert_equal_to_plain(module, "multiclass", given)
    assert_equal_to_plain(module, "multiclass", given, trace=True)


def test_statistics_of_clients_do_not_mix():
    flat, given, other = FlatModel(network(), "multiclass"), rows(), rows(seed=9)
    w = starts(flat, 3)
    for side, changed in zip(given, other, strict=True):
        assert not torch.equal(side[1], changed[1])
    swapped = type(given)(*(side.clone() for side in given))
    for side, changed in zip(swapped, other, strict=True):
        side[1] = changed[1]
    first, second = together(flat, w, given), together(flat, w, swapped)
    for before, after in zip(first, second, strict=True):
        torch.testing.assert_close(before[[0, 2]], after[[0, 2]], rtol=1e-12, atol=1e-12)
        assert (before[1] - after[1]).abs().max() > 1e-3


def test_predictions_use_the_statistics_of_training_and_leave_them_alone():
    flat, given = FlatModel(network(), "multiclass"), rows()
    w, buffers = together(flat, starts(flat, 3), given)
    kept, x = buffers.clone(), given.x[:, 0]
    all_rows = vmap(flat.predict)(w, buffers, x)
    # A row's prediction depends on no other row of the batch.
    one_row = vmap(flat.predict)(w, buffers, x[:, :1])
    torch.testing.assert_close(all_rows[:, :1], one_row)
    assert torch.equal(buffers, kept)
    for client in range(3):
        own = flat.module(w[client], buffers[client])
        expected = own(x[client].float())
        torch.testing.assert_close(all_rows[client].float(), expected, rtol=1e-4, atol=1e-5)
    fresh = vmap(flat.predict)(w, flat.buffers.double().expand(3, -1), x)
    assert (fresh - all_rows).abs().max() > 0.01
