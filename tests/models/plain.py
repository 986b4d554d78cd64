"""Training clients one after another in plain PyTorch, to hold the engine against."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tacit.data.federation import Kind
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.losses import weighted_loss
from tacit.local.sgd import sgd
from tacit.local.together import Together

RATE = 0.05


def batches(shape: tuple[int, ...], y: Tensor, seed: int = 0) -> Batches:
    """Made-up rows for targets [clients, steps, rows, ...]; clients differ in scale and shift."""
    generator = torch.Generator().manual_seed(seed)
    clients, steps, rows = y.shape[:3]
    x = torch.randn(clients, steps, rows, *shape, generator=generator, dtype=torch.float64)
    own = torch.arange(1.0, clients + 1).reshape(-1, *[1] * (x.ndim - 1))
    weight = torch.rand(clients, steps, rows, generator=generator, dtype=torch.float64) + 0.5
    return Batches(x * own + own, y, weight / weight.sum(dim=2, keepdim=True))


def starts(flat: FlatModel, clients: int) -> Tensor:
    """A starting point for each client, none like another; in double precision like the rows."""
    noise = torch.randn(clients, flat.size, generator=torch.Generator().manual_seed(1))
    return flat.start.double() * (1 + 0.1 * noise)


def together(
    flat: FlatModel, w: Tensor, given: Batches, *, trace: bool = False
) -> tuple[Tensor, Tensor]:
    """Parameters and buffers after training all clients at once."""

    def client(shared: tuple[()], own: tuple[Tensor, Tensor, Batches]) -> tuple[Tensor, Tensor]:
        return sgd(flat, *own, RATE)

    buffers = flat.buffers.double().expand(len(w), -1)
    return Together(client, trace=trace)((), (w, buffers, given))


def alone(
    module: nn.Module, kind: Kind, state: dict[str, Tensor], given: Batches, client: int
) -> nn.Module:
    """One client's module after the usual loop of PyTorch."""
    own = copy.deepcopy(module).double().train()
    own.load_state_dict(state, strict=False)
    optimiser = torch.optim.SGD(own.parameters(), RATE)
    for x, y, weight in Batches(*(side[client] for side in given)).steps():
        optimiser.zero_grad()
        weighted_loss(kind, own(x), y, weight).backward()
        optimiser.step()
    return own


def assert_equal_to_plain(
    module: nn.Module, kind: Kind, given: Batches, *, trace: bool = False
) -> None:
    """Every parameter and every statistic of every client, after all steps."""
    flat = FlatModel(module, kind)
    clients = len(given.x)
    w = starts(flat, clients)
    fresh = flat.buffers.double().expand(clients, -1)
    before = flat.named(w, fresh)
    after = flat.named(*together(flat, w, given, trace=trace))
    for client in range(clients):
        state = {name: values[client] for name, values in before.items()}
        own = alone(module, kind, state, given, client)
        wanted = dict(own.named_parameters()) | dict(own.named_buffers())
        assert set(wanted) == set(after)
        for name, value in wanted.items():
            ours = after[name][client]
            torch.testing.assert_close(
                ours,
                value.detach().double(),
                rtol=1e-6,
                atol=1e-9,
                msg=lambda m, n=name: f"{n}: {m}",
            )
            # Else there would be nothing to compare. A bias before BatchNorm has no effect.
            if not name.startswith("heads.") and not name.endswith("bias"):
                assert not torch.equal(ours, before[name][client]), name
