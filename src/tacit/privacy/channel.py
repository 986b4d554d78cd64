"""The billboard channel: the only way from tasks to the billboard, and where privacy is proved.

    contributions ─► drop non-finite ─► clip to γ, on a grid ─► sum (exact) ─► book
                                        ─► + round(N(0, (zγ)² I)) ─► ÷ q̄ ─► mean

With a relation, a clipped contribution is spread over r sums by public loadings of length at most
one: the r sums together still move by at most γ, so everything below holds for them as one vector.

With `moments`, what is summed of a clipped contribution is not itself but its place among the
moments, again one vector of bounded length: `privacy.moments` has the bound.

Who sums is a setting. By default it is this machine, which sees the clipped contributions. With a
`curator` (`secure.jobs`) each task's integers are made here and handed over; what comes back is
a noisy sum that is still sealed, then the release is booked, then it is opened. The noise that is
booked is what one honest server adds; an opened sum has that of all of them.

A contribution that is zero but for part of a long vector comes as that part alone, and with where
it lies (`privacy.reach`): its length is the same, and so is what it adds to the sum.

With an adaptive clip (Andrew et al., "Differentially Private Learning with Adaptive Clipping",
2021) each task also says whether it was within the clip, as +½ or −½, and γ follows a quantile of
the norms. The bit is one more coordinate of the same release: noise z√(1/(1−s)) on the update and
z/(2√s) on the bits is together exactly a Gaussian release with multiplier z, for any share s.

**Persons.** Where the unit of privacy is a person, all of the above holds with persons in the place
of tasks: what is clipped and summed is what each person's own rows say about the billboard, and the
claim below is read with "person" for "task". Their own task is then no observer: it has their rows.
A person who may be at N tasks is bounded by a clip over N at each, so by one clip in all (`share`).
Where tasks add the noise themselves, each adds as much as its own persons need to what it sends;
others' noise comes on top and is not counted on. What is public about a task must not depend on its
persons either: `data.persons` has what tasks do before, and their number is not asked for (q̄ is
made of a public guess). `privacy.subtotal` is what a task does that is on a machine of its own.
Where a person sends one gradient, `privacy.factors` bounds and sums it on the same grid.

**Both at once.** The same release hides whole tasks as well if each task's sum over its bounded
persons is itself bounded, to κ clips (`task_clip`): it is replaced by the nearest point of a ball.
A task that is added or removed, with all of its persons, then moves the sum by κ at most, whoever
they are, and is hidden by a noise multiplier of z/κ; all tasks are in every release, so persons who
are drawn in secret amplify nothing for them. For persons nothing changes. Nearest points of a ball
are no further apart than what they are nearest to, so a person moves its task's shortened sum by no
more than before, and no other task's; what rounding may add is taken off every person's clip first
(`Grid.off`, `parts`). Where a person is at N tasks, that holds at each. The two promises are read
off the same ledger by `Release` and `Release.of_tasks`, each composed by itself: no ε is of both.
Where tasks add noise themselves, one that is not there adds none, which everybody sees: then only
tasks with other rows are neighbours (replace, 2κ), and its own noise hides it.

**Claim.** Let every round release `mean` as above and let everything else (the next billboard, the
personal models of the other tasks) be computed from releases and from each task's own data. Then
all that the other tasks see together, in all rounds, is (ε, δ)-differentially private with respect
to one task, with ε as `accounting.spent` computes it from the ledger.

**Proof.** A contribution has norm at most γ, a non-finite one counts as zero; so adding or removing
a task moves the sum by at most γ, replacing it by at most 2γ. Nothing else moves, because tasks
meet here and nowhere else: what another task contributes, given the billboard, does not depend on
this one (`local.chunks`, `local.batches`, `data.split`). Sums are of integers, so they are exact in
any order, and rounded Gaussian noise of standard deviation zγ on them is as private as the Gaussian
mechanism (`tacit.privacy.grid`); over a sampled cohort it is the mechanism that the sampler's event
describes. The divisor q̄ is a constant. Rounds compose adaptively; the billboard is post-processing.
Each task's model is a function of the billboard and its own data, so by the billboard lemma (Hsu et
al. 2014) the models of all other tasks are jointly (ε, δ)-private for the task left out. ∎

| edge case                            | what happens                                            |
|--------------------------------------|---------------------------------------------------------|
| NaN or infinity in a contribution    | the whole contribution counts as zero, and is counted   |
| norm overflows single precision      | it is clipped: lengths are in double precision          |
| zero contribution, empty cohort      | the release is noise around zero; booked all the same   |
| noise 0                              | runs, and the guarantee says ε = ∞                      |
| no privacy asked                     | no clip, no noise, nothing booked; non-finite dropped |
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.data.relation import Relation
from tacit.errors import TacitError
from tacit.privacy.accounting import Booked, Release, affordable, of_tasks
from tacit.privacy.asked import Privacy
from tacit.privacy.bounds import Bounded, Place
from tacit.privacy.curator import Curator
from tacit.privacy.grid import TAILS, Grid
from tacit.privacy.ledger import Ledger
from tacit.privacy.moments import Moments
from tacit.privacy.reach import Reach
from tacit.privacy.sampling import Neighbours, Sampler
from tacit.randomness import Ahead, Randomness, name_key

CLIP_STEP = 0.2
"""How fast an adaptive clip moves, in logarithm."""
LONG = 1 << 14
"""So many numbers of noise are worth a thread of their own."""
ROOM = 4
"""How many times the persons that there are about, in all, may be at a single task."""


class BudgetSpent(TacitError):
    """The next release would pass the budget; the run ends here, with what it has."""


@dataclass(frozen=True)
class Budget:
    """What must not be passed."""

    epsilon: float
    delta: float
    neighbours: Neighbours
    tasks_epsilon: float | None = None
    """Of whole tasks, where persons are hidden and tasks are, too."""

    @classmethod
    def of(cls, privacy: Privacy, delta: float) -> Budget | None:
        """Of a run that promises this; None if it only reports what it spent."""
        if privacy.epsilon is None and privacy.tasks_epsilon is None:
            return None
        epsilon = math.inf if privacy.epsilon is None else privacy.epsilon
        return cls(epsilon, delta, privacy.neighbours, privacy.tasks_epsilon)

    @property
    def words(self) -> str:
        """What it allows."""
        tasks = f"ε={self.tasks_epsilon:g} of tasks" if self.tasks_epsilon is not None else ""
        own = f"ε={self.epsilon:g}" if math.isfinite(self.epsilon) else ""
        return " or ".join(filter(None, (own, tasks)))

    def affordable(self, so_far: Counter[Booked], coming: Sequence[Release]) -> int:
        """How many of the coming releases can be paid, in their order."""
        many = affordable(so_far, coming, self.epsilon, self.delta, self.neighbours)
        if self.tasks_epsilon is None:
            return many
        past, ahead = of_tasks(so_far), [release.of_tasks for release in coming]
        return min(many, affordable(past, ahead, self.tasks_epsilon, self.delta, self.neighbours))


@dataclass
class Channel:
    """Collects the contributions of a cohort and lets out their noisy mean.

    `release` is None for a run without privacy: then nothing is clipped, noised or booked.
    """

    sampler: Sampler
    """Who takes part in a round."""
    tasks: int
    """How many there are, which everybody knows."""
    randomness: Randomness
    """Where cohorts and noise are drawn from."""
    clip: float = math.inf
    """The greatest length of a contribution."""
    release: Release | None = None
    """How precise a noisy sum is; None without privacy."""
    budget: Budget | None = None
    """What the releases may cost together."""
    ledger: Ledger = field(default_factory=Ledger)
    """Where a release is booked before it is made."""
    dropped: int = 0
    """Contributions that held NaN or infinite numbers, and counted as zero."""
    relation: Relation | None = None
    """How tasks are publicly related, where sums are made along that."""
    quantile: float | None = None
    """Share of contributions that should be within the clip; None keeps the clip as it is."""
    moments: Moments | None = None
    """What is summed; None for the contributions themselves."""
    weights: tuple[float, ...] | None = None
    """How precise each round's release is, relative to `release`; None for all alike."""
    curator: Curator | None = None
    """Who sums in the place of this machine."""
    share: int = 1
    """Who contributes at so many places is bounded by that part of a clip at each."""
    noisy_tasks: tuple[str, ...] = ()
    """Tasks that each add the whole noise to what they send; by default whoever sums adds it."""
    noise_comes: bool = False
    """Whether that noise is in what comes from them; otherwise it is drawn here, in their place."""
    _room: int | None = None

    def release_at(self, round: int) -> Release | None:
        """The release of this round."""
        if self.release is None:
            return None
        weight = 1.0 if self.weights is None else self.weights[round]
        sampler = self.sampler.at(round, self.randomness.run_key)
        noise = self.release.noise_multiplier / weight
        return replace(self.release, sampler=sampler, noise_multiplier=noise)

    @property
    def unit(self) -> float:
        """What contributions are measured in: the clip, or plain numbers where there is none."""
        return self.clip if math.isfinite(self.clip) else 1.0

    def noise_at(self, round: int) -> float:
        """Standard deviation of the noise in a coordinate of this round's mean, in units."""
        release = self.release_at(round)
        multiplier = 0.0 if release is None else release.noise_multiplier
        return multiplier * self._louder * self.share / self.sampler.expected(self.tasks)

    @property
    def _louder(self) -> float:
        """The noise on a sum over that which is booked: of all who add some."""
        servers = 1 if self.curator is None else self.curator.servers
        return math.sqrt(max(1, len(self.noisy_tasks)) * servers)

    @property
    def place(self) -> Place:
        """Where contributions go in what is summed."""
        return Place(self.moments, self.relation, self.adapts)

    @property
    def of_persons(self) -> bool:
        """Whether persons contribute, and not tasks."""
        return self.release is not None and self.release.unit != "task"

    @property
    def room(self) -> int:
        """How many clips long a task's vector is at most."""
        return ROOM * self.tasks if self.of_persons else 1

    @property
    def task_clip(self) -> float | None:
        """How many clips long a task's sum over persons is at most; None where that is not bounded,
        and for tasks that contribute for themselves."""
        return None if self.release is None else self.release.task_clip

    def parts(self, size: int, grid: Grid | None) -> float:
        """What a clip is divided by at each place where somebody contributes, in sums [size].

        As many as there are places; and where a task's sum is shortened, a little more, so that
        nobody moves the shortened sums by more than a clip either.
        """
        if self.task_clip is None or grid is None:
            return self.share
        left = 1 - self.share * grid.off(size, self.task_clip)
        if left < 0.5:
            raise TacitError(
                f"{size} numbers on a grid of {grid.fraction} bits are too coarse to bound a "
                "task's sum: leave tasks_epsilon out, or use a smaller model"
            )
        return self.share / left

    def held(self, total: np.ndarray, grid: Grid) -> np.ndarray:
        """A task's sum over its persons as it is summed: there is room for it, and it is bounded
        where tasks are hidden, too."""
        within = grid.within(total, self.room)
        return within if self.task_clip is None else grid.shortened(within, self.task_clip)

    @property
    def adapts(self) -> bool:
        """Whether tasks also say if they were within the clip."""
        return self.quantile is not None and self.release is not None

    def grid_at(self, round: int) -> Grid | None:
        """The integers that this round sums; None without privacy, where nothing is bounded."""
        release = self.release_at(round)
        if release is None:
            return None
        if self.curator is not None:
            return self.curator.grid(release.noise_multiplier)
        return Grid.of(self.tasks, 1, release.noise_multiplier * self._louder)

    def noise_of(self, task: str, round: int, grid: Grid, size: int) -> np.ndarray:
        """What this task adds to its own vector, where tasks add noise."""
        release = self.release_at(round)
        assert release is not None
        normal = self.randomness.normal("noise", round, size, number=name_key(task))
        return grid.noise(normal, release.noise_multiplier)

    def longest_at(self, round: int) -> float:
        """No number in a task's sum over persons is larger, in steps of the grid."""
        release, grid = self.release_at(round), self.grid_at(round)
        assert release is not None and grid is not None
        noise = TAILS * release.noise_multiplier if self.noisy_tasks else 0.0
        return (self.room + noise) * grid.steps

    def cohort(self, round: int) -> np.ndarray:
        return self.sampler.draw(self.tasks, self.randomness, round)

    @property
    def _repeatable(self) -> bool:
        """Whether a round that is made once more has the same noise, and shows nothing new."""
        return not self.randomness.secret or (self.curator is not None and self.curator.repeats)

    def open(self, round: int, rounds: int, stage: str = "") -> Collection:
        """Begin a round; raises `BudgetSpent` before any work if its release cannot be paid.

        `stage` says what the round is for, where rounds differ; it is booked with the release.
        """
        if not (self.ledger.has(round) and self._repeatable):
            self.check_room(round, rounds)
        return Collection(self, round, rounds, stage)

    def check_room(self, round: int, rounds: int) -> None:
        """Raise `BudgetSpent` if one more release of this round cannot be paid."""
        if self.release is None or self.budget is None:
            return
        if self._room is None:
            coming = [self.release_at(t) or self.release for t in range(round, rounds)]
            so_far = self.ledger.releases()
            self._room = len(self.ledger) + self.budget.affordable(so_far, coming or [self.release])
        if len(self.ledger) >= self._room:
            raise BudgetSpent(
                f"round {round + 1} would pass the budget {self.budget.words} after "
                f"{len(self.ledger)} releases; the run stops here"
            )


class Collection:
    """The contributions of one round. What was added cannot be read, only released with noise."""

    def __init__(self, channel: Channel, round: int, rounds: int, stage: str) -> None:
        self.__channel, self.__round, self.__rounds, self.__stage = channel, round, rounds, stage
        self.__grid = channel.grid_at(round)
        self.__sum: Tensor | None = None
        self.__dropped: list[Tensor] = []
        self.__drawn: Ahead | None = None
        self.__vectors: dict[int, np.ndarray] = {}
        self.__short: tuple[Reach, Tensor] | None = None

    def expect(self, length: int) -> None:
        """Contributions of this length are under way: the noise is drawn meanwhile, if it takes
        long. It is for this one release, which is booked before it leaves."""
        channel, size = self.__channel, self.__channel.place.size(length)
        release, grid = channel.release_at(self.__round), self.__grid
        ours = channel.curator is None and not channel.noisy_tasks
        if release is not None and grid is not None and ours and size >= LONG:
            self.__drawn = Ahead(partial(self.__noise, grid, release.noise_multiplier, size))

    def add(
        self,
        contributions: Tensor,
        tasks: Tensor | None = None,
        count: int | None = None,
        reach: Reach | None = None,
    ) -> None:
        """Take the contributions [k, d] of part of the cohort: drop, clip, sum.

        `tasks` says whose they are; only a relation and a curator need to know. With `count`, only
        the first so many are meant and the others fill a chunk (see `local.chunks`). `reach` says
        where in long vectors they are, if they are short.
        """
        channel, place, grid = self.__channel, self.__channel.place, self.__grid
        plainly = channel.curator is None and channel.task_clip is None
        plainly = plainly and channel.relation is None and channel.moments is None
        if reach is not None and not plainly:
            contributions, reach = reach.whole(contributions), None
        parts = channel.parts(place.size(contributions.shape[1]), grid)
        bounded = Bounded.of(contributions, channel.clip, channel.moments).over(parts)
        bounded = bounded.first(len(contributions) if count is None else count)
        tasks = None if tasks is None else tasks[: len(bounded.scale)]
        self.__dropped.append(bounded.dropped)
        if reach is not None:
            self.__add_short(bounded.summed(place, tasks, grid), reach)
            return
        if channel.curator is None and channel.task_clip is None:
            self.__sum = bounded.summed(place, tasks, grid, self.__sum)
            return
        assert tasks is not None and grid is not None
        vectors = grid.integers(bounded.vectors(place, tasks).cpu().numpy())
        for task, vector in zip(tasks.tolist(), vectors, strict=True):
            known = self.__vectors.get(task)  # of other persons of the same task
            self.__vectors[task] = vector if known is None else known + vector

    def add_bounded(self, vectors: Tensor) -> None:
        """Take vectors [k, size] that tasks bounded themselves: each at most one clip long.

        Nobody is trusted with that: what is longer is shortened here, what is not finite is zero.

        Where persons contribute, a vector is a task's sum over them, in steps of the grid, and is
        taken as it is: nobody here can see how long it should be. No promise rests on that. Each
        task bounds its own persons, and whatever another one sends is no function of their rows.
        """
        if self.__channel.of_persons:
            self.__take(vectors.sum(dim=0))
            return
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True, dtype=torch.float64)
        self.__dropped.append((~lengths.isfinite()).sum())
        if self.__grid is not None:
            integers = self.__grid.integers(vectors.cpu().numpy())
            self.__take(torch.from_numpy(integers).sum(dim=0))
        else:
            self.__take(torch.where(lengths.isfinite(), vectors.double(), 0.0).sum(dim=0))

    def __add_short(self, total: Tensor, reach: Reach) -> None:
        if self.__short is None:
            self.__short = reach, reach.blank(total)
        reach.add(total, self.__short[1])

    def __take(self, total: Tensor) -> None:
        if self.__sum is None:
            self.__sum = total
        else:
            self.__sum += total

    def publishable(self, size: int) -> Tensor:
        """Book the release, then make it: the noisy sum over the expected cohort size.

        `size` is the length of one contribution; with a relation there are as many per sum.
        """
        channel = self.__channel
        relation, expected = channel.relation, channel.sampler.expected(channel.tasks)
        moments, place = channel.moments, channel.place
        unit = channel.unit  # an adaptive clip moves below, for the next round
        total, bits = place.apart(self.__opened(place.size(size)).mul_(channel.share))
        # Only now: a GPU has been waited for already.
        channel.dropped, self.__dropped = channel.dropped + sum(map(int, self.__dropped)), []
        if place.with_bits and not self.__stage:  # votes of a stage say nothing about the rest
            assert channel.quantile is not None
            # Too many within the clip: it is larger than asked for, and must shrink.
            excess = min(max(bits / expected + 0.5, 0.0), 1.0) - channel.quantile
            channel.clip *= math.exp(-CLIP_STEP * excess)
        total = total.float() if moments is not None else total.mul_(unit).float()
        if relation is not None:
            total = total.to(relation.scale.device)
            total = (total.reshape(relation.sums, -1) * relation.scale.unsqueeze(1)).reshape(-1)
        if moments is not None:
            total = moments.read(total, moments.vector(size), unit)
        return total.div_(expected)

    def __opened(self, size: int) -> Tensor:
        """The noisy sum in clips, in double precision: booked, then made, once."""
        channel, round = self.__channel, self.__round
        release, grid = channel.release_at(round), self.__grid
        if self.__short is not None:
            reach, upright = self.__short
            self.__take(reach.lying(upright))
        total, self.__sum, self.__short = self.__sum, None, None  # one collection, one release
        if release is None or grid is None:
            return torch.zeros(size, dtype=torch.float64) if total is None else total.cpu()
        vectors, self.__vectors = self.__vectors, {}
        if channel.of_persons:
            vectors = {task: channel.held(vector, grid) for task, vector in vectors.items()}
        if channel.curator is not None:
            sealed = channel.curator.seal(vectors, size, release.noise_multiplier, round)
            self.__book(release, size, **sealed.details)
            opened = sealed.open()
        else:
            secret, step = channel.randomness.secret, 1 / grid.steps
            if secret:
                self.__book(release, size, grid=step)
            drawn, self.__drawn = self.__drawn, None
            opened = drawn.take() if drawn else self.__noise(grid, release.noise_multiplier, size)
            for vector in (*vectors.values(), *(() if total is None else (total.cpu().numpy(),))):
                opened += vector
            if not secret:  # this noise may come again, and another sum with it is another release
                self.__book(release, size, grid=step, sum=hashlib.sha256(opened.data).hexdigest())
        return torch.from_numpy(opened).double().div_(grid.steps)

    def __noise(self, grid: Grid, multiplier: float, size: int) -> np.ndarray:
        """Of whoever sums, or of every task that adds its own."""
        channel, round = self.__channel, self.__round
        if not channel.noisy_tasks:
            return grid.noise(channel.randomness.normal("noise", round, size), multiplier)
        here = () if channel.noise_comes else channel.noisy_tasks
        each = (channel.noise_of(name, round, grid, size) for name in here)
        return sum(each, np.zeros(size, np.int64))

    def __book(self, release: Release, size: int, **details: Any) -> None:
        channel, round = self.__channel, self.__round
        details |= {"clip": channel.clip, "size": size}
        details |= {"stage": self.__stage} if self.__stage else {}
        repeats = channel._repeatable and channel.ledger.has(round)
        if (
            repeats
            and channel.curator is None
            and not channel.ledger.holds(round, release, details)
        ):
            channel.check_room(round, self.__rounds)
        channel.ledger.book(round, release, repeatable=channel._repeatable, **details)
