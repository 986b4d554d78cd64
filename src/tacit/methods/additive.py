"""Additive models with a promise: y = a + Σⱼ fⱼ(xⱼ) + noise, with shapes fⱼ that all tasks share.

Harsha Nori, Rich Caruana, Zhiqi Bu, Judy Hanwen Shen, Janardhan Kulkarni. "Accuracy,
Interpretability, and Differential Privacy via Explainable Boosting." ICML, 2021.

They boost one column after the other, and every release is a histogram of residual sums. Here a
release has the histograms of all columns at once: with C columns that is √C times as long, and
there are C times fewer releases, so the noise is the same. And the histograms are smoothed before
they are released instead of after it: a row counts in its bin and, less and less, in bins nearby.
That makes no row longer, but most of its length is then in what shapes are made of. Bins are soft:
a row between the places of two of them counts in both, so that shapes are lines and not steps.

| formula                                                          | here                          |
|------------------------------------------------------------------|-------------------------------|
| zᵢ: bumps at the places of row i, and a constant; ‖zᵢ‖ ≤ 1       | `local.bumps.spread_out`      |
| how many rows most tasks have, m                                 | stage "rows"                  |
| sₖ = min(1, m/n) Σᵢ r̃ᵢzᵢ / √(vm), r̃ = V⁻¹(y − μ)                | stage "shapes"                |
| u ← u' + η mean(sₖ) / √(vm), u' = u + β(u − u before it)         | `publish`                     |
| uⱼ · (1 − 0.6 noise/‖fⱼ‖²)₊, the shapes that are believed        | `_believed`                   |
| Σₖ log p(yₖ) for sizes of what is a task's own, each centred     | stage "own"                   |
| a task's own shapes, around the shared ones or around nothing    | `settle`                      |

v is the largest variance of a residual (¼ for yes or no, 1 for numbers in common units), V has an
intercept of each task's own, which would otherwise be most of what its residuals say.

**What is bounded.** A contribution is one vote, of length one, or sₖ, or logarithms of evidence,
which the task brings to length one where they are longer. The channel clips to one whatever is
sent, so the promise rests on the channel alone: adding or removing a contributor moves a sum by at
most 1, replacing by at most 2. A person with one row needs no vote and is never shortened by much:
‖s‖ ≤ |r|/√v by construction, which for yes or no is at most 2|y − μ|, so 1 at the start.

**What the noise does.** Because ‖zᵢ‖ ≤ 1, no curvature is above v, and steps of η ≤ 2(1 + β)/(1 +
2β) cannot diverge whatever the rows are: 1.4 with β = 0.7, and 1.2 is taken. Rounds are few where
contributors are few or ε is small, which is how shapes that noise would drown stay near zero. At
the end each column's shape is shrunk by what noise must have added to its size (James and Stein's
rule).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.local import lengths
from tacit.local.batches import Batches
from tacit.local.bayes import average, bell, grid, posterior
from tacit.local.bumps import BUMPS, LOUD, SHAPES, numbers_of, shapes_of, spread_out
from tacit.local.flat import FlatModel
from tacit.methods.base import Board, State, Units
from tacit.methods.linear import CENTRE, LinearMethod
from tacit.methods.mixed import AT_ONE, VOTES_DROWN
from tacit.models.additive import PLACES

if TYPE_CHECKING:
    from tacit.data.federation import Federation, Kind
    from tacit.privacy import Privacy

VARIANCE: dict[str, float] = {"regression": 1.0, "binary": 0.25}
"""The largest of a residual."""
STEP, MOMENTUM = 1.2, 0.7
FORGETS = 0.5
OUTLYING = 3.0
"""Residuals of numbers are bounded by so many spreads of the target."""
OWN = 0.3
"""Variance of own intercepts over that of residuals, for what tasks send."""
USUAL_ROWS = 20
"""How many rows a task has that nobody knows anything about."""
FEWEST, MOST, EXACT_ROUNDS = 5, 40, 200
"""Rounds about shapes; and without noise."""
ROWS_FOR_ROUND, HEARD = 25, 0.025
"""So many rows are enough for one more round; and how many rounds noise allows, for each
contributor at ε = 1."""
OWN_SHARES, MIDDLING = (0.0, 0.2, 0.7), 0.8
"""How much of what sets a task apart may be in its shapes, and not in its level; and the same for a
model that owes nothing to others."""
BY_ITSELF = 0.1
"""The chance of a model that owes nothing to others, before any row is seen."""
POINTS = 5
TELLS, UNLIKE = 0.15, 0.2
"""How much a task tells of what is usual, about; and how far tasks are from what is usual."""
Rows = tuple[Tensor, Tensor, Tensor]
Found = tuple[Tensor, Tensor]


def _unknown() -> Tensor:
    """Logarithm of the chance of each share and strength, where nobody told anything."""
    return bell(POINTS).repeat(len(OWN_SHARES)) - math.log(len(OWN_SHARES))


@dataclass(frozen=True, kw_only=True)
class SharedShapes(LinearMethod):
    """Additive models: a shared shape for every column, and own shapes for each task."""

    known_as = "additive"
    usual_model = "additive"
    kinds = ("regression", "binary")
    asks_persons = True
    judges_by_rows = False

    units: Units = "common"
    """Places mean the same everywhere only in common units; "none" where votes would drown."""
    crowd: int = 0
    """About how many contributors there are; found by itself."""
    epsilon: float = 1.0
    """What is promised, where noise is added; found by itself."""
    persons: bool = False
    """Whether contributors are persons, with a row or two, and not tasks; found by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("clip", self.clip in (1.0, math.inf), "1, because lengths are bounded by it")

    def for_run(self, federation: Federation, privacy: Privacy | None) -> SharedShapes:
        tasks = len(federation)
        if privacy is None:
            return replace(self, crowd=tasks, persons=False, clip=math.inf)
        persons, crowd = privacy.unit != "task", privacy.crowd(tasks)
        epsilon = privacy.epsilon or AT_ONE / max(privacy.noise or 0.0, 1e-9)
        told = 0 if federation.units is None else 5 * len(federation.units)
        drown = AT_ONE / epsilon / crowd * math.sqrt(told) > VOTES_DROWN
        return replace(
            self,
            crowd=crowd,
            epsilon=epsilon,
            persons=persons,
            clip=1.0,
            units="none" if drown else self.units,
        )

    @property
    def exact(self) -> bool:
        """Whether nothing is bounded: for a run without privacy."""
        return math.isinf(self.clip)

    @property
    def _besides(self) -> tuple[int, int]:
        """Rounds before the first shapes, and after the last.

        Persons have one row, as everybody knows, and nothing that sets a task apart.
        """
        return (0 if self.exact or self.persons else 1), (0 if self.persons else 1)

    @property
    def usual_rounds(self) -> int:
        rows = 1 if self.persons else USUAL_ROWS
        enough = self.crowd * rows / ROWS_FOR_ROUND
        if self.exact:
            return 1 + int(min(max(enough, FEWEST), EXACT_ROUNDS))
        heard = self.crowd * HEARD * self.epsilon * math.sqrt(rows)
        return sum(self._besides) + int(min(max(min(enough, heard), FEWEST), MOST))

    def stages(self, kind: Kind, rounds: int) -> tuple[str, ...]:
        before, after = self._besides
        # A run that is too short for all of them has no round about what tasks have of their own.
        after = after if rounds > before + after else 0
        if rounds <= before:
            raise TacitError(
                f"rounds={rounds}: the first finds how many rows most tasks have, so more are "
                "needed; or leave rounds out"
            )
        shapes = rounds - before - after
        return (*("rows",) * before, *("shapes",) * shapes, *("own",) * after)

    def size(self, model: FlatModel) -> int:
        """How many numbers are learned; refuses models that are not additive."""
        additive = [name for name, _ in model.layers] == ["shapes", "intercept"]
        if not additive or model.size % len(PLACES) != 1 or model.kind not in self.kinds:
            raise TacitError(
                f"{self.called} is for additive models of a target of kind "
                f"{', '.join(self.kinds)}: use model='additive' with such a target, or another "
                "method"
            )
        return model.size // len(PLACES) * BUMPS + 1

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        size = self.size(model)
        begin = numbers_of(model.known.double())
        return {
            "u": begin,
            "before": begin.clone(),
            "shared": begin.clone(),
            "blur": begin.new_zeros(3, size),
            "rows": begin.new_ones(()),
            "variance": begin.new_full((), VARIANCE[model.kind]),
            "own": _unknown().to(begin),
        }

    def state(self, model: FlatModel, board: Board) -> State:
        return {"w": shapes_of(board["shared"]).to(model.start.dtype), "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        z, y, counts = spread_out(batches)
        number = counts.sum()
        if board.stage == "rows":
            return state, lengths.votes(number, z[0, :0])
        if board.stage == "own":
            evidence = self._beside(model.kind, (z, y, counts), board["shared"])[1]
            return state, self._bounded(evidence - evidence.mean())
        score = z @ self._ahead(board)
        if model.kind == "binary":
            error = counts * (y - torch.sigmoid(score))
        else:
            error = (y - counts * score).clamp(-OUTLYING, OUTLYING)
        if not self.persons:
            error = error - counts * (OWN * error.sum() / (1 + OWN * number))
        usual = board["rows"]
        weight = (usual / number.clamp(min=1.0)).clamp(max=1.0)
        told = weight * (error @ z) / torch.sqrt(board["variance"] * usual)
        return state, self._bounded(told)

    def _bounded(self, told: Tensor) -> Tensor:
        """At most of length one."""
        return told if self.exact else told / torch.linalg.vector_norm(told).clamp(min=1.0)

    def _ahead(self, board: Board) -> Tensor:
        """Where residuals are taken."""
        return board["u"] + MOMENTUM * (board["u"] - board["before"])

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        after, noise = dict(board.tensors), torch.as_tensor(board.noise).double()
        if board.stage == "rows":
            return after | {"rows": lengths.read(mean.double(), noise).length}
        if board.stage == "own":
            return after | {"own": self._usual(mean.double(), noise)}
        unit = STEP / torch.sqrt(board["variance"] * board["rows"])
        after |= {"before": board["u"], "u": self._ahead(board) + unit * mean.double()}
        after["blur"] = self._blurred(board["blur"], unit * noise)
        return after | {"shared": self._believed(after["u"], after["blur"][0])}

    def _usual(self, mean: Tensor, noise: Tensor) -> Tensor:
        """The chance of each share and strength, from the evidence of all tasks together."""
        heard = TELLS**2 / (TELLS**2 + noise**2)
        usual = torch.softmax(heard * max(self.crowd, 1) * mean, dim=0)
        return torch.log((1 - UNLIKE) * usual + UNLIKE * _unknown().to(mean).exp())

    def _blurred(self, blur: Tensor, noise: Tensor) -> Tensor:
        """Variance of noise in u, its covariance with u before it, and the variance of that.

        Steps forget noise as they forget where they began, by what rows say; `FORGETS` times as
        fast as if rows were spread as usual and no task were shortened, to be on the safe side.
        """
        columns, unit = blur.shape[1] // BUMPS, 1 + LOUD**2
        each = (SHAPES**2).mean(0).to(blur).repeat(columns) / (columns * unit)
        kept = 1 - FORGETS * STEP * torch.cat([each, each.new_full((1,), LOUD**2 / unit)])
        now, last = (1 + MOMENTUM) * kept, -MOMENTUM * kept
        variance = now**2 * blur[0] + 2 * now * last * blur[1] + last**2 * blur[2] + noise**2
        return torch.stack([variance, now * blur[0] + last * blur[1], blur[0]])

    def _believed(self, u: Tensor, blur: Tensor) -> Tensor:
        """Each column's numbers, shrunk by how much of their size noise must have added."""
        each, variance = (side[:-1].reshape(-1, BUMPS) for side in (u, blur))
        weight = (SHAPES**2).mean(0).to(u)
        found, added = (each**2 @ weight).clamp(min=1e-30), variance @ weight
        kept = (1 - (1 - 2 / BUMPS) * added / found).clamp(min=0.0)
        return torch.cat([(each * kept.unsqueeze(1)).flatten(), u[-1:]])

    def _own(self, kind: Kind, rows: Rows, mean: Tensor, share: float, strengths: Tensor) -> Found:
        """A task's numbers around a mean, and the evidence, for each strength of what is its own.

        `share` of that is in its shapes, and the rest in its level.
        """
        level = math.sqrt((1 - share) * (1 + LOUD**2)) / LOUD
        root = torch.full_like(mean, math.sqrt(share * (1 + LOUD**2)))
        root = torch.diag(torch.cat([root[:-1], root.new_full((1,), level)]))
        return posterior(kind, rows, mean, root, strengths.to(mean))

    def _beside(self, kind: Kind, rows: Rows, shared: Tensor) -> Found:
        """The same around what is shared, for every share and strength."""
        near = grid(0.0, 1.0, POINTS)
        found = [self._own(kind, rows, shared, share, near) for share in OWN_SHARES]
        weights, evidence = zip(*found, strict=True)
        return torch.cat(weights), torch.cat(evidence)

    def settle(self, model: FlatModel, board: Board, state: State, batches: Batches) -> State:
        rows, shared = spread_out(batches), board["shared"]
        weights, evidence = self._beside(model.kind, rows, shared)
        far = grid(CENTRE[model.kind], 1.0, POINTS)
        others, alone = self._own(model.kind, rows, torch.zeros_like(shared), MIDDLING, far)
        evidence = evidence + board["own"] + math.log1p(-BY_ITSELF)
        alone = alone + bell(POINTS).to(shared) + math.log(BY_ITSELF)
        u = average(torch.cat([weights, others]), torch.cat([evidence, alone]))
        return state | {"w": shapes_of(u).to(state["w"].dtype)}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["w"]
