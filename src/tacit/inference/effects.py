"""A task's own effects in a mixed model, for the task itself: nobody else may see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit.data.common import RawUnits
from tacit.families import FAMILIES
from tacit.inference.summary import mixed_of
from tacit.local.batches import Batches, all_rows
from tacit.local.bayes import design
from tacit.local.mixed import between
from tacit.privacy import NOT_COVERED

if TYPE_CHECKING:
    from tacit.engine.tasks import Tasks


@dataclass(frozen=True, eq=False)
class Effects:
    """What sets one task apart from the shared coefficients; the intercept is first."""

    names: tuple[str, ...]
    effects: np.ndarray
    errors: np.ndarray
    """Standard deviations, given the task's rows and the shared parameters."""
    deviations: np.ndarray
    """How much such effects vary between tasks, as it was published."""
    units: str

    def to_json(self) -> dict[str, Any]:
        return {
            "label": NOT_COVERED,
            "units": self.units,
            "names": list(self.names),
            "effects": self.effects.tolist(),
            "errors": self.errors.tolist(),
            "deviations": self.deviations.tolist(),
        }


def effects_of(trained: Tasks, task: int) -> Effects:
    """The own effects that the task with this number settled on."""
    method, federation = mixed_of(trained), trained.federation
    board = {name: value.cpu().double().numpy() for name, value in trained.shown.tensors.items()}
    fresh = method.state(trained.model, trained.shown)
    state = trained.store.take(torch.tensor([task], device=trained.device), fresh)
    effect = state["own"][0].cpu().double().numpy()
    outputs, size = method.outputs, len(board["beta"]) // method.outputs
    own = method.own(size)
    number = torch.tensor([task], device=trained.device)
    rows = all_rows(federation.train, number, int(federation.train.count(number)))
    x, _, counts = (side.cpu() for side in design(Batches(*(side[0] for side in rows)), size))
    x, weight = x.numpy(), torch.ones(len(x), 1, 1, dtype=torch.float64)
    if federation.kind in FAMILIES:
        scores = (
            x @ board["beta"].reshape(outputs, -1).T + x[:, own] @ effect.reshape(outputs, -1).T
        )
        weight = FAMILIES[federation.kind].weight(torch.from_numpy(scores))
    z = torch.from_numpy(x[:, own] @ board["root"])
    eye = np.eye(outputs * len(own))
    left = np.linalg.inv(eye + between(z, counts.reshape(-1, 1, 1) * weight, z).numpy())
    back = RawUnits.of(federation, size, outputs)
    to_raw, names = back.own(own)
    turned = float(board["rest"]) ** 0.5 * to_raw @ np.kron(np.eye(outputs), board["root"])
    errors, deviations = (np.sqrt(np.diag(turned @ c @ turned.T)) for c in (left, eye))
    return Effects(names, to_raw @ effect, errors, deviations, back.words)
