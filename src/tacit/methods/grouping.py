"""Groups of tasks that nobody was told of: how they are found, and what a member contributes.

Two methods stand on this: `clusters` (any model, by gradient descent) and `cluster-priors` (linear
models, exactly). Both go through the same stages, each of which is one release:

    moments   mean and second moment of x, what a task found by itself in few numbers (`sketched`)
    votes     a task votes for the one of many public points that is nearest to its x
    (rounds)  a task joins a group and contributes in that group's block alone, beside its count
              and in a table whether it is better off with two groups or with them as one

Moments alone say in which directions tasks lie apart, but not where in them: `points` puts many
points on an ellipsoid in those directions, and the votes are a histogram over it, whose peaks are
where groups begin (`placed`). How many there are is read off the same two releases: as many
directions as stand out of noise and bulk and one more, and only peaks that stand out of the noise.
Later rounds merge groups that tasks are not better off with (`merged`): votes may begin with one
too many, and two that differ a little are each noisier than both as one. Nothing is ever split.

**What is bounded.** All that a task sends in a round is one vector of length at most a clip; in
clips it is

    moments   (√a x, √b flat(xxᵀ), ..),  ‖x‖ ≤ 1, shares that add up to 1: length² ≤ a + b + .. = 1
    votes     one number 1 and zeros: length 1
    rounds    √(1−s−t) u in the block of its group, ‖u‖ ≤ 1, √s in that group's count, and √t in
              one cell of the table; zeros elsewhere: length² ≤ (1 − s − t) + s + t = 1

So each round is one release with one multiplier, whatever the number of groups. *A task added or
removed* moves the sum by its own vector: at most one clip. *A task replaced* moves it by the
difference of two such vectors, at most two clips, and `replaced` = 2 is what is booked. (What is
reached is less. In another group and cell, or for another point, the two vectors have no coordinate
in common: √2. In the same group counts cancel: √(4(1−s−t) + 2t), or 2√(1−s−t) in the same cell.
Moments: √(4a + 2b + ..).) Which group a task joins, or point it votes for, and what groups are
worth to it are functions of its rows and the billboard like the rest of its vector, so they need no
accounting of their own; they are never told, only summed with noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import Board, OnBillboard
from tacit.methods.grouping_start import MOST, POINTS, all_around, one_hot, placed, points

AUTO = "auto"

COUNT_SHARE, WORTH_SHARE = 0.03, 0.04
"""Parts of a round's release for the counts of members, and for what groups are worth to them."""
LEAST, DESERTED = 0.25, 0.3
"""The smallest share of tasks that is divided by, and one below which a group may be empty; in
shares of groups that are all alike."""
USUAL, CHANGE = 0.9, (0.5, 1.25)
"""The usual length of an update in its bound, and how much that bound may change in a round."""
START_SHARES = (0.3, 0.1)
"""Parts of the budget (in inverse variance) for the moments and the votes, before groups learn."""
NEEDED, SURE = 0.625, 3.0
"""Of the tasks that compare two groups, this share must be better off with them than with both as
one; they are merged if it is less by so many standard deviations of noise. More than half, because
noise adds up over the rounds that are left, and each group has more of it than both as one."""
MOVES, WORTH_MOVES = 0.02, 0.01
"""How much a share of tasks changes from round to round, about: tasks may join another group. And
how much a cell of the table of what groups are worth does."""


def within(vector: Tensor, length: float | Tensor) -> Tensor:
    """At most so long."""
    norm = torch.linalg.vector_norm(vector)
    return vector * (length / norm.clamp(min=1e-30)).clamp(max=1.0)


def reaching(reach: Tensor, mean_square: Tensor) -> Tensor:
    """The next bound of updates, in clips, where these are the squares of their lengths in it.

    So that it stays a little above the usual length: a longer bound is more noise, a shorter one
    leaves too much out. It never becomes longer than the clip: groups are small, so their noise is
    large already.
    """
    usual = torch.sqrt(mean_square.clamp(min=0.0)) / USUAL
    return (reach * usual.clamp(*CHANGE)).clamp(max=1.0)


def contributed(
    update: Tensor, joined: Tensor, worth: Tensor, clip: float, share: float = 1.0
) -> Tensor:
    """A member's vector: its update in its group's block, its count, and what groups are worth.

    Together they have `share` of a release. One group has no counts. Without a clip, numbers are as
    they are.
    """
    several = len(joined) > 1
    if not several:
        return update if share == 1 else within(update, clip) * math.sqrt(share)
    longest, counted, tabled = _parts(clip, share)
    blocks = torch.outer(joined, longest * within(update, clip)).flatten()
    return torch.cat([blocks, counted * joined, tabled * worth.flatten()])


def _parts(clip: float, share: float) -> tuple[float, float, float]:
    """With several groups: by what updates are multiplied, and what count and table are."""
    if not math.isfinite(clip):
        return 1.0, 1.0, 1.0
    parts = (1 - COUNT_SHARE - WORTH_SHARE, COUNT_SHARE, WORTH_SHARE)
    longest, counted, tabled = (math.sqrt(share * part) for part in parts)
    return longest, clip * counted, clip * tabled


def split(
    released: Tensor, groups: int, clip: float, share: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean updates [groups, d] and counts [groups] of what was sent; and how many are better, and
    how many worse off with a pair of groups than with both as one [2, groups, groups]."""
    longest, counted, tabled = _parts(clip, share)
    blocks, counts, table = released.tensor_split([-groups * (groups + 1), -groups * groups])
    table = table.reshape(groups, groups) / tabled
    better, worse = table.triu(1), table.tril(-1)
    return (
        blocks.reshape(groups, -1) / longest,
        counts / counted,
        torch.stack([better + better.T, worse + worse.T]),
    )


def steps(
    blocks: Tensor, counts: Tensor, known: Tensor, doubt: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The mean update of each group [groups, d]; shares of tasks in each, and their variance.

    `known` are the shares so far, `doubt` is their variance, and `noise` that of these counts:
    counts of several rounds are averaged, because each alone is noisy. A share counts as at least
    `LEAST` of an even one, so that noise is never blown up beyond measure. A group that seems empty
    is given up.
    """
    there = known > 0
    shares, doubt = averaged(known, counts, doubt, noise, MOVES)
    blur, even = torch.sqrt(doubt), 1 / there.sum()
    empty = (shares < 2 * blur) & (shares + blur < DESERTED * even) & (shares < shares.max())
    there = there & ~empty
    shares = torch.where(there, shares.clamp(min=1e-3), 0.0)
    shares = shares / shares.sum()
    divisor = torch.maximum(shares, LEAST * even).unsqueeze(1)
    return torch.where(there.unsqueeze(1), blocks / divisor, 0.0), shares, doubt


def averaged(
    known: Tensor, fresh: Tensor, doubt: Tensor, noise: Tensor, moves: float
) -> tuple[Tensor, Tensor]:
    """What was known with this variance and moves a little in a round, with a fresh release."""
    before = doubt + moves**2
    gain = before / (before + noise)
    return known + gain * (fresh - known), gain * noise


def as_one(shares: Tensor, models: Tensor) -> Tensor:
    """The mean of groups' models [groups, d] with the least noise: a group with half as many tasks
    has twice as much, so that it counts a quarter."""
    weights = shares**2
    return weights @ models / weights.sum().clamp(min=1e-30)


def merged(
    models: Tensor, shares: Tensor, worth: Tensor, doubt: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The pair of groups that is worth least to tasks as one, if that is not enough.

    Two groups may well differ, and their tasks still be better served by one model with less noise.
    """
    groups, there, (better, worse) = len(shares), shares > 0, worth
    blur = torch.sqrt(doubt * ((1 - NEEDED) ** 2 + NEEDED**2))
    enough = (1 - NEEDED) * better - NEEDED * worse + SURE * blur
    pairs = torch.triu(there[:, None] & there, diagonal=1)
    enough = torch.where(pairs, enough, torch.inf)
    pair = one_hot(-enough.flatten()).reshape(groups, groups) * (enough.min() < 0)
    kept, given_up = pair.sum(dim=1), pair.sum(dim=0)  # one-hot, or zeros where none are merged
    mean = as_one((kept + given_up) * shares, models)
    models = torch.where(kept.unsqueeze(1) > 0, mean, models)
    into = torch.eye(groups).to(shares) - torch.diag(given_up) + pair
    return models, into @ shares, into @ worth @ into.T


@dataclass(frozen=True, kw_only=True)
class Grouped(OnBillboard):
    """A method with several models on the billboard, of which a task joins one."""

    groups: int | str = AUTO
    """How many groups there are at most; "auto": as many as stand out of the noise, perhaps one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.groups == AUTO or (isinstance(self.groups, int) and self.groups >= 1)
        self._require("groups", known, "at least 1, or 'auto'")

    @property
    def most(self) -> int:
        """For how many groups the billboard has room."""
        return self.groups if isinstance(self.groups, int) else MOST

    @property
    def unit(self) -> float:
        """What contributions are measured in: the clip, or plain numbers where there is none."""
        return self.clip if math.isfinite(self.clip) else 1.0

    def part(self, share: float) -> float:
        """How long a part with this share of a release may be, in a clip; 1 where there is none."""
        return self.clip * math.sqrt(share) if math.isfinite(self.clip) else 1.0

    def staged(self, rounds: int, finding: tuple[str, ...]) -> tuple[str, ...]:
        """Rounds that find groups, then all others."""
        if rounds < len(finding):
            raise TacitError(
                f"{self.called} needs {len(finding)} rounds to find groups: give more than "
                f"{rounds}, or groups = 1"
            )
        return (*finding, *("",) * (rounds - len(finding)))

    def spread(self, rounds: int, *, rising: bool) -> tuple[float, ...]:
        """The budget over all rounds: for finding groups, and evenly or rising for the others."""
        before = START_SHARES if self.most > 1 else ()
        later = [1.0 + t * rising for t in range(rounds - len(before))]
        rest = (1 - sum(before)) / max(sum(later), 1.0)
        parts = (*before, *(rest * part for part in later))[:rounds]
        return tuple(math.sqrt(part / max(parts)) for part in parts)

    def room(self, start: Tensor, numbers: int) -> dict[str, Tensor]:
        """What the billboard holds for groups, all of which begin at the same model [d]."""
        most, zeros = self.most, start.new_zeros
        return {
            "directions": all_around(min(most - 1, numbers)).to(start),
            "models": start.expand(most, -1).clone(),
            "reach": zeros(()) + 1.0,
            "share": zeros(most) + 1 / most,
            "doubt": zeros(()) + 1.0,
            "worth": zeros(2, most, most),
            "unsure": zeros(()) + 1.0,
            "points": zeros(POINTS, numbers),
            "cosines": zeros(POINTS, POINTS),
            "apart": zeros(()),
            "centres": zeros(most, numbers),
            "clear": zeros(()) + 1.0,
        }

    def votable(
        self, board: Board, middle: Tensor, spread: Tensor, noise: Tensor
    ) -> dict[str, Tensor]:
        """After the moments: what tasks vote on next."""
        found = points(board["directions"], middle, spread, noise, auto=self.groups == AUTO)
        names = ("points", "cosines", "apart")
        return {name: value.to(board[name]) for name, value in zip(names, found, strict=True)}

    def counted(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        """After the votes: where groups begin, and which of them there are."""
        votes, noise = mean.double() / self.unit, torch.as_tensor(board.noise).double()
        points, cosines = board["points"].double(), board["cosines"].double()
        centres, share = placed(votes, noise, points, cosines, board["apart"], self.most)
        doubt = noise**2 * POINTS / self.most
        # Peaks wherever there is room for one: tasks are spread, and who is alike is not clear yet.
        clear = (share == 0).any() if self.groups == AUTO else torch.ones_like(share[0])
        found = {"centres": centres, "share": share, "doubt": doubt, "clear": clear}
        return {name: value.to(board[name]) for name, value in found.items()}

    def stepped(self, board: Board, mean: Tensor, share: float = 1.0) -> dict[str, Tensor]:
        """After a round: each group's model, moved by the mean of its members.

        Updates were divided by the present `reach` before they were sent. Groups are merged once
        tasks compare models.
        """
        if self.most == 1:
            moved = mean.unsqueeze(0) / math.sqrt(share)
            return {"models": board["models"] + board["reach"] * moved}
        blocks, counts, worth = split(mean, self.most, self.clip, share)
        variance = torch.as_tensor(board.noise) ** 2 / share
        known = (board["share"], board["doubt"], variance / COUNT_SHARE)
        moved, shares, doubt = steps(blocks, counts, *known)
        models = board["models"] + board["reach"] * moved
        after = {"models": models, "share": shares, "doubt": doubt}
        if board.stage:
            return after
        variance = variance / WORTH_SHARE
        worth, unsure = averaged(board["worth"], worth, board["unsure"], variance, WORTH_MOVES)
        after["models"], after["share"], after["worth"] = merged(models, shares, worth, unsure)
        return after | {"unsure": unsure}

    def compared(
        self, model: FlatModel, board: Board, buffers: Tensor, batches: Batches
    ) -> tuple[Tensor, Tensor]:
        """One-hot, the group with the smallest loss on a task's rows; and what groups are worth.

        One half of its first batch says which group is best and which is next. The other half, by
        which neither was chosen, says whether the best has a smaller loss than both as one: then
        there is a 1 in the upper cell of the two, otherwise in the lower one.
        """
        if self.most == 1:
            return torch.ones_like(board["share"]), torch.zeros_like(board["worth"][0])
        x, y, weight = (part[0] for part in batches)
        even = torch.arange(len(weight)).to(weight.device) % 2 == 0
        halves = [(x, y, weight * even), (x, y, weight * ~even)]
        parts, nowhere = [*halves, *list(batches.steps())[1:]], self.there(board)

        def losses(w: Tensor) -> Tensor:
            return torch.stack([model.loss(w, buffers, *part)[0] for part in parts])

        each = vmap(losses)(board["models"])
        score = nowhere - each[:, 0]
        best = one_hot(score)
        others = torch.where(best > 0, -torch.inf, score)
        pair = torch.outer(best, one_hot(others))
        pair = pair + pair.T
        together = as_one(pair.sum(dim=0) * board["share"], board["models"])
        better = best @ each[:, 1] < model.loss(together, buffers, *halves[1])[0]
        filled = torch.stack([part[-1].sum() > 0 for part in halves]).all()
        worth = torch.where(better, pair.triu(1), pair.tril(-1))
        worth = torch.where(filled & others.isfinite().any(), worth, 0.0)
        return one_hot(nowhere - each.sum(dim=1)), worth

    def there(self, board: Board) -> Tensor:
        """What is added to a group's score: nothing, or −∞ for a group that is none."""
        return torch.where(board["share"] > 0, 0.0, -torch.inf)
