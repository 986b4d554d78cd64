"""pfl-research 0.6: its simulated backend, federated averaging, the central Gaussian mechanism."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from in_torch import accuracy, loss_of, module_for
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism, PLDPrivacyAccountant
from torch import Tensor, nn
from works import (
    BATCH,
    DELTA,
    EPSILON,
    NOISE,
    RATE,
    STEPS,
    Rows,
    Work,
    drawn,
    peer,
    split,
)


class Model(nn.Module):
    """A module as pfl wants it."""

    def __init__(self, name: str, columns: int) -> None:
        super().__init__()
        self.name, self.inner = name, module_for(name, columns)

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        return loss_of(self.name, self.inner(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict:
        """None on the way: the peers are compared without."""
        return {}


class Ticks(TrainingProcessCallback):
    """Told of rounds."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self.tick = tick

    def after_central_iteration(self, *args: object, **more: object) -> tuple[bool, Metrics]:
        self.tick()
        return False, Metrics()


def train(name: str, work: Work, rows: Rows, tick: Callable[[], None]) -> float:
    learned, tests = split(rows)
    rng = np.random.default_rng(0)

    def user(task: int) -> Dataset:
        order = drawn(learned[task], rng)  # it takes no more steps than there are batches
        x, y = (torch.from_numpy(side[order]) for side in learned[task])
        return Dataset([x, y])

    mechanism = GaussianMechanism(work.clip, NOISE)
    if name == "table":
        accountant = PLDPrivacyAccountant(work.rounds, 1.0, "gaussian", EPSILON, DELTA)
        mechanism = GaussianMechanism.from_privacy_accountant(accountant, work.clip)
    users = FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(work.tasks))))
    module = Model(name, rows.x.shape[1])
    central = torch.optim.SGD(module.parameters(), lr=1.0)
    FederatedAveraging().run(
        NNAlgorithmParams(work.rounds, work.rounds, work.cohort, 0),
        SimulatedBackend(users, users, [CentrallyAppliedPrivacyMechanism(mechanism)]),
        PyTorchModel(module, torch.optim.SGD, central),
        NNTrainHyperParams(BATCH, None, RATE, local_num_steps=STEPS),
        NNEvalHyperParams(None),
        [Ticks(tick)],
    )
    return accuracy(name, module.inner, tests)


if __name__ == "__main__":
    peer(train)
