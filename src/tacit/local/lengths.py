"""What a mixed model must know before anything is said about β, chosen by votes.

One-hot votes are bounded whatever a task's rows hold: for the length that its information and score
have together, and for the level of each of its scores, where the outcome is not a plain number
(those are brought to common units). A contribution is as long as one vote.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LENGTHS = torch.logspace(0, 5, 31, dtype=torch.float64)
STEP = 10 ** (1 / 6)
"""From a mark to the next."""
LEVELS = torch.arange(-6, 10, dtype=torch.float64)
"""Scores of a task's own mean outcome, to the nearest whole one."""
CLEAR = 3.0
"""A level is believed where its votes rise above so many standard deviations of the noise."""


class Voted(NamedTuple):
    """What most tasks have."""

    length: Tensor
    weight: Tensor
    """Of a task that is shortened to this length, as the mean over what tasks say: Σw²L/ΣwL."""
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
    found = [LEVELS.to(mean)[_middle(_heard(each, noise))] for each in about.unbind()]
    clear = about.amax(1) > CLEAR * noise if asked else about.new_zeros(0)
    levels = torch.where(clear, torch.cat(found), 0.0) if asked else mean.new_zeros(0)
    # Rounded down: noise goes down with the length, and what is said goes down by less.
    heard, marks = _heard(shares[: len(LENGTHS)], noise), LENGTHS.to(mean)
    length = marks[(_middle(heard) - 1).clamp(min=0)].reshape(())
    # A vote for a mark stands for lengths down to the mark before it.
    said = heard * (marks * STEP**-0.5).clamp(max=length)
    weight = (said * (length * STEP**0.5 / marks).clamp(max=1.0)).sum() / said.sum()
    return Voted(length, weight, levels)


def _one(value: Tensor, marks: Tensor) -> Tensor:
    """One at the first of the marks that is not below the value, or at the last."""
    place = (marks.to(value) < value).sum().clamp(max=len(marks) - 1)
    return (torch.arange(len(marks)).to(place) == place).double()


def _heard(shares: Tensor, noise: Tensor) -> Tensor:
    """Votes that rise above the noise; if none does, those for the best alone."""
    best = (torch.arange(len(shares)).to(shares.device) == shares.argmax()).double()
    return (shares - 1.5 * noise).clamp(min=0.0) + 1e-6 * best


def _middle(heard: Tensor) -> Tensor:
    """The place [1] of the mark that half of the tasks are below."""
    below = heard.cumsum(0) / heard.sum() < 0.5
    return below.sum().clamp(max=len(heard) - 1).reshape(1)
