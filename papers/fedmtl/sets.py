"""The stand-ins for FedMTL's data sets: how they are dealt, and what is trained on them.

One seed deals rows and heads, splits each client's rows, and starts the training: results are over
dealings, not over one lucky one. Settings are chosen on the dealing `CHOOSING`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import nn

from tacit import data as data_sets
from tacit.data.federation import Federation
from tacit.data.sets.faces import HEADS, PER_HEAD
from tacit.errors import TacitError
from tacit.models import lenet, mlp, with_heads
from tacit.models.segnet import SegNet, pixel_head

Distribution = Literal["D1", "D2"]
"""Two heads for each client, or a random number of them."""
CHOOSING = 1000
"""The dealing that settings are chosen on; results are shown for the seeds 0, 1, 2, …"""
FOLDER = "lfw_pseudo_attr"
FIGURE_2 = (("T1",), ("T2",), ("T3",), ("T1", "T2"), ("T1", "T3"), ("T1", "T4"))
"""Section 4.1: the heads of six groups of clients."""
FIGURE_6 = (("T1", "T2"), ("T3", "T4"), ("T5", "T6"), ("T7", "T8")) * 2
"""Section 7.2: four sub-groups of each of two domains."""


@dataclass(frozen=True)
class FedMTLPlan:
    """One set and what is trained on it."""

    key: str
    title: str
    """Always says that it is a stand-in."""
    clients: int
    model: str
    rounds: int = 20
    local_steps: int = 4
    batch: int = 32
    domains: int = 1
    choosing_rounds: int = 20
    min_rows: int = 20
    scenes: int = 0
    """How many made-up scenes; 0 for faces."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Heads of equally large groups of clients, in place of random ones."""
    reduced: bool = False

    @property
    def score(self) -> str:
        return "mIoU" if self.scenes else "accuracy"

    def load(self, data: Path | None, distribution: Distribution, seed: int) -> Federation:
        """The clients as this seed deals them."""
        heads = {"D1": 2, "D2": 0}[distribution]
        given: dict[str, Any] = {"clients": self.clients, "seed": seed, "split_seed": seed}
        given |= {"min_rows": self.min_rows, "heads_per_client": HEADS if self.groups else heads}
        if self.scenes:
            return data_sets.load("scenes", scenes=self.scenes, **given)
        if data is None:
            raise TacitError(f"{self.title} is read from files: pass --data DIR, or set TACIT_DATA")
        if not (data / FOLDER).is_dir():
            raise TacitError(f"there is no {FOLDER}/ in the data folder: pass --data DIR")
        made = data_sets.load("lfw-pseudo", path=data / FOLDER, domains=self.domains, **given)
        return grouped(made, self.groups) if self.groups else made

    @property
    def group_of(self) -> list[int]:
        """The group of each client, where heads are given to groups."""
        size = self.clients // len(self.groups)
        return [k // size for k in range(self.clients)]


def grouped(federation: Federation, groups: Sequence[Sequence[str]]) -> Federation:
    """Clients that hold all heads, in equally large groups that keep only some of them."""
    if len(federation) % len(groups):
        raise TacitError(f"{len(federation)} clients cannot form {len(groups)} equal groups")
    size = len(federation) // len(groups)
    kept = sorted({head for group in groups for head in group})
    columns = {
        head: federation.labels[(int(head[1:]) - 1) * PER_HEAD : int(head[1:]) * PER_HEAD]
        for head in kept
    }
    holds = {name: groups[k // size] for k, name in enumerate(federation.names)}
    return dataclasses.replace(federation, heads=None).with_heads(columns, holds)


def _segnet(federation: Federation, width: int) -> nn.Module:
    body = SegNet(federation.input_shape[0], width, stages=2)
    return with_heads(body, partial(pixel_head, width=width), federation)


def _one_layer(federation: Federation) -> nn.Module:
    """For pixels where SegNet would take too long."""
    body = nn.Sequential(nn.Conv2d(federation.input_shape[0], 4, 3, padding=1), nn.ReLU())
    return with_heads(body, partial(nn.Conv2d, 4, kernel_size=1), federation)


NETWORKS: dict[str, Callable[[Federation], nn.Module]] = {
    "lenet": lenet,
    "segnet, two stages of width 16": partial(_segnet, width=16),
    "mlp": mlp,
    "one-layer": _one_layer,
}

FULL = {
    "lfwa": FedMTLPlan("lfwa", "LFWA (stand-in: predicted attributes)", 60, "lenet"),
    "facea": FedMTLPlan("facea", "FaceA (stand-in: half see negatives)", 80, "lenet", domains=2),
    "nyud2": FedMTLPlan(
        "nyud2",
        "NYUD2 (stand-in: made-up scenes)",
        20,
        "segnet, two stages of width 16",
        local_steps=10,
        batch=8,
        choosing_rounds=10,
        min_rows=10,
        scenes=1449,
    ),
    "figure2": FedMTLPlan("figure2", "LFWA (stand-in), six groups", 60, "lenet", groups=FIGURE_2),
    "figure6": FedMTLPlan(
        "figure6", "FaceA (stand-in), eight sub-groups", 40, "lenet", domains=2, groups=FIGURE_6
    ),
}
_FEW = {"lfwa": 8, "facea": 8, "nyud2": 4, "figure2": 12, "figure6": 16}


def plan_of(key: str, reduced: bool = False) -> FedMTLPlan:
    plan = FULL[key]
    if not reduced:
        return plan
    return dataclasses.replace(
        plan,
        clients=_FEW[key],
        model="one-layer" if plan.scenes else "mlp",
        rounds=3,
        choosing_rounds=3,
        min_rows=8,
        scenes=min(plan.scenes, 40),
        reduced=True,
        local_steps=min(plan.local_steps, 4),
    )


WHY = {
    "lfwa": (
        "LFWA stands for 9000 photographs of LFW whose 40 attributes a model predicted; a label "
        "says whether the attribute is likelier than in half of all images, so no constant answer "
        "is right more than half of the time (in LFWA itself, constant answers are right far more "
        "often). 60 clients, about 105 training images each."
    ),
    "facea": (
        "FaceA stands for the same photographs with 80 clients, half of which see photographic "
        "negatives: two domains, as CelebA and LFWA are, but with the same labels."
    ),
    "nyud2": (
        "NYUD2 stands for 1449 made-up scenes of 32 x 32 points. SegNet has two of its five stages "
        "and 16 channels in the first, not 64: with so few steps from a random start, the whole "
        "network does not get beyond one constant class (mIoU 0.13 to 0.17, whatever the method). "
        "10 local steps of 8 scenes, where the paper has an epoch of batches of 2."
    ),
}
