"""What a mixed model must know before anything is said about β, chosen by votes.

One-hot votes are bounded whatever a task's rows hold: for the length that its information and score
have together, and for the level of each of its scores, where the outcome is no plain number (those
are brought to common units). A contribution is as long as one vote.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LENGTHS = torch.logspace(0, 5, 31, dtype=torch.float64)
LEVELS = torch.arange(-6, 10, dtype=torch.float64)
"""Scores of a task's own mean outcome, to the nearest whole one."""
CLEAR = 3.0
"""A level is believed where its votes rise above so many standard deviations of the noise."""


class Voted(NamedTuple):
    """What most tasks have."""

    length: Tensor
    levels: Tensor
    """[outputs]; zero where votes drowned, and none where nobody was asked."""


def votes(length: Tensor, levels: Tensor) -> Tensor:
    """One task's votes, for its length and for its levels [outputs]."""
    cast = [_one(length, LENGTHS), *(_one(each - 0.5, LEVELS) for each in levels.unbind())]
    return torch.cat(cast) / math.sqrt(len(cast))


def read(mean: Tensor, noise: Tensor) -> Voted:
    """What the votes (shares of all tasks, with noise) say."""
    asked = (len(mean) - len(LENGTHS)) // len(LEVELS)
    unit = math.sqrt(1 + asked)
    shares, noise = mean * unit, noise * unit
    about = shares[len(LENGTHS) :].reshape(asked, len(LEVELS))
    found = [LEVELS.to(mean)[_middle(each, noise)] for each in about.unbind()]
    clear = about.amax(1) > CLEAR * noise if asked else about.new_zeros(0)
    levels = torch.where(clear, torch.cat(found), 0.0) if asked else mean.new_zeros(0)
    # Rounded down: noise goes down with the length, and what is said goes down by less.
    length = (_middle(shares[: len(LENGTHS)], noise) - 1).clamp(min=0)
    return Voted(LENGTHS.to(mean)[length].reshape(()), levels)


def _one(value: Tensor, marks: Tensor) -> Tensor:
    """One at the first of the marks that is not below the value, or at the last."""
    place = (marks.to(value) < value).sum().clamp(max=len(marks) - 1)
    return (torch.arange(len(marks)).to(place) == place).double()


def _middle(shares: Tensor, noise: Tensor) -> Tensor:
    """The place [1] of the mark that half of the tasks are below."""
    heard = (shares - 1.5 * noise).clamp(min=0.0)
    best = (torch.arange(len(shares)).to(shares.device) == shares.argmax()).double()
    heard = heard + 1e-6 * best
    below = heard.cumsum(0) / heard.sum() < 0.5
    return below.sum().clamp(max=len(shares) - 1).reshape(1)
