"""What a method is: hyperparameters and a few pure functions, written for one task.

The engine lifts `client` over the cohort with `torch.func.vmap`. That is also the fence: inside
`vmap` a task's tensors cannot be mixed with another's, read as numbers, written to anything
outside, or used after the call. `publish` never sees a task: it gets the old billboard and the
noisy mean, and is traced before any rows are touched, so that what it returns is post-processing of
a release whatever happens later. The fence is for code as people write it; Python cannot hold back
an author who digs in PyTorch's internals (see docs/privacy.md).

    board ──► state ──► client ──► (clip, sum, noise: the channel) ──► publish ──► board
                          │
                          └──► own state ──► personal model
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from tacit.data.relation import Relation
from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.privacy.moments import Moments

if TYPE_CHECKING:
    from tacit.data.federation import Federation, Kind
    from tacit.privacy import Privacy

Units = Literal["own", "common", "none"]
State = dict[str, Tensor]
"""What one task keeps between rounds; flat tensors of fixed size."""
LARGEST = 1e12
"""Numbers of a run that goes anywhere are smaller."""


@dataclass(frozen=True)
class Board:
    """The billboard: public tensors by name, and the number of rounds published so far.

    Inside `client` and `publish`, numbers are tensors like all others: compute with them, do not
    branch on them.
    """

    tensors: dict[str, Tensor]
    round: int = 0
    """How many rounds were published so far."""
    noise: float = 0.0
    """Standard deviation of this round's noise in each number of the release, in clips; public."""
    stage: str = ""
    """What this round is for, where a method's rounds differ: a word, so code may branch on it."""

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def to(self, device: torch.device | str) -> Board:
        return Board({name: value.to(device) for name, value in self.tensors.items()}, self.round)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base of all methods: how a task trains locally, and what it does with the billboard."""

    channel: ClassVar[Literal["billboard", "exchange", "nothing"]]
    """How tasks talk: through the billboard, through a curator, or not at all."""
    personal_is_public: ClassVar[bool] = False
    """Whether the personal models themselves are published (with noise)."""
    asks_persons: ClassVar[bool] = False
    """Whether a contribution is made of the billboard and rows alone, and never of what a task has
    kept: then persons can contribute in the place of tasks."""
    steps_from: ClassVar[str | None] = None
    """The tensor of the billboard from which a single local step of plain gradient descent is all
    that `client` sends; None where it sends anything else. Said beside `client`, and again by
    whoever writes another one: see `plain_step`."""
    sends_steps: ClassVar[bool] = False
    """Whether what `client` sends is made of gradients that are taken from the billboard, each
    number of those at its own place: where no row of the task has a gradient it is zero. Said
    beside `client`, and again by whoever writes another one: see `sends_only_steps`."""
    begins_at_start: ClassVar[bool] = True
    """Whether it makes use of where the model begins."""
    judges_by_rows: ClassVar[bool] = True
    """Whether tasks keep validation rows to judge by; else they learn from those, too."""
    usual_model: ClassVar[str] = "linear"
    """The name of the model that is trained if nobody says."""
    known_as: ClassVar[str] = ""
    """What `tacit methods` calls it, where that is another word than the name of its class."""

    @property
    def called(self) -> str:
        """For sentences: a word that users type."""
        return self.known_as or type(self).__name__

    def __post_init__(self) -> None:
        # A method is its hyperparameters: plain values only, so that it can neither carry data
        # from one call to the next nor be changed while it runs.
        if not type(self).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise TacitError(f"{type(self).__name__} must be a frozen dataclass")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float | str | None):
                raise TacitError(
                    f"{field.name}={value!r} is not a plain value: a method holds numbers and words"
                )

    def _require(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise TacitError(
                f"{self.called}, {name}={getattr(self, name)!r}: {name} must be {expected}"
            )

    def for_run(self, federation: Federation, privacy: Privacy | None) -> Method:
        """The method with what it takes from public facts: numbers of tasks and columns, ε."""
        return self

    @property
    def usual_rounds(self) -> int:
        """How many rounds are made if nobody says."""
        return 100

    def stages(self, kind: Kind, rounds: int) -> tuple[str, ...]:
        """What each round is for; contributions of different stages may have different lengths."""
        return ("",) * rounds

    @property
    def steps(self) -> int:
        """Batches a task needs per round."""
        return 1

    @property
    def rows(self) -> int | None:
        """Rows of a batch; None for all rows of the task."""
        return None

    @property
    def plain_step(self) -> str | None:
        """`steps_from`, where that was said of this very `client` and it makes a single step."""
        return self._said("steps_from") if self.steps == 1 else None

    @property
    def sends_only_steps(self) -> bool:
        """`sends_steps`, where that was said of this very `client`."""
        return bool(self._said("sends_steps"))

    def _said(self, name: str) -> Any:
        """What the author of `client` says of it; None where nothing is said."""
        author = next(kind for kind in type(self).__mro__ if "client" in vars(kind))
        return vars(author).get(name)

    def workspace(self, rows: int, size: int) -> int:
        """Numbers that one task has in work besides its rows; decides how many run at once."""
        return 6 * size

    @property
    def gradients(self) -> int:
        """Gradients of the model that a task takes per round: whether tracing its step pays."""
        return self.steps

    @abstractmethod
    def board(self, model: FlatModel) -> dict[str, Tensor]:
        """The billboard before the first round; made from the model's start, never from data."""

    @abstractmethod
    def state(self, model: FlatModel, board: Board) -> State:
        """What a task holds before it first takes part."""

    @abstractmethod
    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        """One task's round: its new state, and what it contributes (a flat vector)."""

    @abstractmethod
    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        """The next billboard, from the last one and the noisy mean contribution."""

    @abstractmethod
    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        """The parameters this task predicts with."""

    @property
    def settles(self) -> bool:
        """Whether tasks take a step of their own after the last round."""
        return type(self).settle is not Method.settle

    def settle(self, model: FlatModel, board: Board, state: State, batches: Batches) -> State:
        """What a task does with the last billboard and all its rows, for itself alone.

        May run again on the state that it left (after a crash), and must then give the same.
        """
        return state

    @property
    def joins(self) -> bool:
        """Whether a task that was not there can have a model of its own, from its own rows."""
        return self.settles or type(self).join is not Method.join

    def join(self, model: FlatModel, board: Board, batches: Batches) -> State:
        """What a task that was not there makes of the last billboard and all its rows."""
        return self.settle(model, board, self.state(model, board), batches)

    def updates(self, stage: str, length: int, size: int) -> int:
        """How many vectors of the model's size a contribution of this length begins with.

        Where tasks work on different heads, each of them says nothing about those of others.
        """
        return int(length == size)


@dataclass(frozen=True, kw_only=True)
class TrainedMethod(Method):
    """A method whose tasks train by stochastic gradient descent."""

    lr: float = 0.1
    """Step size of local SGD (η)."""
    local_steps: int = 5
    """Local SGD steps per round (E)."""
    batch: int | None = 20
    """Rows per local step; None for all rows of the task."""
    halve_every: int | None = None
    """Halve the step size after so many rounds."""
    steepest: float | None = None
    """Gradients are shortened to this length, so that no local step can diverge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("lr", self.lr > 0, "a positive number")
        self._require("local_steps", self.local_steps >= 1, "at least 1")
        self._require("batch", self.batch is None or self.batch >= 1, "at least 1, or None")
        self._require(
            "halve_every", self.halve_every is None or self.halve_every >= 1, "at least 1, or None"
        )

        bounded = self.steepest is None or self.steepest > 0
        self._require("steepest", bounded, "a positive number, or None")

    @property
    def steps(self) -> int:
        """More than `local_steps` if a task trains several models."""
        return self.local_steps

    @property
    def rows(self) -> int | None:
        return self.batch

    def rate(self, board: Board) -> float | Tensor:
        """The step size in this round."""
        if self.halve_every is None:
            return self.lr
        return self.lr * 0.5 ** (board.round // self.halve_every)


@dataclass(frozen=True, kw_only=True)
class OnBillboard(Method):
    """A method whose tasks speak only through bounded, noised sums: private by construction."""

    channel = "billboard"

    clip: float = 1.0
    """Largest Euclidean norm of one task's contribution (γ)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("clip", self.clip > 0 and not math.isnan(self.clip), "a positive number")

    @property
    def units(self) -> Units:
        """Whether columns stay in each task's own units, or a run first votes for common ones.

        "none": as if those votes had drowned in noise, which spares them.
        """
        return "own"

    @property
    def moments(self) -> Moments | None:
        """Which moments of the contributions are released; None for their mean alone."""
        return None

    def weights(self, rounds: int, tasks: int) -> tuple[float, ...] | None:
        """How the budget is spread over the rounds: relative precision, at most 1; None: evenly."""
        return None


@dataclass(frozen=True, kw_only=True)
class BillboardMethod(OnBillboard, TrainedMethod):
    """A method on the billboard whose tasks train by gradient descent."""

    clip_quantile: float | None = None
    """Let the clip follow this quantile of the norms, privately; `clip` is where it starts."""
    units: Units = "own"
    """"common": a few rounds vote for units of the columns first, charged inside the promise."""
    shorten: bool = False
    """Shorten a release that is longer than a clip: no mean without noise is, and noise must not
    pile up where tasks are few for so many parameters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("units", self.units in ("own", "common"), "'own' or 'common'")
        inside = self.clip_quantile is None or 0 < self.clip_quantile < 1
        self._require("clip_quantile", inside, "between 0 and 1, or None")


@dataclass(frozen=True, kw_only=True)
class RelatedMethod(BillboardMethod):
    """A method with several sums on the billboard, which each task reads in its own way.

    `read` runs before `state`, `client` and `personal`, which see the billboard as one task does.
    """

    def relation(self, federation: Federation) -> Relation:
        """What is public about the tasks' places among each other."""
        if federation.relation is None:
            raise TacitError(
                f"{self.called} needs to know how tasks are related: give "
                "federation.clustered(...) or federation.related(...), or relation = FILE in [data]"
            )
        return federation.relation

    @abstractmethod
    def sums(self, model: FlatModel, relation: Relation) -> dict[str, Tensor]:
        """The billboard before the first round, one row per sum."""

    @abstractmethod
    def read(self, board: Board, place: Tensor) -> Board:
        """The billboard as a task in this place reads it."""

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        raise TacitError(f"the billboard of {self.called} depends on a relation: see `sums`")
