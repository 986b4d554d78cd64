"""What a mixed model found, as a statistician reports it: coefficients with standard errors.

The coefficients that predict are shrunk where noise drowns them, towards zero or where public rows
have them. Reported are those that are not, in the units of the table, with an error that holds
sampling and privacy noise:

    β = H⁻¹b,   Var β = (wσ²H⁻¹ + E(Σ − σ²D)Eᵀ)/m + H⁻¹NH⁻¹

H, b: mean information and target of m tasks, N: covariance of the noise in b − Hβ (`_noise`). With
that, noise in H is accounted for, and H⁻¹ is a known matrix: intervals hold even where H is hardly
larger than its noise. Where it is smaller, it tells nothing: who leans on that has an infinite
error. H was released with Σ = σ²D, before Σ was known; E picks the columns with own effects. The
term is exact where tasks have alike information: Var sₖ = σ²Hₖ + HₖE(Σ − σ²D)EᵀHₖ. It vanishes at
REML. Tasks that were shortened vary less than they say: with weights wₖ, Σ wₖ²Hₖ is about wΣ wₖHₖ,
where w comes from the votes for lengths.

All of it is a function of releases, and may be published. `.effects` is for one task alone.

R² after Shinichi Nakagawa, Holger Schielzeth. "A general and simple method for obtaining R² from
generalized linear mixed-effects models." Methods in Ecology and Evolution, 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.data.common import RawUnits
from tacit.data.federation import Federation, Kind
from tacit.errors import TacitError
from tacit.inference.components import NORMAL, components
from tacit.local.mixed import basis
from tacit.methods import Mixed

if TYPE_CHECKING:
    from tacit.engine.tasks import Tasks
    from tacit.experiment.run import Run
    from tacit.privacy import Guarantee

COVERED = "computed from releases alone: covered by the guarantee, and may be published"
LEAKED = "computed from releases and from what the guarantee lists as leaks"
OPEN = "computed from sums without noise: no guarantee covers it"
SEEDED = (
    "computed from releases whose noise comes from a seed: only without a seed is it covered by "
    "the guarantee"
)
ROUNDING = 3e-7
"""Sums are released in single precision: smaller eigenvalues, relatively, are not known."""
ABOVE_NOISE = 1.0
"""Eigenvalues below so many standard deviations of the noise in H are not believed."""
TARGET = "the target"
UNKNOWN = 0.25
"""A coefficient is not known where directions without information leave it that variance."""
LOGISTIC, GUMBEL = math.pi**2 / 3, math.pi**2 / 6
"""Variances of the latent error of a binary outcome, and of each of several classes; the latter is
also that of the logarithm of a time whose hazard is constant."""


@dataclass(frozen=True)
class Coefficient:
    """A shared coefficient; where nothing is known of it the estimate is NaN and errors ∞."""

    name: str
    estimate: float
    error: float
    """Standard error: the two below, as squares, add up to its square."""
    sampling: float
    privacy: float
    shrunk: float
    """What predictions use."""
    spread: float
    """What it is multiplied with to be in spreads of the target for a spread of the column."""

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, by the normal distribution."""
        if not math.isfinite(self.error):
            return -math.inf, math.inf
        return self.estimate - NORMAL * self.error, self.estimate + NORMAL * self.error

    def to_json(self) -> dict[str, Any]:
        low, high = map(_plain, self.interval)
        numbers = {"estimate": self.estimate, "error": self.error}
        numbers |= {"sampling_error": self.sampling, "privacy_error": self.privacy}
        plain = {name: _plain(value) for name, value in numbers.items()}
        rest = {"low": low, "high": high, "shrunk": self.shrunk, "spread": self.spread}
        return {"name": self.name, **plain, **rest}


@dataclass(frozen=True)
class Deviation:
    """How far a standard deviation may be off; `components` says by which formulas."""

    variance: float
    """As releases tell it: not kept in bounds, so noise may bring it below zero; NaN: unknown."""
    error: float
    """Standard error of the variance."""

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, of the standard deviation."""
        if not math.isfinite(self.error):
            return 0.0, math.inf
        low, high = (self.variance + side * NORMAL * self.error for side in (-1, 1))
        return math.sqrt(max(0.0, low)), math.sqrt(max(0.0, high))

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        if math.isinf(high):
            return {"error": None, "low": None, "high": None}
        # By the delta method; at zero a deviation has no error to either side.
        error = self.error / (2 * math.sqrt(self.variance)) if low > 0 else None
        return {"error": error, "low": low, "high": high}


@dataclass(frozen=True, eq=False)
class MixedSummary:
    """A mixed model's coefficients and variances; the intercept is always first."""

    coefficients: tuple[Coefficient, ...]
    covariance: np.ndarray
    """Of the estimates [d, d]; NaN where one of the two is not known."""
    own: tuple[str, ...]
    """Which effects tasks have of their own."""
    own_covariance: np.ndarray
    """Σ [r, r], of those."""
    residual: float | None
    """σ²; None where the outcome is not a plain number."""
    own_errors: tuple[Deviation, ...]
    """How surely the variances of own effects are known."""
    residual_error: Deviation | None
    icc: float
    """Part of the variance that is between tasks, for rows at the centre of all columns."""
    marginal: float | None
    conditional: float | None
    """R² without and with own effects; both approximate, see `_explained`."""
    units: str
    without_unit: tuple[str, ...]
    """Whose common unit drowned in noise: if there is one, no coefficient has an interval."""
    farthest: float | None
    """Values of features end so many units from the centre; None where they do not."""
    tasks: int
    releases: int
    label: str
    guarantee: str

    @property
    def own_deviations(self) -> np.ndarray:
        return np.sqrt(np.diag(self.own_covariance))

    @property
    def own_correlations(self) -> np.ndarray:
        return self.own_covariance / np.outer(self.own_deviations, self.own_deviations)

    def to_json(self) -> dict[str, Any]:
        """Plain values; null stands for what is not known, and for an infinite error."""
        return {
            "label": self.label,
            "units": self.units,
            "without_unit": list(self.without_unit),
            "farthest": self.farthest,
            "coefficients": [each.to_json() for each in self.coefficients],
            "covariance": [[_plain(value) for value in row] for row in self.covariance.tolist()],
            "own": {
                "names": list(self.own),
                "deviations": self.own_deviations.tolist(),
                "correlations": self.own_correlations.tolist(),
                "covariance": self.own_covariance.tolist(),
                "errors": [each.to_json() for each in self.own_errors],
            },
            "residual_deviation": None if self.residual is None else math.sqrt(self.residual),
            "residual_error": self.residual_error and self.residual_error.to_json(),
            "icc": self.icc,
            "marginal_r2": self.marginal,
            "conditional_r2": self.conditional,
            "r2_label": "approximate",
            "tasks": self.tasks,
            "releases": self.releases,
            "guarantee": self.guarantee,
        }

    def __str__(self) -> str:
        return _shown().as_text(self.to_json())

    def _repr_html_(self) -> str:
        return _shown().tables(self.to_json())


def _shown() -> Any:
    from tacit.report import shared  # slow to import, and not every summary is shown

    return shared


def summary(run: Run) -> MixedSummary:
    """What a finished run of `Mixed` found."""
    simulation, federation, promise = run.simulation, run.federation, run.guarantee
    method = mixed_of(simulation.tasks)
    board = {name: value.cpu().double().numpy() for name, value in simulation.board.tensors.items()}
    classes, tasks = method.outputs, len(federation)
    size = len(board["beta"]) // classes
    own, rest = method.own(size), float(board["rest"])
    back = RawUnits.of(federation, size, classes)
    spread, assumed = (rest * root @ root.T for root in (board["root"], board["working root"]))
    misjudged = np.zeros((size, size))
    misjudged[np.ix_(own, own)] = (spread - assumed) / tasks
    misjudged = np.kron(np.eye(classes), misjudged)
    loud, weight = method.loud(simulation.board["beta"]).cpu().numpy(), float(board["weight"])
    both = np.outer(loud, loud)
    beta, parts = _unshrunk(_told(board, loud), misjudged / both, weight * rest / tasks)
    sampling, privacy, lost = (back.covariance(part * both) for part in parts)
    unknown = np.diag(lost) > UNKNOWN * ((back.jacobian * loud) ** 2).sum(1)
    # A column that every task scaled for itself means something else in each of them.
    columns = RawUnits.of(federation, size).names  # the same for all classes
    lacking = tuple(columns[k + 1] if k >= 0 else TARGET for k in federation.without_unit)
    # Where only the trace of H was released, nobody knows how surely β is known.
    unknown |= bool(lacking) or not method.whole
    estimate = np.where(unknown, np.nan, back.coefficients(beta * loud))
    total = sampling + privacy
    squares = (np.diag(each).clip(min=0.0) for each in (total, sampling, privacy))
    errors = [np.where(unknown, np.inf, np.sqrt(each)) for each in squares]
    total[unknown] = total[:, unknown] = np.nan
    shrunk = back.coefficients(board["beta"])
    rows = zip(back.names, estimate, *errors, shrunk, back.spreads, strict=True)
    of_own, names = back.own(own)
    own_errors, residual_error = _deviations(method, board, tasks, of_own, back.unit, bool(lacking))
    left = _left(federation.kind, rest, float(board["beta"][-1]), float(spread[-1, -1]))
    marginal, conditional = None, None
    if classes == 1:
        marginal, conditional = _explained(federation, board, own, spread, left)
    return MixedSummary(
        coefficients=tuple(Coefficient(name, *map(float, numbers)) for name, *numbers in rows),
        covariance=total,
        own=names,
        own_covariance=of_own @ np.kron(np.eye(classes), spread) @ of_own.T,
        residual=rest * back.unit**2 if federation.kind == "regression" else None,
        own_errors=own_errors,
        residual_error=residual_error,
        icc=float(spread[-1, -1] / (spread[-1, -1] + left)),
        marginal=marginal,
        conditional=conditional,
        units=back.words,
        without_unit=lacking,
        farthest=_farthest(federation),
        tasks=tasks,
        releases=promise.releases or simulation.board.round,
        label=label_of(promise),
        guarantee=str(promise),
    )


def _farthest(federation: Federation) -> float | None:
    made = federation.preprocessing
    if made is None or made.farthest is None or not made.farthest.numel():
        return None
    return float(made.farthest.min())


def label_of(promise: Guarantee) -> str:
    """Whether what is computed from the releases of this run may be published."""
    if math.isinf(promise.epsilon):
        return OPEN
    if promise.leaks:
        return LEAKED
    return SEEDED if promise.seeded else COVERED


def _left(kind: Kind, rest: float, intercept: float, between: float) -> float:
    """Variance inside tasks, where scores have it; that of a count is at its mean over tasks."""
    if kind == "count":
        return math.log1p(math.exp(-intercept - between / 2))
    known = {"regression": rest, "binary": LOGISTIC, "multiclass": GUMBEL, "survival": GUMBEL}
    return known[kind]


def _deviations(
    method: Mixed,
    board: dict[str, np.ndarray],
    tasks: int,
    of_own: np.ndarray,
    unit: float,
    lacking: bool,
) -> tuple[tuple[Deviation, ...], Deviation | None]:
    """Of own effects and of residuals, in units of the table."""
    told, root = board["variances told"], board["variances root"]
    blur, rest = float(board["variances blur"]), float(board["variances rest"])
    found, spread = components(told, blur, tasks, root, rest, evenly=not method.exact)
    if lacking:
        found, spread = found * np.nan, np.full_like(spread, np.inf)
    shapes = basis(len(root)).numpy()
    each = (of_own @ np.kron(np.eye(method.outputs), shape) @ of_own.T for shape in shapes)
    onto = np.stack([np.diag(shape) for shape in each], axis=1)

    def known(direction: np.ndarray) -> Deviation:
        if not np.isfinite(spread).all():
            return Deviation(math.nan, math.inf)
        square = float(direction @ spread @ direction)
        return Deviation(float(direction @ found), math.sqrt(max(0.0, square)))

    rows = np.pad(onto, ((0, 0), (0, len(found) - len(shapes))))
    residual = known(np.eye(len(found))[-1] * unit**2) if len(found) > len(shapes) else None
    return tuple(map(known, rows)), residual


class Told(NamedTuple):
    """All that was released about β; columns are as loud as they were sent (`Mixed.loud`)."""

    points: np.ndarray
    scores: np.ndarray
    informations: np.ndarray
    blur: np.ndarray
    information_blur: np.ndarray
    near: np.ndarray
    """What β is believed to be, and [d, d] how surely."""
    spread: np.ndarray


def _told(board: dict[str, np.ndarray], loud: np.ndarray) -> Told:
    count, both = int(board["told"]), np.outer(loud, loud)
    if not count:  # without privacy: one release, and no noise
        none, zeros = np.zeros(1), np.zeros((1, len(loud)))
        target, information = board["target"][None], board["information"][None]
        return Told(zeros, target, information, none, none, board["beta"], np.zeros_like(both))
    names = ("points", "scores", "informations", "blur", "information blur")
    points, scores, informations, blur, within = (board[name][:count] for name in names)
    near, spread = board["beta"] / loud, board["covariance"] / both
    return Told(points, scores, informations, blur, within, near, spread)


def _unshrunk(
    told: Told, misjudged: np.ndarray, rest: float
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """H⁻¹b; directions that H does not know stay at zero.

    Its covariance [d, d] from sampling, from privacy noise, and in directions that are not known.
    """
    away = ((told.points - told.near) ** 2).sum(1) + np.trace(told.spread)
    trust = 1 / (told.blur + told.information_blur * away / 2).clip(min=1e-30)
    share = trust / trust.sum()
    information = np.einsum("r,rij->ij", share, told.informations)
    moved = np.einsum("rij,rj->ri", told.informations, told.points)
    values, vectors = np.linalg.eigh(information)
    drowned = ABOVE_NOISE * math.sqrt(told.information_blur.min())
    known = values >= max(ROUNDING * values[-1], drowned, 1e-30)
    inverse = (vectors * np.where(known, 1 / np.where(known, values, 1.0), 0.0)) @ vectors.T
    # There β is as unsure as a coefficient of 1: one spread of the target.
    lost = (vectors * ~known) @ vectors.T
    privacy = inverse @ _noise(told, share) @ inverse + lost
    sampling = rest * inverse + misjudged
    values, turned = np.linalg.eigh(sampling)  # noisy variances may go below zero
    sampling = (turned * values.clip(min=0.0)) @ turned.T
    return inverse @ (share @ (told.scores + moved)), (sampling, privacy, lost)


def _noise(told: Told, share: np.ndarray) -> np.ndarray:
    """N: the covariance [d, d] of the privacy noise in b − Hβ.

    Noise in H is multiplied with how far from β the scores were taken. How far that is has to be
    guessed; the shrunk β is never wild. Scores that lean on one H have its noise in common.
    """
    if (told.informations == told.informations[0]).all():
        from_information = told.information_blur[0] * _turned(share @ told.points, told)
    else:
        each = zip(share**2 * told.information_blur, told.points, strict=True)
        from_information = sum(weight * _turned(point, told) for weight, point in each)
    return (share**2 @ told.blur) * np.eye(len(told.near)) + from_information


def _turned(point: np.ndarray, told: Told) -> np.ndarray:
    """Covariance of E(point − β), where E is symmetric noise with variance 1 on its diagonal."""
    square = np.outer(point - told.near, point - told.near) + told.spread
    return (np.trace(square) * np.eye(len(square)) + square) / 2


def _explained(
    federation: Federation,
    board: dict[str, np.ndarray],
    own: list[int],
    spread: np.ndarray,
    residual: float,
) -> tuple[float | None, float | None]:
    """Marginal and conditional R².

    Columns in common units have about the spread that tasks told: hence approximate.
    How they go together, and the spread of columns that were left as they are (0 and 1), come from
    the information with the intercept taken out, which is about rows · Var x.
    """
    made, found = federation.preprocessing, board["information"]
    scatter = found[:-1, :-1] - np.outer(found[-1, :-1], found[-1, :-1]) / max(found[-1, -1], 1e-30)
    size = np.diag(scatter).clip(min=0.0)
    scaled = np.zeros(0, dtype=bool)
    if made is not None and made.shift.shape[1] == len(size):
        # By what everybody knows: constants of tasks' own stay with them.
        scaled = ((made.shift[0] != 0) | (made.scale[0] != 1)).cpu().numpy()
        scaled[[k for k in federation.own_columns if k >= 0]] = True
    told = _told_spreads(board, int(scaled.sum()))
    rows = float(np.median(size[scaled] / told**2)) if scaled.any() else 0.0
    if len(size) and rows <= 0:
        return None, None
    sd = np.sqrt(size / max(rows, 1e-30))
    sd[scaled] = told
    each = np.sqrt(np.where(size > 0, size, np.inf))
    together = scatter / np.outer(each, each)
    np.fill_diagonal(together, 1.0)
    beta = board["beta"][:-1] * sd
    fixed = max(0.0, float(beta @ together @ beta))
    varied = float(np.diag(spread) @ np.append(sd, 1.0)[own] ** 2)
    total = fixed + varied + residual
    return fixed / total, (fixed + varied) / total


def _told_spreads(board: dict[str, np.ndarray], columns: int) -> np.ndarray:
    """Of the columns that have common units, in these units; 1 where nobody told any."""
    found = board.get("deviation", np.zeros(0)) / board.get("spread", np.zeros(0))
    if len(found) not in (columns, columns + 1):  # the target is the last
        return np.ones(columns)
    return np.nan_to_num(found[:columns], nan=1.0)


def mixed_of(trained: Tasks) -> Mixed:
    if isinstance(trained.method, Mixed) and not trained.method.summed_up:
        raise TacitError(
            "there is no summary where persons are hidden: how much tasks differ is not released, "
            "and errors of coefficients would need it"
        )
    if not isinstance(trained.method, Mixed):
        name = trained.method.called
        raise TacitError(f"{name} has no summary: only mixed models (method 'mixed') have one")
    return trained.method


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
