"""Mixed models where persons are the unit of privacy: what `mixed` does then.

y = x'β + own effects of the task + e, as in `methods.mixed`. What is released about β are sums over
persons: each says what its own rows tell, its information xxᵀ·w and its score x(y − μ) at the
published β. Own effects of a task are no part of that, because a task knows them from all of its
persons together. Each task then has its own effects, and slopes of its own as far as its rows speak
for them, on all of its rows, for nothing: they never leave it.

| formula                                                  | here                      |
|----------------------------------------------------------|---------------------------|
| which length ‖x‖² most persons have                      | stage "lengths"           |
| Σ (xxᵀw, x(y − μ)) at the first β                        | stage "information"       |
| Σ H^−½ x(y − μ) at the published β, Σ (y − μ)²           | stage "scores"            |
| β = K H (H K H + σ²H + noise)⁻¹ b, b = s + Hβ₀           | `Mixed._believed`         |

**What is bounded.** All parts that one person sends have lengths whose squares add up to one: a
vote, or information and score over lengths that follow from the published one, each with a share
(`INFORMATION_SHARE`). The channel clips to one whatever is sent.

**Why other shares than for tasks.** A task's information is near a multiple of the identity, a
person's is one direction: of its length little is in every number. So the scores get most of a
release. They are taken again at better points, which makes up for what is wrong in H; there is no
second H.

**In which coordinates.** Where columns go together, or are flags that few have, H has directions
that rows tell little of, and the same noise on every number of a score drowns those first. So later
scores are sent as H^−½x(y − μ), with the published H: in these coordinates their sum tells as much
in every direction, noise moves predictions least for a given length (by Cauchy and Schwarz), and
what persons send has a mean square length of σ²d. That H is known from what is public, so the bound
holds for any of them, a wrong one too.

A person with several rows counts as much as one with a single row: the mean of them is sent.

**Rates.** Most persons have no event, and some have: what a single one expects of itself says
little of the rate. So persons tell whether they had the event and how long they were seen, in the
round of votes, and β begins at the rate of all. An H that is taken far above it would be several
times too large, and steps with it too short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.families import FAMILIES
from tacit.local import lengths
from tacit.local.flat import FlatModel
from tacit.local.mixed import Said, between, level
from tacit.methods.base import Board
from tacit.methods.linear import differences, shape_of
from tacit.methods.mixed import HISTORY, MOST_RESIDUAL, OUTLYING, Mixed, Part, Rows
from tacit.methods.posterior import RELATIVE, centred
from tacit.privacy.covariance import flatten

if TYPE_CHECKING:
    from tacit.data.federation import Federation, Kind
    from tacit.privacy import Privacy

INFORMATION_SHARE = 0.5
"""Part of the first release (in inverse variance) for H."""
RESIDUAL_SHARE, RESIDUAL_BOUND = 0.05, 4.0
"""Part of a release for σ², and the bound of a squared residual over the present one."""
ROUNDS_OF_SCORES = 3
LONGER = 2.0
"""Scores in the coordinates of H are bounded by so many times their mean square length."""
SINGULAR = 0.02
"""The smallest eigenvalue that these coordinates are made of, over the mean one."""
STEEPNESS: dict[str, float] = {
    "regression": 1.0,
    "binary": 0.25,
    "multiclass": 0.25,
    "count": 1.0,
    "survival": 0.25,
}
"""The weight w of a row at β = 0, about."""
MOST_LIVED = 4.0
"""Intervals that a person is seen in, about: so many weigh as much as an event, in votes."""
UNEVEN, STEEP = 2.0, (0.05, 0.5)
"""A person's weight in H, over how many have an event, for those who have most; and its bounds."""
LEVELS = (-9.0, 1.0)
"""Logarithms of rates that anybody begins at."""
QUIET = (0.15, 1.0, 0.8)
"""Relative precision of the votes, of the information and of scores."""


@dataclass(frozen=True, kw_only=True)
class MixedOfPersons(Mixed):
    """Mixed models whose shared part is made of bounded persons."""

    known_as = "mixed"
    summed_up = False  # how much tasks differ is not released, and errors of β would need it

    @property
    def called(self) -> str:
        return Mixed().called  # nobody types this class

    def for_run(self, federation: Federation, privacy: Privacy | None) -> Mixed:
        if privacy is None or privacy.unit == "task":
            return Mixed(slopes=self.slopes, judged=self.judged).for_run(federation, privacy)
        outputs, _ = shape_of(federation)
        crowd = privacy.crowd(len(federation))
        made = replace(self, crowd=crowd, outputs=outputs, clip=1.0, whole=True, judged=True)
        if privacy.tasks_epsilon is None:
            return made
        return MixedOfBoth(**{one.name: getattr(made, one.name) for one in fields(made)})

    @property
    def usual_rounds(self) -> int:
        return 2 + ROUNDS_OF_SCORES

    def stages(self, kind: Kind, rounds: int) -> tuple[str, ...]:
        again = len(super().stages("regression", rounds)) - 2  # refuses too few or too many
        return ("lengths", "information", *("scores",) * again)

    def weights(self, rounds: int, tasks: int) -> tuple[float, ...]:
        votes, first, later = QUIET
        return (votes, first, *(later,) * (rounds - 2))

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        board = super().board(model)
        rates = float(model.kind in ("count", "survival"))
        return board | {
            "steep": torch.full_like(board["length"], STEEPNESS[model.kind]),
            "rates": torch.full_like(board["length"], rates),
            "metric": torch.eye(len(board["beta"])).to(board["beta"]),
            "back": torch.eye(len(board["beta"])).to(board["beta"]),
        }

    def loud(self, beta: Tensor) -> Tensor:
        return torch.ones_like(beta)

    def _first(self, kind: Kind, board: Board, rows: Rows) -> Tensor:
        x = rows[0]
        return x.T @ x if kind == "regression" else x[:0]

    def _about_beta(self, kind: Kind, board: Board, rows: Rows, first: Tensor | Said) -> Tensor:
        """Information and score, or the score alone; before that, how long x is."""
        assert isinstance(first, Tensor)
        x, y, counts = rows
        # How long somebody lived is an outcome: it must not decide how much the rest weighs.
        timed = kind == "survival"
        number = torch.ones_like(counts[0]) if timed else counts.sum().clamp(min=1.0)
        squared = (x * x).sum(1).amax() if timed else (x * x).sum() / number
        if board.stage == "lengths":
            return squared.reshape(1)
        # Who is longer weighs less, in information and score alike: then their sums still agree.
        weight = (self._usual(board) / squared.clamp(min=1e-9)).clamp(max=1.0) / number
        beta = board["beta"].reshape(self.outputs, -1)
        if kind == "regression":
            errors, known = (y - x @ beta[0]).unsqueeze(1), first
        else:
            family, fitted = FAMILIES[kind], x @ beta.T
            errors = (family.coded(y, self.outputs) - family.mean(fitted)) * counts.unsqueeze(1)
            steep = family.weight(fitted) * counts.reshape(-1, 1, 1)
            known = between(x, steep, x) if board.stage == "information" else x[:0]
        found = (errors.T @ x).reshape(-1)
        if board.stage == "scores":
            # Not as a matrix product: of many persons at a time, its bits depend on their places.
            return (board["metric"] * found.unsqueeze(1)).sum(0) / number
        return torch.cat([flatten(weight * known), weight * found])

    def _vote(self, model: FlatModel, main: Tensor, rows: Rows) -> Tensor:
        # Of yes or no a single person has no level, and β begins at zero.
        counted = model.kind == "count" and not model.fitted
        levels = level(model.kind, rows, self.outputs) if counted else main[:0]
        if model.kind != "survival" or model.fitted:
            return lengths.votes(main[0], levels)
        # Nor has it one over time: most persons have no event, but some have.
        _, rate, lived = rows
        told = torch.stack([(rate * lived).sum().clamp(max=1.0), lived.sum() / MOST_LIVED])
        told = told / torch.linalg.vector_norm(told).clamp(min=1.0)
        return torch.cat([lengths.votes(main[0], levels), told]) / math.sqrt(2)

    def _voted(self, board: Board, mean: Tensor, noise: Tensor) -> dict[str, Tensor]:
        asked = len(mean) - len(lengths.LENGTHS)
        if asked != 2:
            return super()._voted(board, mean, noise)
        mean, noise = mean * math.sqrt(2), noise * math.sqrt(2)
        usual = super()._voted(board, mean[:-2], noise)
        events, lived = mean[-2].clamp(min=noise), mean[-1].clamp(min=noise)
        found = torch.log(events / (MOST_LIVED * lived)).clamp(*LEVELS)
        begin = self._at_intercepts(board["beta"], found.reshape(1))
        steep = (UNEVEN * events).clamp(*STEEP)
        return usual | {"prior": begin, "beta": begin, "steep": steep}

    def _usual(self, board: Board) -> Tensor:
        """‖x‖² of about half of the persons; votes were read as the mark below."""
        return lengths.STEP * board["length"]

    def _tells_variances(self, kind: Kind, stage: str) -> bool:
        return kind == "regression" and stage == "scores"

    def _about_variances(self, board: Board, rows: Rows, first: Tensor | Said) -> Tensor:
        """The mean of its squared residuals over the present σ²."""
        x, y, counts = rows
        error = (y - x @ board["beta"]) / torch.sqrt(board["rest"])
        return ((error * error).clamp(max=OUTLYING**2).sum() / counts.sum().clamp(min=1)).reshape(1)

    def _parts(self, board: Board, moments: int) -> list[Part]:
        d, length = len(board["beta"]), self._usual(board)
        steep = board["steep"]
        share = 1 - RESIDUAL_SHARE if moments else 1.0
        # An event is worth one, however seldom it is; if it were shortened, rates would be too low.
        rare = board["rates"] > 0
        if board.stage == "information":
            score = torch.sqrt(board["rest"] * torch.where(rare, 1.0, steep) * length)
            parts = [
                Part(d * (d + 1) // 2, steep * length, INFORMATION_SHARE),
                Part(d, score, 1 - INFORMATION_SHARE),
            ]
        else:
            longer = LONGER * torch.where(rare, 1 / steep, 1.0)
            parts = [Part(d, torch.sqrt(board["rest"] * longer * d), share)]
        if moments:
            parts.append(Part(1, torch.full_like(length, RESIDUAL_BOUND), RESIDUAL_SHARE))
        return parts

    def _levels(self, board: Mapping[str, Tensor]) -> Tensor:
        """Where persons told none, it is as likely to be near zero as a slope."""
        return super()._levels(board) & (board["rates"] > 0)

    def _known(self, board: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        d = len(board["beta"])
        intercepts = list(range(d // self.outputs - 1, d, d // self.outputs))
        known, doubt = centred(board["informations"], board["information blur"], intercepts)
        if self.outputs > 1:
            apart = differences(self.outputs, d // self.outputs).to(known)
            known = apart @ known @ apart
        return known, doubt

    def _remember(
        self, board: Board, information: Tensor, score: Tensor, blur: Tensor, doubt: Tensor
    ) -> dict[str, Tensor]:
        if board.stage == "scores":
            apart = differences(self.outputs, len(score) // self.outputs).to(score)
            score = apart @ (board["back"] @ score)
        return super()._remember(board, information, score, blur, doubt)

    def _noise(self, board: Mapping[str, Tensor]) -> Tensor:
        """The first scores are sent as they are, and all others in the metric."""
        first, later = (
            torch.eye(len(board["back"])).to(board["back"]),
            board["back"] @ board["back"],
        )
        return board["blur"].reshape(-1, 1, 1) * torch.stack([first, *[later] * (HISTORY - 1)])

    def _believed(self, board: dict[str, Tensor]) -> dict[str, Tensor]:
        metric = self._metric(board)
        return super()._believed(board | metric) | metric

    def _metric(self, board: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """H^−½, which later scores are sent in, and the way back."""
        values, vectors = torch.linalg.eigh(self._known(board)[0][0])
        least = torch.maximum(board["information blur"][0].sqrt(), SINGULAR * values.mean())
        root = torch.maximum(values, least.clamp(min=1e-9)).sqrt()
        return {"metric": (vectors / root) @ vectors.T, "back": (vectors * root) @ vectors.T}

    def _own_root(self, board: Board, columns: Tensor) -> Tensor:
        """Tasks are few where persons are protected, and each knows much by itself: what is not
        known about β, because of noise, is as if it were the task's own."""
        width = columns.shape[1]
        blocks = board["covariance"].reshape(self.outputs, width, self.outputs, width)
        doubt = torch.einsum("iaib->ab", blocks) / (self.outputs * board["rest"])
        values, vectors = torch.linalg.eigh(doubt)
        return torch.cat([columns.T @ board["root"], vectors * values.clamp(min=0.0).sqrt()], dim=1)

    def _varied(self, board: Board, told: Tensor, blur: Tensor) -> dict[str, Tensor]:
        """σ² from the mean squared residual; variances of own effects stay what tasks judge."""
        rest = (board["rest"] * told[0].clamp(*RELATIVE)).clamp(max=MOST_RESIDUAL)
        return {"rest": rest, "working rest": rest}


@dataclass(frozen=True, kw_only=True)
class MixedOfBoth(MixedOfPersons):
    """The same where whole tasks are hidden, too.

    Each task's sum is then shortened (`privacy.channel`), by a factor that nobody else knows.
    Information and score that are shortened together still agree; those of different rounds do not.
    So every round has both, there is one of them, and σ² is not told.
    """

    @property
    def usual_rounds(self) -> int:
        return 2

    def stages(self, kind: Kind, rounds: int) -> tuple[str, ...]:
        anew = ("information",) * (len(super().stages(kind, rounds)) - 1)
        return ("lengths", *anew)

    def _metric(self, board: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {}
