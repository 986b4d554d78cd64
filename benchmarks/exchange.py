"""Twenty rounds of FedMTL: 60 clients with two heads each, LeNet, all trained together.

Beside it the same clients on the same batches one after another, with plain PyTorch modules: their
training alone, and the whole round, where models are stacked, mixed with the same weights, and
loaded again. And the curator alone: similarities of all pairs of clients, with the assignment
solved for each.

    python benchmarks/exchange.py                  # two cores
    python benchmarks/exchange.py --device cuda
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.data.arrays import from_arrays
from tacit.data.federation import Federation
from tacit.engine.simulate import Simulation
from tacit.exchange import mixed, similarity
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of
from tacit.local.batches import draw
from tacit.local.losses import multilabel
from tacit.methods import FedMTL
from tacit.privacy import Everyone
from tacit.randomness import Randomness, scramble

CLIENTS, HEADS, ROUNDS = 60, 8, 20


def made(clients: int, rows: int) -> Federation:
    """Random images and labels: what is learned does not matter for the time it takes."""
    rng = np.random.default_rng(0)
    names = np.repeat([f"client-{k}" for k in range(clients)], rows)
    x = rng.standard_normal((clients * rows, 3, 32, 32), dtype=np.float32)
    y = (rng.random((clients * rows, 5 * HEADS)) > 0.5).astype(np.float32)
    labels = [f"label-{k}" for k in range(5 * HEADS)]
    whole = from_arrays(x, y, names, kind="multilabel", labels=labels, scale="none")
    groups = {f"T{k}": labels[5 * k : 5 * k + 5] for k in range(HEADS)}
    holds = {name: [f"T{k}" for k in rng.permutation(HEADS)[:2]] for name in whole.names}
    return whole.with_heads(groups, holds)


def together(federation: Federation, method: FedMTL, rounds: int, device: str) -> Simulation:
    model = model_of("lenet", federation, 0).to(device)
    place = torch.device(device)
    plan = Plan(method=method, rounds=rounds)
    return simulation_of(plan, federation, model, Everyone(), Randomness.of(0), place)


def one_after_another(federation: Federation, method: FedMTL, simulation: Any):
    """The training of a round, client by client, as one would write it without tacit."""
    start = simulation.model.module(simulation.model.start, simulation.model.buffers)
    modules = [copy.deepcopy(start).to(simulation.device) for _ in federation.names]
    every = torch.arange(len(federation), device=simulation.device)

    def train(round: int) -> None:
        keys = scramble(simulation.randomness.key("batches", round), federation.keys)
        batches = draw(federation.train, every, method.steps, method.rows or 1, keys)
        for number, module in enumerate(modules):
            module.train()
            optimiser = torch.optim.SGD(module.parameters(), lr=method.lr)
            for step in range(method.steps):
                optimiser.zero_grad()
                output = module(batches.x[number, step])
                rows = multilabel(output, batches.y[number, step])
                (rows * batches.weight[number, step]).sum().backward()
                optimiser.step()

    def mix(round: int) -> None:
        models = torch.stack([_flat(module) for module in modules])
        uploads = simulation.exchange.uploads(every, models, federation.train.counts, round)
        after = mixed(simulation.method.answer(uploads, {}).weights, uploads, every)[:, 0]
        for module, vector in zip(modules, after, strict=True):
            torch.nn.utils.vector_to_parameters(vector, module.parameters())

    return train, mix, modules


def seconds(work: Callable[[], object], device: str) -> float:
    _wait(device)
    started = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def rounds_of(simulation: Simulation, rounds: int) -> None:
    for _ in range(rounds):
        simulation.rounds.publish(simulation.rounds.next_board())
        simulation.rounds.save(now=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=int, default=175, help="of a client, 60 %% to train on")
    given = parser.parse_args()
    device = given.device
    federation = made(CLIENTS, given.rows).to(device)
    method = FedMTL(lr=0.01, min_peers=1)
    simulation = together(federation, method, given.rounds, device)
    first = seconds(lambda: rounds_of(simulation, 1), device)
    # The first round alone is the same in both, so the models must agree after it.
    train, mix, modules = one_after_another(federation, method, simulation)
    train(0)
    check = together(federation, FedMTL(lr=0.01, shared="own", heads="own"), given.rounds, device)
    rounds_of(check, 1)
    ours = check.personal(torch.arange(2, device=device))[0]
    theirs = torch.stack([_flat(module) for module in modules[:2]])
    print(f"largest difference of parameters after one round: {(ours - theirs).abs().max():.1e}")
    # Taking turns, because a shared machine is faster in one minute than in the next.
    times = [
        (
            seconds(lambda: rounds_of(simulation, 1), device),
            seconds(lambda: train(round), device),  # noqa: B023
            seconds(lambda: mix(round), device),  # noqa: B023
        )
        for round in range(1, given.rounds)
    ]
    per_round, alone, mixing = (statistics.median(column) for column in zip(*times, strict=True))
    rest = sum(each[0] for each in times)
    print(f"{CLIENTS} clients, LeNet, {method.steps} steps of {method.rows} rows, on {device}:")
    print(f"  first round, with tracing: {first:.2f} s; then {1000 * per_round:.0f} ms each")
    print(f"  {given.rounds} rounds: {first + rest:.1f} s, curator included")
    print(f"  one after another: {1000 * alone:.0f} ms to train, {1000 * mixing:.0f} ms to mix")
    whole, part = (alone + mixing) / per_round, alone / per_round
    print(f"  ratio: {whole:.2f}; of their training alone to our whole round: {part:.2f}")
    for clients, heads in ((60, 8), (200, 8)):
        layers = torch.randn(clients, heads, 2505, device=device)
        layers += 2 * torch.randn(2505, device=device)  # alike, so that assignments are needed
        holds = torch.ones(clients, heads, device=device) > 0
        took = min(seconds(lambda: similarity(layers, holds), device) for _ in range(3))  # noqa: B023
        print(f"  similarity of {clients} clients with {heads} heads, all pairs: {took:.2f} s")


def _flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


if __name__ == "__main__":
    main()
