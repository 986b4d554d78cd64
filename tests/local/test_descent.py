"""A step of gradient descent in one operator: as PyTorch has it, whatever a gradient looks like."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from tacit.local.descent import LONG, descend

TASKS = 3
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))]  # fmt: skip


def parts(device: str) -> list[Tensor]:
    """Gradients of the kinds that layers have, in other layouts than the parameters."""
    torch.manual_seed(3)
    made = [
        torch.randn(TASKS, 9 * 5, 7).unflatten(1, (3, 3, 5)).permute(0, 4, 3, 1, 2),
        torch.randn(TASKS, 7),
        torch.randn(TASKS, 103, 40).mT,
        torch.randn(TASKS, 1, 1).expand(TASKS, 4, 5),
        torch.randn(TASKS, 2, 3, 2, 3, 2),
        torch.randn(TASKS),
    ]
    return [part.to(device) for part in made]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("aim", ["none", "one for all", "each its own"])
def test_a_step_is_the_gradient_the_pull_and_the_rate(aim, device):
    slopes = parts(device)
    whole = torch.cat([part.reshape(TASKS, -1) for part in slopes], dim=1).double()
    size = whole.shape[1]
    assert size > LONG
    w = torch.randn(TASKS, size + 3)[:, 1:-2].to(device)  # as it lies inside a table
    aims = {"one for all": torch.randn(size), "each its own": torch.randn(TASKS, size)}
    towards = aims[aim].to(device) if aim in aims else None

    def one(w: Tensor, slopes: list[Tensor], towards: Tensor | None) -> Tensor:
        return descend(w, slopes, 0.05, 0.7, towards)

    found = vmap(one, in_dims=(0, 0, 0 if aim == "each its own" else None))(w, slopes, towards)
    if towards is not None:
        whole = whole + 0.7 * (w.double() - towards)
    assert torch.allclose(found.double(), w - 0.05 * whole, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_a_task_takes_the_same_step_whoever_is_beside_it(device):
    slopes = parts(device)
    w = torch.randn(TASKS, sum(part[0].numel() for part in slopes)).to(device)
    step = vmap(lambda w, slopes: descend(w, slopes, 0.05))
    turned = [2, 0, 1]
    other = step(w[turned], [part[turned] for part in slopes])
    assert torch.equal(step(w, slopes)[turned], other)
