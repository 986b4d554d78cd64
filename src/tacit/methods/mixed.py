"""Mixed models with a promise: y = x'β + z'b + e, own effects b ~ N(0, Σ) for every task.

Nan M. Laird, James H. Ware. "Random-Effects Models for Longitudinal Data." Biometrics, 1982; from
private sufficient statistics, after Duy Vu, Aleksandra Slavković. "Differential Privacy for
Clinical Trial Data." ICDM Workshops, 2009, and James Foulds, Joseph Geumlek, Max Welling, Kamalika
Chaudhuri. "On the Theory and Practice of Privacy-Preserving Bayesian Data Analysis." UAI, 2016.

A site with fewer rows than columns has no model worth averaging, but it can say a bounded amount
about everybody's β: its information and its score, with its own effects integrated out. A few
releases of their sums are enough. Each site then has its own effects on its own rows, for nothing.

| formula                                                             | here                      |
|---------------------------------------------------------------------|---------------------------|
| Hₖ = XᵀV⁻¹X, sₖ = XᵀV⁻¹(y − Xβ), and what a task says of Σ and σ²   | `local.mixed.said`        |
| which length most (Hₖ, sₖ) have, and which level most outcomes have | stage "lengths"           |
| Σₖ (Hₖ, sₖ) at the first β, each at most about the median length    | stage "information"       |
| Σₖ sₖ at the published β, and moments of the variances              | stage "scores"            |
| β = K H (H K H + σ²H + noise)⁻¹ b, b = s + Hβ₀, prior β ~ N(0, K)   | `_believed`               |
| (T, s) = A⁻¹q; Σ ← LTLᵀ, σ² ← sσ²                                   | `_varied`                 |
| E[b | y] = ΣZᵀV⁻¹(y − Xβ)                                           | `settle`                  |

**What is bounded.** A contribution is parts that the task itself brings to lengths whose squares
add up to one: a vote, or (Hₖ, sₖ) over the published length, or sₖ over its expected length beside
the moments over a constant. The channel clips to one whatever is sent, so the promise rests on the
channel alone. A part that is too long is shortened as a whole: then a task with many rows weighs as
much as one with the median length, and Σ wₖHₖβ = Σ wₖ(sₖ + Hₖβ₀) still holds for the true β. So
that it holds in later rounds too, a task gives its scores the weight that its information had.

**What the noise does.** Noise E in H moves β by about H⁻¹E(β − β₀), where β₀ is the point that the
score was taken at; so later scores, at better points, count more (`_believed`). The prior variance
of β is chosen by the evidence of the releases, so coefficients that the noise drowns stay at zero,
or where public rows have them: then β begins at their fit, and the prior is around it.
Scores keep the variances that H was released with; for outcomes that are not Gaussian, and without
a clip, H is released anew in every round.

Counts, yes or no and classes have such scores inside a likelihood (`tacit.families`). They have no
units, so tasks vote on their levels, and β begins there (unless public rows told where).

Without privacy nothing is clipped (`clip` is infinite), and the rounds end at the REML estimate, or
where the (approximate) likelihood is largest; where tasks judge, at a β that is shrunk to predict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.local import lengths
from tacit.local.batches import Batches
from tacit.local.bayes import design
from tacit.local.flat import FlatModel
from tacit.local.mixed import (
    Parameters,
    Said,
    basis,
    information,
    level,
    own_effects,
    said,
    score,
    variances,
)
from tacit.local.settled import BY_ITSELF, settled
from tacit.methods.base import Board, State, Units
from tacit.methods.linear import LinearMethod, as_parameters, differences, from_parameters, shape_of
from tacit.methods.posterior import FLAT, PRIORS, believable, changed, estimate, shrunk, unknowns_in
from tacit.privacy.covariance import flatten, unflatten

if TYPE_CHECKING:
    from tacit.data.federation import Federation, Kind
    from tacit.privacy import Privacy

Rows = tuple[Tensor, Tensor, Tensor]
START, SLOPES = 1.0, 0.1
"""Variance of own intercepts and slopes over σ² that everybody begins with."""
LOUD = 3.0
"""The intercept is sent as a column of so many, because own intercepts leave little of its one."""
RESIDUAL, MOST_RESIDUAL = 0.5, 1.0
"""σ² that everybody begins with, where the target has variance 1, and the largest."""
MOST_COEFFICIENTS = 200
"""Of all classes together: the information about them is a matrix of their square."""
LONGER = 1.0
"""Scores are bounded by so many times their expected length."""
MOMENTS_SHARE = 0.2
"""Part of a release (in inverse variance) for the variances."""
MOMENTS_BOUND = 3.0
"""Bound of what a task says about each of the variances, which is about 1."""
OUTLYING = 3.0
"""Residuals are bounded by so many standard deviations where variances are asked for."""
SYMMETRIC = 0.6
HISTORY = 8
"""Most rounds about β, under privacy."""
EXACT_ROUNDS, PRIVATE_ROUNDS, MORE_SCORES = 40, 3, 2
"""Rounds about β; more of them where scores at better points make up for what H does not tell."""
AT_ONE = 6.5
"""The noise of a release at ε = 1, about, in clips."""
VOTES_DROWN, MATRIX_DROWNS = 0.25, 0.7
"""With more noise than this (in a share of votes, in all of H) votes or a matrix are not tried."""
DROWNED = 0.99
"""The chance of a model of its own, where not even units could be told."""
TRACE_SHARE = 0.15
"""Part of a release for the trace of H, where that stands for all of it."""
UNLIKE = 0.15
"""How far H is then from a multiple of the identity, about, over its diagonal."""


class Part(NamedTuple):
    """Some of the numbers of a release."""

    size: int
    unit: Tensor
    """The length that they are measured in."""
    share: float
    """The largest square of their length in the release."""


@dataclass(frozen=True, kw_only=True)
class Mixed(LinearMethod):
    """Mixed models: shared coefficients, own effects with a shared variance."""

    kinds = (*LinearMethod.kinds, "multiclass")
    asks_persons = True
    judges_by_rows: ClassVar[bool] = False
    summed_up: ClassVar[bool] = True
    """Whether releases tell how surely everything is known: then there is a summary."""

    slopes: str = ""
    """Columns with an own slope, by number and separated by commas; all have an own intercept."""
    judged: bool | None = None
    """Whether a task weighs what it was told, and slopes of its own, by its own evidence; None:
    where there is noise, because without noise the published variances are right."""
    crowd: int = 0
    """How many contribute, tasks or persons, as everybody knows; found by itself."""
    outputs: int = 1
    """How many classes have a score of their own; found by itself."""
    whole: bool = True
    """Whether H is released as a matrix, or only its trace; found by itself."""
    units: Units = "common"
    """What tasks share is lost where each scales by itself; "none" where votes would drown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = [each.strip() for each in self.slopes.split(",") if each.strip()]
        known = all(each.isdigit() for each in numbers) and len(set(numbers)) == len(numbers)
        self._require("slopes", known, "different numbers of columns, separated by commas")
        self._require("outputs", 1 <= self.outputs <= MOST_COEFFICIENTS, "at least 1 and few")
        private = "1, because lengths are found privately"
        self._require("clip", self.clip in (1.0, math.inf), private)

    def for_run(self, federation: Federation, privacy: Privacy | None) -> Mixed:
        tasks = len(federation)
        outputs, each = shape_of(federation)
        if privacy is None:
            return replace(self, crowd=tasks, outputs=outputs, clip=math.inf, whole=True)
        # About the noise in a number of a release, from public facts.
        noise = (AT_ONE / privacy.epsilon if privacy.epsilon else privacy.noise or 0.0) / tasks
        d = outputs * each
        told = 0 if federation.units is None else 5 * len(federation.units)
        whole = noise * math.sqrt(d * (d + 1) / 2) < MATRIX_DROWNS
        units = "none" if noise * math.sqrt(told) > VOTES_DROWN else self.units
        return replace(self, crowd=tasks, outputs=outputs, clip=1.0, whole=whole, units=units)

    @property
    def exact(self) -> bool:
        """Whether nothing is bounded: for a run without privacy."""
        return math.isinf(self.clip)

    @property
    def usual_rounds(self) -> int:
        if self.exact:
            return EXACT_ROUNDS
        return 1 + PRIVATE_ROUNDS + (0 if self.whole else MORE_SCORES)

    def stages(self, kind: Kind, rounds: int) -> tuple[str, ...]:
        before = () if self.exact else ("lengths",)
        again = rounds - len(before) - 1
        if again < 0 or (not self.exact and again >= HISTORY):
            raise TacitError(
                f"a mixed model makes {len(before) + 1} to {len(before) + HISTORY} rounds about "
                "its coefficients (and a few before them about units): leave rounds out"
            )
        anew = self.exact or kind != "regression"
        return (*before, "information", *("information" if anew else "scores",) * again)

    def weights(self, rounds: int, tasks: int) -> tuple[float, ...]:
        few = min(1.0, 300 / max(tasks, 1))
        return (0.2 + 0.3 * few, 1.0, *(0.8,) * (rounds - 2))

    def workspace(self, rows: int, size: int) -> int:
        """A few matrices of rows and of columns: little, so that chunks are large."""
        return 8 * (rows + size) * size

    def size(self, model: FlatModel) -> int:
        found = super().size(model)
        if self.outputs > 1 and found > MOST_COEFFICIENTS:
            raise TacitError(
                f"{self.outputs} classes with {found // self.outputs} coefficients each are "
                f"{found}, but a mixed model takes {MOST_COEFFICIENTS}: use fewer columns or "
                "classes, or another method, like pmtl"
            )
        return found

    def own(self, size: int) -> list[int]:
        """The columns of z, out of so many: slopes, then the intercept."""
        slopes = [int(each) for each in self.slopes.split(",") if each.strip()]
        beyond = next((column for column in slopes if column >= size - 1), None)
        if beyond is not None:
            raise TacitError(f"slopes name column {beyond}, but columns are 0 to {size - 2}")
        return [*slopes, size - 1]

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        d, device = self.size(model), model.start.device
        known = from_parameters(model.known.double(), self.outputs)
        effects = len(self.own(d // self.outputs))
        zeros = lambda *shape: torch.zeros(*shape, dtype=torch.float64, device=device)  # noqa: E731
        variances = torch.tensor([*[SLOPES] * (effects - 1), START], dtype=torch.float64)
        root = torch.diag(variances.sqrt()).to(device)
        unknowns = len(basis(effects)) + (model.kind == "regression")
        rest = torch.full((), RESIDUAL if model.kind == "regression" else 1.0, dtype=torch.float64)
        return {
            "beta": known,
            "covariance": zeros(d, d),
            "correction": zeros(d, d),
            "root": root,
            "rest": rest.to(device),
            "working root": root.clone(),
            "working rest": rest.clone().to(device),
            "length": zeros(()) + 1.0,
            "weight": zeros(()) + 1.0,
            "prior": known.clone(),
            "points": zeros(HISTORY, d),
            "scores": zeros(HISTORY, d),
            "informations": zeros(HISTORY, d, d),
            "blur": zeros(HISTORY),
            "information blur": zeros(HISTORY),
            "information": zeros(d, d),
            "target": zeros(d),
            "told": zeros(()),
            "variances root": root.clone(),
            "variances rest": rest.clone().to(device),
            "variances told": zeros(unknowns * (unknowns + 1)),
            "variances blur": zeros(()),
        }

    def state(self, model: FlatModel, board: Board) -> State:
        own = model.start.new_zeros(self.outputs * len(board["root"]))
        w = as_parameters(board["beta"], self.outputs).to(model.start.dtype)
        return {"w": w, "own": own, "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        rows = design(batches, len(board["beta"]) // self.outputs)
        first = self._first(model.kind, board, rows)
        main = self._about_beta(model.kind, board, rows, first)
        if board.stage == "lengths":
            return state, self._vote(model, main, rows)
        moments = main[:0]
        if self._tells_variances(model.kind, board.stage):
            moments = self._about_variances(board, rows, first)
        parts = self._parts(board, len(moments))
        values = torch.cat([main, moments]).split([part.size for part in parts])
        return state, torch.cat([self._short(*pair) for pair in zip(values, parts, strict=True)])

    def _vote(self, model: FlatModel, main: Tensor, rows: Rows) -> Tensor:
        """For the length of what a task says about β, and for its level."""
        length = torch.linalg.vector_norm(main) if self.whole else main[0]
        levels = level(model.kind, rows, self.outputs)
        return lengths.votes(length, levels[:0] if model.fitted else levels)

    def _parts(self, board: Board, moments: int) -> list[Part]:
        """What a release is made of, with so many numbers about the variances."""
        d, share = len(board["beta"]), 1 - MOMENTS_SHARE if moments else 1.0
        if board.stage == "scores":
            parts = [Part(d, self._expected_length(board), share)]
        elif self.whole:
            parts = [Part(d * (d + 1) // 2 + d, board["length"], share)]
        else:
            expected = LONGER * torch.sqrt(board["working rest"] * board["length"])
            parts = [
                Part(1, board["length"], TRACE_SHARE * share),
                Part(d, expected, (1 - TRACE_SHARE) * share),
            ]
        if moments:
            unit = torch.full_like(board["length"], MOMENTS_BOUND * math.sqrt(unknowns_in(moments)))
            parts.append(Part(moments, unit, MOMENTS_SHARE))
        if not self.exact:
            return parts
        return [part._replace(unit=torch.ones_like(part.unit), share=1.0) for part in parts]

    def _first(self, kind: Kind, board: Board, rows: Rows) -> Tensor | Said:
        """With which all begins: XᵀX, or all at once where H is released anew in every round."""
        if kind == "regression":
            return rows[0].T @ rows[0]
        return said(kind, rows, self._parameters(board, ""), evenly=not self.exact)

    def _about_beta(self, kind: Kind, board: Board, rows: Rows, first: Tensor | Said) -> Tensor:
        """Information and score, or the score alone, with the variances that H is released with."""
        if isinstance(first, Said):
            known, found = first[:2]
        elif self.exact:
            known, found = said(kind, rows, self._parameters(board, "working "))[:2]
        else:
            own, root = self.own(len(board["beta"])), board["working root"]
            known, found = information(first, own, root), score(rows, own, board["beta"], root)
        loud = self.loud(board["beta"])
        known, found = known * torch.outer(loud, loud), loud * found
        known = flatten(known) if self.whole else known.trace().reshape(1)
        if board.stage != "scores":
            return torch.cat([known, found])
        # Shortened as the task's information was: otherwise one with many rows would weigh more
        # in scores than in the information.
        return found * (board["length"] / torch.linalg.vector_norm(known)).clamp(max=1.0)

    def _about_variances(self, board: Board, rows: Rows, first: Tensor | Said) -> Tensor:
        """Equations and moments, at the variances that are believed by now."""
        told = first[2:4]
        if not isinstance(first, Said):
            at, limit = self._parameters(board, ""), math.inf if self.exact else OUTLYING
            told = variances(rows, first, at, evenly=not self.exact, limit=limit)
        return torch.cat([side.reshape(-1) for side in told])

    def _parameters(self, board: Board, which: str) -> Parameters:
        own = self.own(len(board["beta"]) // self.outputs)
        variances = board[f"{which}root"], board[f"{which}rest"]
        return Parameters(own, board["beta"], *variances, board["correction"])

    def _tells_variances(self, kind: Kind, stage: str) -> bool:
        """While β is zero, residuals hold all that β explains: too much to be told apart."""
        return self.exact or kind != "regression" or stage == "scores"

    def _short(self, value: Tensor, part: Part) -> Tensor:
        """At most as long as its share of the release allows."""
        if self.exact:
            return value
        length = torch.linalg.vector_norm(value / part.unit)
        return value * (math.sqrt(part.share) / (part.unit * length.clamp(min=1.0)))

    def loud(self, beta: Tensor) -> Tensor:
        """By what columns are multiplied while they are sent; what is remembered stays so."""
        more = beta.new_full((self.outputs,), 0.0 if self.exact else LOUD - 1)
        return 1 + self._at_intercepts(beta, more)

    def _expected_length(self, board: Board) -> Tensor:
        loud = self.loud(board["beta"])
        mean = (board["information"].diagonal() * loud**2).sum().clamp(min=1e-9)
        return LONGER * torch.sqrt(board["working rest"] * mean)

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        mean, noise = mean.double(), torch.as_tensor(board.noise).double()
        after = dict(board.tensors)
        if board.stage == "lengths":
            return after | self._voted(board, mean, noise)
        d = len(board["beta"])
        first = sum(part.size for part in self._parts(board, 0))
        parts = self._parts(board, len(mean) - first)
        units = [part.unit / math.sqrt(part.share) for part in parts]
        values = mean.split([part.size for part in parts])
        values = [value * unit for value, unit in zip(values, units, strict=True)]
        main, moments = torch.cat(values)[:first], torch.cat(values)[first:]
        last = len(parts) - 1 - (len(moments) > 0)
        score, blur = main[-d:], (units[last] * noise) ** 2
        doubt = (units[0] * noise) ** 2
        if board.stage == "scores":  # as it was released before
            told = (board["told"].long() - 1).clamp(min=0).reshape(1, 1, 1).expand(1, d, d)
            information = board["informations"].gather(0, told)[0]
        elif self.whole:
            information = unflatten(main[:-d], d)
            if self.outputs > 1:  # only differences between classes mean something
                apart = differences(self.outputs, d // self.outputs).to(score)
                information, score = apart @ information @ apart, apart @ score
        else:
            each = main[0].clamp(min=board["length"] / 10) / d
            information, doubt = each * torch.eye(d).to(each), (UNLIKE * each) ** 2
        if self.exact:
            levels = self._levels(after) if self.judged else None
            after |= estimate(after, information, score, max(self.crowd, 1), levels)
        else:
            after |= self._remember(board, information, score, blur, doubt)
            after |= self._believed(after)
        if len(moments):
            after |= self._varied(board, moments, noise * units[-1])
        if self.exact or (len(moments) and board.stage == "information"):
            after |= {"working root": after["root"], "working rest": after["rest"]}
        return after

    def _voted(self, board: Board, mean: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """The usual length; and where scores have levels, the usual ones, for β to begin at."""
        found = lengths.read(mean, noise)
        usual = {"length": found.length, "weight": found.weight}
        if not len(found.levels):
            return usual
        levels = differences(self.outputs, 1).to(mean) @ found.levels
        begin = self._at_intercepts(board["beta"], levels)
        return usual | {"prior": begin, "beta": begin}

    def _at_intercepts(self, beta: Tensor, levels: Tensor) -> Tensor:
        """[d] with these numbers at the intercepts and zeros elsewhere."""
        width = len(beta) // self.outputs
        return torch.kron(levels, torch.eye(width).to(levels)[-1])

    def _levels(self, board: Mapping[str, Tensor]) -> Tensor:
        """Which coefficients are intercepts, and not shrunk as slopes are."""
        beta = board["beta"]
        return self._at_intercepts(beta, beta.new_ones(self.outputs)) > 0

    def _remember(
        self, board: Board, information: Tensor, score: Tensor, blur: Tensor, doubt: Tensor
    ) -> dict[str, Tensor]:
        """All releases about β so far; `doubt` is the variance of what H is off."""
        told = board["told"]
        slot = torch.arange(HISTORY).to(told) == told
        fresh = board.stage == "information"
        # A score of a later stage leans on the information of the first.
        before = board["information blur"].max()
        new = {
            "points": (slot.unsqueeze(1), board["beta"] / self.loud(board["beta"])),
            "scores": (slot.unsqueeze(1), score),
            "informations": (slot.reshape(-1, 1, 1), information),
            "blur": (slot, blur),
            "information blur": (slot, doubt if fresh else before),
        }
        kept = {name: torch.where(at, value, board[name]) for name, (at, value) in new.items()}
        return kept | {"told": told + 1}

    def _believed(self, board: dict[str, Tensor]) -> dict[str, Tensor]:
        """β from all releases so far: the mean of its posterior, and its covariance."""
        seen = torch.arange(HISTORY).to(board["told"]) < board["told"]
        beta, spread = torch.zeros_like(board["beta"]), board["beta"].new_ones(())
        loud, levels = self.loud(board["beta"]), self._levels(board)
        sampling, middle = board["working rest"] / max(self.crowd, 1), board["prior"] / loud
        # Public rows may be of another kind: then slopes are shrunk to zero, by the evidence.
        middles = torch.stack([middle, torch.where(levels, middle, 0.0)])
        prior = torch.where(levels, FLAT, PRIORS.to(beta).unsqueeze(1)) / loud**2
        found: dict[str, Tensor] = {}
        informations, doubt = self._known(board)
        eye = torch.eye(len(beta)).to(beta)
        moved = board["scores"] + torch.einsum("rij,rj->ri", informations, board["points"])
        for _ in range(4):
            # Symmetric noise: what it does to a vector has a little over half its squared length.
            away = SYMMETRIC * (((beta - board["points"]) ** 2).sum(1) + spread)
            variance = self._noise(board) + (doubt * away + 1e-30).reshape(-1, 1, 1) * eye
            trust = torch.where(seen.reshape(-1, 1, 1), torch.linalg.inv_ex(variance)[0], 0.0)
            total = torch.linalg.inv_ex(trust.sum(0))[0]
            information = torch.einsum("ij,rjk,rkl->il", total, trust, informations)
            target = torch.einsum("ij,rjk,rk->i", total, trust, moved)
            told = shrunk(information, target, sampling, total, prior, middles)
            beta, spread, both = told.beta, told.covariance.trace(), loud * loud.unsqueeze(1)
            # What is off in β is what rows themselves were off, and noise.
            noisy = told.covariance - told.learnt
            found = {
                "beta": beta * loud,
                "covariance": told.covariance * both,
                "information": told.information / both,
                "target": target / loud,
                "correction": (told.learnt - noisy) * both / board["working rest"],
            }
        return found

    def _known(self, board: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Every released H as it is believed [r, d, d], and the variance of what it is off [r]."""
        informations, doubt = board["informations"], board["information blur"]
        return believable(informations, doubt) if self.whole else (informations, doubt)

    def _noise(self, board: Mapping[str, Tensor]) -> Tensor:
        """Of every released score: its covariance [r, d, d]."""
        return torch.diag_embed(board["blur"].unsqueeze(1).expand(-1, len(board["beta"])))

    def _varied(self, board: Board, told: Tensor, blur: Tensor) -> dict[str, Tensor]:
        """Variances from the moments that tasks told: their equations, with a ridge for noise."""
        blur = blur + 1e-9
        relative, rest = changed(told, blur, basis(len(board["root"])).to(told))
        root = board["root"] @ torch.linalg.cholesky(relative) / rest.sqrt()
        kept = {"root": board["root"], "rest": board["rest"], "told": told, "blur": blur}
        kept = {f"variances {name}": value for name, value in kept.items()}
        rest = (board["rest"] * rest).clamp(max=math.inf if self.exact else MOST_RESIDUAL)
        return kept | {"root": root, "rest": rest}

    def settle(self, model: FlatModel, board: Board, state: State, batches: Batches) -> State:
        beta = board["beta"]
        width = len(beta) // self.outputs
        rows, own_columns = design(batches, width), self.own(width)
        columns = torch.eye(width).to(beta)[own_columns]
        shared, limit = (beta, board["root"], board["rest"]), math.inf if self.exact else OUTLYING
        own = own_effects(model.kind, rows, own_columns, *shared, limit=limit)
        w = beta + (own.reshape(self.outputs, -1) @ columns).reshape(-1)
        judged = not self.exact if self.judged is None else self.judged
        if judged:
            told = beta, self._own_root(board, columns), board["rest"]
            w = settled(model.kind, rows, *told, DROWNED if self.units == "none" else BY_ITSELF)
        w = as_parameters(w, self.outputs)
        return state | {"w": w.to(state["w"].dtype), "own": own.to(state["own"].dtype)}

    def _own_root(self, board: Board, columns: Tensor) -> Tensor:
        """R [d, r]: a task's coefficients are β and σ²RRᵀ around it; `columns` are those of z."""
        return columns.T @ board["root"]

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["w"]
