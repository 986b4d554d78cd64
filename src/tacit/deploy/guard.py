"""What a silo checks before it works, and before anything leaves it.

A coordinator is not trusted with anything that a silo can see for itself: it computes from its own
copy of the terms, and a request that does not fit them is refused with the reason.
"""

from __future__ import annotations

import math
import re
from collections import Counter

import torch
from scipy.stats import binom
from torch import Tensor

from tacit.deploy.messages import Request
from tacit.deploy.terms import Terms, differences
from tacit.methods import BillboardMethod, Method, OnBillboard
from tacit.privacy import Privacy, Release, spent
from tacit.privacy.accounting import of_tasks
from tacit.privacy.channel import CLIP_STEP, Channel
from tacit.privacy.guarantee import epsilon_up

RUN = re.compile(r"[0-9a-f]{32}")
SLACK = 1e-6
"""Relative; numbers that went through JSON and single precision may be off by less."""


UNLIKELY = 1e-9
"""What is less likely than this under the agreed sampling was not drawn by it."""


class Refused(Exception):
    """A request that a silo does not fulfil; the reason may be told to anybody."""


def check_terms(agreed: Terms, request: Request) -> None:
    """Refuse another method, model, clip, number of rounds, or anything else not agreed."""
    found = differences(agreed, request.terms)
    if found:
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise Refused(f"this was not agreed: {'; '.join(found[:3])}{more}")
    if not RUN.fullmatch(request.run):
        raise Refused("a run is named by 32 hexadecimal digits")
    after = request.kind in ("finish", "measure")  # in the round after the last
    if request.round >= agreed.rounds + after:
        raise Refused(f"round {request.round + 1} was asked for, agreed were {agreed.rounds}")
    if request.kind == "measure" and not agreed.metrics:
        raise Refused("scores were asked for, which was not agreed")
    if agreed.seed is not None and request.key != agreed.seed:
        raise Refused(f"the key is {request.key}, agreed was seed {agreed.seed}")


def check_noise(agreed: Terms, privacy: Privacy | None, releases: list[Release]) -> None:
    """Refuse noise that does not make all rounds together as private as agreed."""
    if privacy is None:
        return
    if privacy.tasks_epsilon is not None:
        delta = privacy.delta_for(len(agreed.silos))
        whole = spent(of_tasks(Counter(releases)), delta, privacy.neighbours).epsilon
        if not whole <= privacy.tasks_epsilon * (1 + SLACK):
            raise Refused(
                f"this gives whole silos ε={epsilon_up(whole)} after {len(releases)} releases, "
                f"agreed was ε={privacy.tasks_epsilon:g}"
            )
    noise = min(release.noise_multiplier for release in releases)
    if privacy.noise is not None:
        if noise < privacy.noise * (1 - SLACK):
            raise Refused(f"noise {noise:g} was offered, agreed was {privacy.noise:g}")
        return
    assert privacy.epsilon is not None
    delta = privacy.delta_for(len(agreed.silos))
    epsilon = spent(Counter(releases), delta, privacy.neighbours).epsilon
    if not epsilon <= privacy.epsilon * (1 + SLACK):
        raise Refused(
            f"noise {noise:g} gives ε={epsilon_up(epsilon)} after {len(releases)} releases, "
            f"agreed was ε={privacy.epsilon:g}"
        )


def check_clip(method: Method, privacy: Privacy | None, request: Request) -> float:
    """The clip of this round; an adaptive one cannot have grown faster than its rule allows."""
    if not isinstance(method, OnBillboard) or privacy is None:
        if request.clip is not None:
            raise Refused("a clip was sent, but contributions are not clipped")
        return math.inf
    if request.clip is None or not 0 < request.clip < math.inf:
        raise Refused(f"a clip of {request.clip} was asked for, agreed was {method.clip:g}")
    largest = method.clip
    if isinstance(method, BillboardMethod) and method.clip_quantile is not None:
        largest *= math.exp(CLIP_STEP * method.clip_quantile * request.round)
    elif request.clip < method.clip * (1 - SLACK):
        raise Refused(f"a clip of {request.clip:g} was asked for, agreed was {method.clip:g}")
    if request.clip > largest * (1 + SLACK):
        raise Refused(f"a clip of {request.clip:g} was asked for, agreed was at most {largest:g}")
    return request.clip


def check_spread(agreed: Terms, channel: Channel, request: Request) -> None:
    """Refuse a wrong word about the noise: some methods trust a billboard less for it."""
    if agreed.curator is not None:
        return  # several servers add noise, and how many of them do is not known here
    spread = channel.noise_at(min(request.round, agreed.rounds - 1))
    if not math.isclose(request.spread, spread, rel_tol=SLACK):
        raise Refused(f"a spread of {request.spread:g} was told, but it is {spread:g}")


def check_turn(channel: Channel, task: int, round: int) -> None:
    """Refuse to contribute out of turn: who takes turns pays for its own rounds and no others."""
    if not channel.sampler.secret and task not in channel.cohort(round):
        raise Refused(f"round {round + 1} was asked for, in which it is not this silo's turn")


def check_often(asked: int, rounds: int, rate: float) -> None:
    """Refuse to be in more cohorts than the agreed sampling explains: secrecy of cohorts is paid
    for with less noise, and one who is always drawn has none of it."""
    chance = float(binom.sf(asked - 1, rounds, min(rate, 1.0)))
    if chance < UNLIKELY:
        raise Refused(
            f"this silo was drawn in {asked} of {rounds} rounds, but {rate:.3g} of them were agreed"
        )


def check_leaving(vector: Tensor, size: int, *, bounded: bool) -> Tensor:
    """The last look at what is about to leave: its size, its numbers, its length.

    A sum over persons has no length that could be looked at: each of them was bounded before.
    """
    if vector.shape != (size,):
        raise Refused(f"what would leave has {tuple(vector.shape)} numbers, agreed were {size}")
    if not bool(torch.isfinite(vector).all()):
        raise Refused("what would leave is not finite")
    if bounded and float(torch.linalg.vector_norm(vector.double())) > 1 + SLACK:
        raise Refused("what would leave is longer than the clip")
    return vector
