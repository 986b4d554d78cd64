"""ε of a set of releases. The mathematics is dp-accounting's; the choice of accountant is ours.

A release is described by its sampler and its noise multiplier: the standard deviation of the noise
on the *sum* divided by the clip, whatever the neighbours are. Composition is symmetric, so releases
are kept as counts and their order cannot matter.

**How close.** The PLD accountant rounds the loss of each sampled release up to a grid, so ε is an
upper bound. Measured against an independent computation (tests/privacy/test_recomputed.py) it is at
most 1e-6 above the true ε for up to 50 releases, and at most 2e-8 more for each further one.
Plain Gaussian releases are one release together, whose loss is a Gaussian: no grid is needed, and ε
is exact however many there are (`privacy.gaussian`, ours and checked), up to `ROUNDED_UP`.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from tacit.errors import TacitError
from tacit.privacy.gaussian import epsilon_of
from tacit.privacy.sampling import (
    NEIGHBOURS,
    Accountant,
    Everyone,
    Neighbours,
    Poisson,
    Sampler,
    Unit,
    heaviest,
)

if TYPE_CHECKING:
    import dp_accounting
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


ROUNDED_UP = 1e-9
"""Added to an exact ε (times ε, above one): more than a search for it leaves open."""
QUIETEST = 1e-3
"""Noise multipliers below this have an ε near a million: no digits are left to search among."""


class Booked(Protocol):
    """What the ledger holds: releases, and tunings made of them (`selection.Repeated`)."""

    @property
    def noise_multiplier(self) -> float: ...

    @property
    def published(self) -> int: ...

    @property
    def unit(self) -> Unit: ...

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]: ...

    def event(self, moved: float) -> dp_accounting.DpEvent:
        """What dp-accounting knows; `moved` is how far a task moves the sum, in clips."""
        ...

    def to_json(self) -> dict[str, Any]: ...


B = TypeVar("B", bound=Booked)


@dataclass(frozen=True)
class Release:
    """One noisy sum over one cohort, as the accountant sees it."""

    sampler: Sampler
    """Who takes part."""
    noise_multiplier: float
    """Standard deviation of the noise, in clips."""
    replaced: float = 2.0
    """How far replacing a task moves the sum, in clips (see `moments`)."""
    unit: Unit = "task"
    """Who is hidden by the noise."""
    task_clip: float | None = None
    """With another unit: no task's sum is longer, in clips; None where that is not bounded."""

    @property
    def of_tasks(self) -> Release:
        """The same release as it hides whole tasks. All of them are in it, whomever they draw."""
        noise = 0.0 if self.task_clip is None else self.noise_multiplier / self.task_clip
        return Release(Everyone(), noise)

    @property
    def published(self) -> int:
        return 1

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        return self.sampler.accountants(neighbours)

    def event(self, moved: float) -> dp_accounting.DpEvent:
        return self.sampler.event(self.noise_multiplier / moved)

    def to_json(self) -> dict[str, Any]:
        shorter: dict[str, Any] = {"replaced": self.replaced} if self.replaced != 2.0 else {}
        shorter |= {"unit": self.unit} if self.unit != "task" else {}
        shorter |= {"task_clip": self.task_clip} if self.task_clip is not None else {}
        return {
            "noise_multiplier": self.noise_multiplier,
            "sampling": self.sampler.to_json(),
            **shorter,
        }


@dataclass(frozen=True)
class Spent:
    """An ε and the accountant that vouches for it."""

    epsilon: float
    """Infinite where nothing bounds it."""
    accountant: Accountant


def spent(releases: Mapping[B, int], delta: float, neighbours: Neighbours) -> Spent:
    """The ε of these releases together at `delta`.

    Edge cases: no release costs nothing (ε = 0); a release without noise costs everything (ε = ∞).
    """
    check_neighbours(neighbours)
    if not 0 < delta < 1:
        raise TacitError(f"delta={delta!r}: a probability between 0 and 1 is needed")
    counted: list[tuple[Booked, int]] = [(r, n) for r, n in releases.items() if n > 0]
    if len({release.unit for release, _ in counted}) > 1:
        raise TacitError(
            "releases about tasks and about persons cannot be added up in one ε: keep a ledger for "
            "each unit of privacy"
        )
    return _spent(merged(counted, neighbours), delta, neighbours)


def of_tasks(releases: Mapping[B, int]) -> Counter[Release]:
    """Releases that hide persons, as what they tell about whole tasks."""
    found: Counter[Release] = Counter()
    for release, count in releases.items():
        # What was tuned on persons is bounded for nobody else.
        whole = release.of_tasks if isinstance(release, Release) else Release(Everyone(), 0.0)
        found[whole] += count
    return found


@lru_cache(maxsize=4096)
def _spent(releases: frozenset[tuple[Booked, int]], delta: float, neighbours: Neighbours) -> Spent:
    allowed = [set(r.accountants(neighbours)) for r, _ in releases]
    common: list[Accountant] = [
        name for name in ("PLD", "RDP") if all(name in names for names in allowed)
    ]
    if not common:
        raise TacitError(
            "no accountant covers all releases of this run together: use one kind of sampling"
        )
    if any(release.noise_multiplier <= 0 for release, _ in releases):
        return Spent(math.inf, common[0])
    match [*releases]:
        case [(Release(sampler=Everyone(), noise_multiplier=noise), 1)] if noise >= QUIETEST:
            return Spent(_plain(noise, delta, neighbours), "PLD")
    for name in common:
        epsilon = _compose(name, releases, delta, neighbours)
        if math.isfinite(epsilon):
            return Spent(epsilon, name)
    return Spent(math.inf, common[-1])


def _plain(noise: float, delta: float, neighbours: Neighbours) -> float:
    """ε of one Gaussian release: δ(ε) has a closed form."""
    epsilon = epsilon_of(noise / (2.0 if neighbours == "replace" else 1.0), delta)
    return epsilon + ROUNDED_UP * max(1.0, epsilon) if epsilon > 0 else 0.0


def _compose(
    name: Accountant,
    releases: frozenset[tuple[Booked, int]],
    delta: float,
    neighbours: Neighbours,
) -> float:
    import dp_accounting
    from dp_accounting import rdp
    from dp_accounting.pld import privacy_loss_distribution as losses

    relation, moved = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1.0
    if neighbours == "replace" and name == "PLD":
        relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    elif neighbours == "replace":
        # Replacing moves the sum by up to two clips. dp-accounting's RDP ignores that factor (its
        # issue 378), so it is asked about a task that is added, with twice the clip. That is exact
        # for plain Gaussian releases, and no others have an RDP bound with replace.
        moved = 2.0
    # Ordered, so that the same releases give the same last digit whatever order they came in.
    ordered = sorted(releases, key=lambda pair: (str(pair[0]), pair[1]))
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)  # RDP reports every fractional order that it leaves out
    try:
        if name == "PLD":
            interval = _interval(releases, neighbours)
            total = losses.identity(interval)
            for release, count in ordered:
                assert isinstance(release, Release)  # a tuning has no PLD
                one = _loss(release.event(moved), relation, interval)
                whole = one.self_compose(count) if release.sampler.secret else one  # once: `merged`
                total = total.compose(whole)
            return float(total.get_epsilon_for_delta(delta))
        accountant = rdp.RdpAccountant(neighboring_relation=relation)
        for release, count in ordered:
            accountant.compose(release.event(moved), count)
        return float(accountant.get_epsilon(delta))
    except (OverflowError, MemoryError, FloatingPointError):
        return math.inf  # too little noise for this accountant; the next one may still have a bound
    finally:
        logger.setLevel(level)


@lru_cache(maxsize=8)
def _loss(
    event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation, interval: float
) -> PrivacyLossDistribution:
    """The loss of one release: to make it takes far longer than to compose and to read it."""
    from dp_accounting import NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.pld import privacy_loss_distribution as losses

    gaussian: Any = event
    rate = 1.0
    if isinstance(event, PoissonSampledDpEvent):
        gaussian, rate = event.event, event.sampling_probability
    noise = gaussian.noise_multiplier
    if rate < 1 and relation == NeighboringRelation.ADD_OR_REMOVE_ONE:
        return losses.PrivacyLossDistribution(
            *(_dots(noise, rate, interval, removed=which) for which in (True, False))
        )
    return losses.from_gaussian_mechanism(
        noise,
        value_discretization_interval=interval,
        sampling_prob=rate,
        neighboring_relation=relation,
    )


def _dots(noise: float, rate: float, interval: float, *, removed: bool) -> PLDPmf:
    """The loss of a sampled release where one that is drawn is removed, or added, on the grid.

    What `from_gaussian_mechanism` makes, with its own functions (a test compares them): but that
    asks for one point after the other, some hundred thousand of them, and this for all at once.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    kind, sign = (AdjacencyType.REMOVE, 1) if removed else (AdjacencyType.ADD, -1)
    release = GaussianPrivacyLoss(noise, sampling_prob=rate, adjacency_type=kind)
    ends = release.connect_dots_bounds()
    assert ends.epsilon_lower is not None and ends.epsilon_upper is not None
    low, high = math.floor(ends.epsilon_lower / interval), math.ceil(ends.epsilon_upper / interval)
    epsilon = np.arange(low, high + 1) * interval
    inside = sign * epsilon > math.log1p(-rate)
    # Beyond that end everything is larger than ε where one is removed, and nothing where added.
    deltas, some = np.zeros_like(epsilon), epsilon[inside]
    deltas[~inside] = -np.expm1(epsilon[~inside]) if removed else 0.0
    # The loss of the release itself, at what has this loss after sampling: log(1 + (exp ε − 1)/q).
    above, least = sign * some + np.log(1 / rate), np.log(1 / rate - 1)
    with np.errstate(divide="ignore"):  # infinite at the very end
        plain = sign * (above + np.log1p(-np.exp(np.minimum(least - above, 0.0))))
    plain[some == 0] = 0.0
    place = (0 if removed else 1) + (-0.5 - plain * noise**2)
    deltas[inside] = release.mu_upper_cdf(place) - np.exp(some + release.mu_lower_log_cdf(place))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        interval, low, high, np.clip(deltas, 0, 1)
    )


def merged(
    releases: Iterable[tuple[Booked, int]], neighbours: Neighbours
) -> frozenset[tuple[Booked, int]]:
    """Releases whose members are known to all, as the one Gaussian release that they are together.

    Exact: noise z_t on sums that move together is one sum with noise (Σ 1/z_t²)^(−1/2), over the
    releases that hold the task; it is the task for which that is least (see `InTurn`). Where
    replacing moves the sum by less than two clips, the noise is worth accordingly more; after a
    secret cohort that is not claimed, and two is charged.
    """
    rest: list[tuple[Booked, int]] = []
    charges: list[tuple[Sampler, float]] = []
    for release, count in releases:
        if isinstance(release, Release) and not release.sampler.secret:
            worth = release.noise_multiplier
            worth *= 2 / release.replaced if neighbours == "replace" else 1
            charges.append((release.sampler, count / worth**2 if worth > 0 else math.inf))
        else:
            rest.append((release, count))
    if charges:
        charges.sort(key=lambda pair: pair[1])  # the same last digit whatever order they came in
        rest.append((Release(Everyone(), heaviest(charges)[-1] ** -0.5), 1))
    return frozenset(rest)


def _interval(releases: frozenset[tuple[Booked, int]], neighbours: Neighbours) -> float:
    """Grid of the privacy loss: dp-accounting's own, coarser when ε is far beyond any use.

    The accountant's memory grows with the range of the loss over the grid: of one release, and of
    all together, whose variance is about the Rényi divergence of order 2. Its rounding is
    pessimistic, so a coarser grid stays an upper bound; it starts where ε is about 50 and up.
    """
    shift = 1.0 if neighbours == "add-remove" else 2.0
    variance, widest = 0.0, 0.0
    for release, count in releases:
        assert isinstance(release, Release)  # a tuning has no PLD
        rate = release.sampler.anywhere if isinstance(release.sampler, Poisson) else 1.0
        one = (shift / release.noise_multiplier) ** 2
        # ln(1 + rate² (e^one − 1)), also where e^one is beyond all numbers
        variance += count * (math.log1p(rate**2 * math.expm1(one)) if one < 50 else one)
        widest = max(widest, one)
    loss_range = max(spread / 2 + 8 * math.sqrt(spread) for spread in (variance, widest))
    return 1e-4 * max(1.0, loss_range / 100)


def check_neighbours(neighbours: str) -> None:
    if neighbours not in NEIGHBOURS:
        raise TacitError(f"neighbours={neighbours!r}: choose add-remove or replace")


def affordable(
    so_far: Mapping[B, int],
    coming: Sequence[Release],
    budget: float,
    delta: float,
    neighbours: Neighbours,
) -> int:
    """How many of the coming releases fit into the budget, in their order."""

    def fits(more: int) -> bool:
        total: Counter[Booked] = Counter(dict[Booked, int](so_far.items()))
        total.update(coming[:more])
        return spent(total, delta, neighbours).epsilon <= budget

    if fits(len(coming)):
        return len(coming)
    low, high = 0, len(coming)  # fits(low) or low == 0; not fits(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low if low and fits(low) else 0


def growth(releases: Sequence[Release], delta: float, neighbours: Neighbours) -> list[float]:
    """ε after 0, 1, … of these releases, for display while a run goes on.

    Exact at a few counts and interpolated between them (ε is close to a power of what the task that
    is most often in has paid). Where little was released, δ may cover all of it and ε is zero: the
    next larger one is shown there. A guarantee is never interpolated: it is computed from the
    ledger.
    """
    most = len(releases)
    exact = sorted({1, *(max(1, round(most * share)) for share in (0.01, 0.1, 0.3, 0.6, 1))})
    known = [spent(Counter(releases[:n]), delta, neighbours).epsilon for n in exact]
    if not all(0 <= epsilon < math.inf for epsilon in known):
        return [0.0] + [math.inf] * most
    least = min((epsilon for epsilon in known if epsilon > 0), default=0.0)
    if least == 0:
        return [0.0] * (most + 1)
    known = [max(epsilon, least) for epsilon in known]
    paid = np.log(heaviest((release.sampler, release.noise_multiplier**-2) for release in releases))
    between = np.exp(np.interp(paid, paid[np.array(exact) - 1], np.log(known)))
    return [0.0, *between.tolist()]
