"""MP-MTL with its noise as printed: an experiment that carries no ε, because none is true.

Jian Liang, Ziqi Liu, Jiayu Zhou, Xiaoqian Jiang, Changshui Zhang, Fei Wang. "Model-Protected
Multi-Task Learning." IEEE Transactions on Pattern Analysis and Machine Intelligence, 2020.

| paper                                                   | here                              |
|---------------------------------------------------------|-----------------------------------|
| Algorithm 1, 3: ‖w‖ ≤ K, of what is sent and worked with | `client`, and `clip_model`         |
| Algorithm 1, 4: E ~ W_d(d+1, s/(2ε_t) I), s = 2K         | `wishart_noise`, `printed_scale`   |
| Algorithm 1, 5: Σ = WWᵀ + E                              | `publish`                         |
| (7): the largest ε₀ whose ε_t compose to ε               | `budgets`, by `composition`        |

**Claim (the Wishart mechanism is not private).** Let E ~ W_d(d+1, cI) with c = s/(2ε), as printed.
Whatever ε is promised with δ = 0, an observer of one release refutes it with probability
1 − e^{−ε‖w‖²/s}, for every d.

*Proof.* E is positive definite. With the task, Z − A − wwᵀ = E is always positive definite. Without
it, Z − A − wwᵀ = E − wwᵀ is not as soon as wᵀE⁻¹w ≥ 1: then Z cannot have come from the neighbour,
and no e^ε makes up for a probability of zero. (wᵀw/c) / (wᵀE⁻¹w) is χ² with (d+1)−d+1 = 2 degrees
of freedom, so P(wᵀE⁻¹w ≥ 1) = P(χ²₂ ≤ ‖w‖²/c) = 1 − e^{−‖w‖²/(2c)}. ∎

For d = 1 this is one-sided exponential noise. The flaw is in the proof of Jiang et al. (2016), who
compare densities where both are positive; Sheffet (2019) and Amin et al. (2019) note it. `attack`
makes the observer's test. The sound mechanism for a covariance is in `tacit.privacy.covariance`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from papers.mpmtl.composition import largest_first
from tacit.data.federation import Federation, Kind
from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import Board, State
from tacit.methods.mpmtl import MPMTL
from tacit.methods.publishing import shortened
from tacit.privacy import Privacy
from tacit.privacy.covariance import flatten
from tacit.randomness import Randomness

Sensitivity = Literal["2K", "K2"]
"""s as printed, or with the right units."""


@dataclass(frozen=True, kw_only=True)
class PrintedMPMTL(MPMTL):
    """MP-MTL whose published covariance has Wishart noise; run it without privacy.

    All noise is drawn before the first round, from a seed: a method is a function of its settings.
    Every task takes part in every round, as in the paper.
    """

    printed_epsilon: float = 1.0
    """What the paper would print as ε for all rounds together. It is not true."""
    printed_delta: float = 1e-3
    """What it would print as δ beside it."""
    rounds: int = 10
    """T: how many rounds the budget is spread over."""
    sensitivity: Sensitivity = "2K"
    """Of the Wishart noise."""
    seed: int = 0
    """Of the noise."""
    clip_model: bool = True
    """Whether a task's own model is clipped too."""
    tasks: int = 1
    """How many take part; a run knows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        printed_scale(
            self.clip, self.printed_epsilon, self.sensitivity
        )  # refuses what makes no sense

    @property
    def usual_rounds(self) -> int:
        return self.rounds

    def for_run(self, federation: Federation, privacy: Privacy | None) -> PrintedMPMTL:
        if privacy is not None:
            raise TacitError(
                "the printed noise of MP-MTL keeps no promise, so none can be asked for: leave "
                "privacy out, and give the paper's ε to the method"
            )
        return dataclasses.replace(self, tasks=len(federation))

    def stages(self, kind: Kind, rounds: int) -> tuple[str, ...]:
        if rounds != self.rounds:
            raise TacitError(
                f"the printed budget is for {self.rounds} rounds, but the run has {rounds}: give "
                "both the same number"
            )
        return super().stages(kind, rounds)

    @property
    def budgets(self) -> tuple[float, ...]:
        """ε_t of every round."""
        shares = self.weights(self.rounds)
        first = largest_first(shares, self.printed_epsilon, self.printed_delta)
        return tuple(first * share for share in shares)

    def noise(self, d: int) -> Tensor:
        """E of every round, flattened [T, d(d+1)/2]."""
        randomness = Randomness.of(self.seed)
        scales = (printed_scale(self.clip, e, self.sensitivity) for e in self.budgets)
        drawn = [wishart_noise(d, scale, randomness, t) for t, scale in enumerate(scales)]
        return flatten(torch.stack(drawn))

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        start = super().board(model)
        return start | {"noise": self.noise(self.size(model)).to(start["shared"])}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        after, w = super().client(model, board, state, batches)
        return after, shortened(w, self.clip)

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        round = torch.as_tensor(board.round, device=mean.device).reshape(1)
        noise = board["noise"].index_select(0, round).squeeze(0)
        after = super().publish(board, mean.double() + noise / self.tasks)
        return after | {"noise": board["noise"]}


def wishart_noise(d: int, scale: float, randomness: Randomness, round: int) -> Tensor:
    """E ~ W_d(d+1, scale · I), in double precision. Not private (see the claim)."""
    normal = torch.from_numpy(randomness.normal("noise", round, d * (d + 1))).reshape(d, d + 1)
    noise = scale * (normal @ normal.T)
    return (noise + noise.T) / 2


def printed_scale(clip: float, epsilon: float, sensitivity: Sensitivity) -> float:
    """s / (2ε): s = 2K as MP-MTL prints it, or K², by which ‖w‖² really moves."""
    if sensitivity not in ("2K", "K2"):
        raise TacitError(f"sensitivity={sensitivity!r}: choose 2K or K2")
    if not (0 < epsilon < math.inf and clip > 0):
        raise TacitError(f"epsilon={epsilon!r}, clip={clip!r}: positive numbers are needed")
    return (2 * clip if sensitivity == "2K" else clip**2) / (2 * epsilon)
