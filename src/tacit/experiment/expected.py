"""What a run is expected to gain, in closed form.

Suppose y = x'(β + bₖ) + uₖ + e with variances that are known (`experiment.supposed`). A task that
knows β up to a variance qⱼ in each direction, and learns the rest from n rows of its own, is off by

    Σ λⱼ vⱼ,   1 / vⱼ = 1 / (qⱼ + own) + n λⱼ / (σ² + Σ λᵢ vᵢ)

(the fixed point that ridge regression has for many Gaussian columns). Alone, q is the variance of β
itself. With others it is what remains after the releases: sampling, (σ² / nλⱼ + own) / tasks, and
noise. All of the noise is known beforehand: `experiment.auto` chooses by public facts, and the
channel calibrates by them too. Common units may drown in it; then a task is by itself again.

Classes have Fisher's information of a row for 1 / σ². Log loss is that of chances that are honest
about how far a score is off.

Two constants are calibrated on made-up tables, never on real ones: a task alone knows no variances
and chooses among a few models on few rows, which costs it more than this (`ALONE`), and its last
step makes up for part of that whatever others say (`BESIDE`). For methods with many local steps
(`pmtl`) the same formulas are a guess, and where persons are hidden so is how well votes are heard
(`PEAK`, after a look at three kinds of made-up tables).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from tacit.data.common import ENOUGH
from tacit.engine.votes import Votes
from tacit.errors import TacitError
from tacit.experiment.auto import choose
from tacit.experiment.plan import Plan
from tacit.experiment.supposed import LEVELS, PREDICTABLE, Facts, World, directions
from tacit.local import ranges, units
from tacit.methods import Mixed, OnBillboard
from tacit.methods.mixed import LOUD, MOMENTS_SHARE, SYMMETRIC, TRACE_SHARE, UNLIKE
from tacit.methods.mixed_persons import INFORMATION_SHARE, RESIDUAL_SHARE, STEEPNESS
from tacit.privacy import Everyone, Privacy

ALONE, BESIDE = 0.15, 0.15
"""What not knowing the variances costs, times √(coefficients / rows), of what a task is off by:
alone, and with the others. The best alone averages over models as a run's last step does, so both
cost the same."""
PEAK = 0.3
"""Of all persons, those who vote for the fullest bin of a column, and some of its neighbours."""
DRAWS = 4000
"""Of scores, for the log loss of classes."""


@dataclass(frozen=True)
class Noised:
    """One release about β."""

    noise: float
    """Standard deviation in a mean over tasks, in clips."""
    information: bool
    """Whether it tells of Σ xx' too, or only in which direction to go."""


@dataclass(frozen=True)
class Releases:
    """What a run would publish, as far as public facts say."""

    method: str
    rounds: int
    said: tuple[Noised, ...] = ()
    """Nothing where sums are exact."""
    whole: bool = True
    """Whether Σ xx' is told as a matrix."""
    heard: float = 1.0
    """How likely it is that common units rise out of the noise."""
    combines: bool = True
    """Whether tasks end as those of a mixed model do: they know how far levels are apart, and
    combine several models. Otherwise they choose one, as they would alone."""


def releases(
    facts: Facts, epsilon: float | None, rounds: int | None = None, cohort: float | None = None
) -> Releases:
    """What the run would publish, with the noise that its promise needs."""
    privacy, outline, crowd = facts.privacy(epsilon), facts.outline(), facts.crowd
    intended = choose(outline, Plan.of(privacy=privacy, rounds=rounds, cohort=cohort))
    method, total, many = intended.method, intended.rounds, intended.cohort
    if privacy is None:
        return Releases(method.called, total, combines=isinstance(method, Mixed))
    if facts.persons is not None and not isinstance(method, Mixed):
        raise TacitError(
            f"a run of {method.called} cannot be foreseen where persons are hidden: ask for fewer "
            "classes or features, or make a run on a made-up table"
        )
    assert isinstance(method, OnBillboard)
    votes = Votes.of(method, outline)
    after = votes.rounds_after(total)
    weights = votes.weights(crowd, total, method.weights(after, crowd)) or (1.0,) * total
    share = many / crowd if isinstance(many, int) else many
    noise = _noise(privacy, share, weights, facts.tasks)
    each = [noise / weight / (share * crowd) for weight in weights]
    heard = 0.0 if votes.spared else 1.0
    if votes.columns and votes.of_persons:
        blur = each[0] * math.sqrt(votes.columns)
        heard = NormalDist().cdf(PEAK / blur - ranges.CLEAR)
    elif votes.columns:
        blur = each[0] * math.sqrt(2 * len(units.POWERS) * votes.columns)
        heard = NormalDist().cdf(1 / blur - units.SURE)
    stages = method.stages(facts.kind, after)
    said = tuple(
        Noised(one, stage == "information")
        for one, stage in zip(each[-after:], stages, strict=True)
        if stage != "lengths"
    )
    mixed = isinstance(method, Mixed)
    return Releases(method.called, total, said, not mixed or method.whole, heard, mixed)


def _noise(privacy: Privacy, share: float, weights: tuple[float, ...], tasks: int) -> float:
    """The noise multiplier: exact where everybody takes part.

    For cohorts it is the limit of many releases (Zhiqi Bu, Jinshuo Dong, Qi Long, Weijie Su, "Deep
    Learning with Gaussian Differential Privacy", 2020), a few per cent too small: enough to foresee
    what a run will be like, and far quicker than what a run is calibrated with.
    """
    noise = privacy.noise_multiplier(Everyone(), len(weights), tasks, weights=weights)
    if share == 1:
        return noise
    spent = sum((weight / noise) ** 2 for weight in weights)

    def left(log: float) -> float:
        return spent - share**2 * sum(
            math.expm1((weight / math.exp(log)) ** 2) for weight in weights
        )

    low, high = math.log(share * noise), math.log(noise) + 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if left(middle) > 0 else (middle, high)
    return math.exp(high)


@dataclass(frozen=True)
class Expected:
    """Errors in one world: squared errors over the target's variance, or log losses."""

    alone: float
    by_itself: float
    """Of a task that takes part and hears nothing."""
    together: float

    @property
    def gain(self) -> float:
        """By which share the error is lower than alone."""
        return 1 - self.together / self.alone

    @property
    def from_others(self) -> float:
        """The part of the gain that the others bring."""
        return (self.by_itself - self.together) / self.alone


def expected(facts: Facts, world: World, published: Releases) -> Expected:
    """What a task alone, and one that takes part, will be off by."""
    unit, n = world.unit(facts.kind), facts.rows
    lam, rest = directions(facts.features), _rest(facts, unit)
    beta, own = (np.full(len(lam), unit * part / len(lam)) for part in (world.shared, world.own))
    slopes, hard = unit * (world.shared + world.own), math.sqrt((len(lam) + 1) / n)
    constant = slopes + (slopes + rest) / n
    exact = off(n, lam, beta + own, math.inf, rest)
    alone = min(exact * (1 + ALONE * hard), constant)
    cost, level = (BESIDE, unit * LEVELS) if published.combines else (ALONE, math.inf)
    by_itself = min(exact * (1 + cost * hard), alone)
    if published.combines and n < ENOUGH:
        by_itself = constant
    q = remaining(facts, published, lam, beta, own, rest)
    if published.combines:  # whoever knows β need not weigh much against it
        cost *= float(q.sum() / beta.sum())
    heard = min(off(n, lam, q + own, level, rest) * (1 + cost * hard), by_itself)
    together = published.heard * heard + (1 - published.heard) * by_itself
    return Expected(*(_error(facts, unit, each) for each in (alone, by_itself, together)))


def off(rows: int, lam: np.ndarray, spread: np.ndarray, level: float, rest: float) -> float:
    """Squared error of a score that is learned from so many rows, beside what nobody can predict.

    Slopes and level have these variances before a row is seen.
    """
    lam, before = np.append(lam, 1.0), np.append(1 / spread, 1 / level)
    error = after = rest
    for _ in range(500):
        after = float((lam / (before + rows * lam / (rest + error))).sum())
        if abs(after - error) < 1e-9 * after:
            break
        error = after
    return after


def remaining(
    facts: Facts,
    published: Releases,
    lam: np.ndarray,
    beta: np.ndarray,
    own: np.ndarray,
    rest: float,
) -> np.ndarray:
    """Variance of β in each direction after the releases, as `methods.mixed` reads them."""
    n, scores, q = max(facts.rows - 1.0, 0.5), facts.scores, beta
    known = n * lam / rest
    sampling = (1 / known + own) / facts.tasks
    if not published.said:
        return 1 / (1 / beta + 1 / sampling)
    if facts.persons is not None:
        return _told_by_persons(facts, published, lam, beta, own, rest, sampling)
    # Squared lengths of what a task says: a score, and a matrix beside it.
    score = scores * (rest + own.sum()) * (n * len(lam) + LOUD**2) / rest**2
    matrix = scores * ((known**2).sum() + LOUD**4)
    told, doubt = 0.0, 0.0
    for one in published.said:
        noise = one.noise**2
        if one.information and published.whole:
            blur = doubt = (matrix + score) * noise
        elif one.information:
            blur, doubt = score * noise / (1 - TRACE_SHARE), (UNLIKE * n / rest) ** 2
        else:
            blur = score * noise / (1 - MOMENTS_SHARE)
        told += 1 / (blur + doubt * SYMMETRIC * scores * q.sum())
        q = 1 / (1 / beta + 1 / (sampling + 1 / (told * known**2)))
    return q


def _told_by_persons(
    facts: Facts,
    published: Releases,
    lam: np.ndarray,
    beta: np.ndarray,
    own: np.ndarray,
    rest: float,
    sampling: np.ndarray,
) -> np.ndarray:
    """The same where persons say it, as `methods.mixed_persons` reads them.

    What a person cannot know are the own effects of its task: they are noise in its score.
    """
    numbers, q, scores = facts.kind == "regression", beta, facts.scores
    length, steep = len(lam) + 1.0, STEEPNESS[facts.kind]
    known = lam if numbers else lam / rest
    left = rest + LEVELS + own.sum() if numbers else 1.0
    score, matrix = left * steep * length, (steep * length) ** 2
    told, doubt = 0.0, 0.0
    for one in published.said:
        noise, share = one.noise**2, 1 - RESIDUAL_SHARE if numbers else 1.0
        if one.information:
            doubt, share = matrix * noise / INFORMATION_SHARE, 1 - INFORMATION_SHARE
        told += 1 / (scores * score * noise / share + doubt * SYMMETRIC * scores * q.sum())
        q = 1 / (1 / beta + 1 / (sampling + 1 / (told * known**2)))
    return q


def _rest(facts: Facts, unit: float) -> float:
    """What a row leaves open about a score: a variance, or one over Fisher's information."""
    if facts.kind == "regression":
        return 1 - PREDICTABLE
    chance = _chances(facts.scores, unit * PREDICTABLE, 0.0)[:, 1:]
    return float(1 / (chance * (1 - chance)).mean())


def _error(facts: Facts, unit: float, off: float) -> float:
    """The score of a model that is off by so much: relative squared error, or log loss."""
    if facts.kind == "regression":
        return 1 - PREDICTABLE + off
    chance = _chances(facts.scores, unit * PREDICTABLE, off)
    return float(-(chance * np.log(chance)).sum(axis=1).mean())


@lru_cache
def _normal(scores: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((DRAWS, scores))


def _chances(scores: int, spread: float, off: float) -> np.ndarray:
    """Chances of classes [draws, classes] that are honest about scores being off by so much.

    After David J. C. MacKay, "The Evidence Framework Applied to Classification Networks", 1992.
    """
    sure = math.sqrt(max(spread - off, 0.0) / (1 + math.pi * off / 8))
    drawn = np.pad(sure * _normal(scores), ((0, 0), (1, 0)))
    chance = np.exp(drawn - drawn.max(axis=1, keepdims=True))
    return chance / chance.sum(axis=1, keepdims=True)
