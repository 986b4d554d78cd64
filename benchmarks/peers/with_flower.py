"""Flower 1.41: its simulation engine (Ray), FedAvg, and its wrapper for central privacy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from flower_task import Task
from flwr.client import Client, ClientApp
from flwr.common import Context, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from in_torch import accuracy, module_for
from works import NOISE, Rows, Work, noise_for, peer, split


class Told(DifferentialPrivacyServerSideFixedClipping):
    """The wrapper; it remembers the last parameters and says when a round is over."""

    def __init__(self, tick: Callable[[], None], *args: Any) -> None:
        super().__init__(*args)
        self.tick, self.last = tick, None

    def aggregate_fit(self, *args: Any) -> Any:
        found = super().aggregate_fit(*args)
        self.last = found[0]
        self.tick()
        return found


def train(name: str, work: Work, rows: Rows, tick: Callable[[], None]) -> float:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    module = module_for(name, rows.x.shape[1])
    start = [own.detach().numpy() for own in module.parameters()]
    noise = noise_for(work.rounds) if name == "table" else NOISE
    average = FedAvg(
        fraction_fit=work.cohort / work.tasks,
        fraction_evaluate=0.0,
        min_fit_clients=work.cohort,
        min_available_clients=work.tasks,
        initial_parameters=ndarrays_to_parameters(start),
    )
    strategy = Told(tick, average, noise, work.clip, work.cohort)

    def serve(context: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=strategy, config=ServerConfig(work.rounds))

    def client(context: Context) -> Client:
        return Task(name, int(context.node_config["partition-id"])).to_client()

    run_simulation(
        ServerApp(server_fn=serve),
        ClientApp(client),
        work.tasks,
        backend_config={"client_resources": {"num_cpus": 1}},
    )
    assert strategy.last is not None
    with torch.no_grad():
        for own, given in zip(module.parameters(), parameters_to_ndarrays(strategy.last)):
            own.copy_(torch.from_numpy(given))
    return accuracy(name, module, split(rows)[1])


if __name__ == "__main__":
    peer(train)
