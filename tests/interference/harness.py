"""Two tables that differ in one task, and all that any other task could notice of it.

`noticed(one, other, target)` runs the same key on both and returns, in words, everything that is
not bit-identical for some other task: its parts, its scaling, its batches, its state and its
contribution given the same billboard, and its last step given the same last billboard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.federation import PARTS, Federation
from tacit.engine.personalise import personalise
from tacit.engine.progress import silent
from tacit.engine.simulate import Simulation
from tacit.engine.votes import Votes
from tacit.experiment import prepare
from tacit.experiment.plan import Plan
from tacit.experiment.start import model_of
from tacit.methods import METHODS, Board, Method, TrainedMethod
from tacit.privacy import Everyone, Privacy
from tacit.privacy.bounds import Bounded
from tacit.randomness import Randomness

TARGET = "task-3"
"""The task that differs."""
Table = tuple[np.ndarray, np.ndarray, np.ndarray]


def table(kind: str, tasks: int = 21, shape: tuple[int, ...] = (5,), seed: int = 0) -> Table:
    """Ragged tasks: rows, targets, and the task of each row."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(5, 23, size=tasks)
    names = np.repeat([f"task-{k}" for k in range(tasks)], counts)
    x = rng.normal(size=(counts.sum(), *shape)).astype(np.float32)
    score = x.reshape(len(x), -1)[:, :4].sum(axis=1) + rng.normal(size=len(x))
    y = {
        "regression": score,
        "binary": (score > 0).astype(float),
        "count": np.round(np.exp(score / 2)),
        "multiclass": np.digitize(score, [-1.0, 1.0]),
        "survival": np.column_stack([np.exp(score), score > 0]),
    }[kind]
    return x, y, names


def _one_row_more(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> Table:
    last = np.flatnonzero(names == TARGET)[-1]
    more = np.insert(np.arange(len(x)), last, last)
    x = x[more].copy()
    x[last] = x[last][..., ::-1] + 0.25
    return x, y[more], names[more]


def _many_rows_more(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> Table:
    """More than any other task has: whatever is padded to the largest would show it."""
    own = np.flatnonzero(names == TARGET)
    more = np.concatenate([np.arange(len(x)), np.resize(own, 40)])
    return x[more], y[more], names[more]


def _one_row_less(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> Table:
    keep = np.arange(len(x)) != np.flatnonzero(names == TARGET)[0]
    return x[keep], y[keep], names[keep]


def _other_values(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> Table:
    own = np.flatnonzero(names == TARGET)
    x, y = x.copy(), y.copy()
    x[own], y[own] = 3 * x[own][::-1] - 1, np.roll(y[own], 1)
    return x, y, names


def _wild_values(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> Table:
    """Training diverges on such rows: that must not be anybody else's trouble."""
    x = x.copy()
    x[names == TARGET] *= 1e12
    return x, y, names


def _another_place(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> Table:
    """Its rows come first in the file, so all other tasks have other numbers."""
    order = np.argsort(names != TARGET, kind="stable")
    return x[order], y[order], names[order]


CHANGES: dict[str, Callable[..., Table]] = {
    "one row more": _one_row_more,
    "many rows more": _many_rows_more,
    "one row less": _one_row_less,
    "other values": _other_values,
    "wild values": _wild_values,
    "another place in the file": _another_place,
}


@dataclass
class Setting:
    """What is run; the same for both tables."""

    method: Method
    model: nn.Module | str = "linear"
    privacy: bool = True
    store: str = "memory"
    folder: Path | None = None
    last_step: bool = True
    device: str = "cpu"
    without: str | None = None
    """Leaves this task out of the other run's cohorts: who is drawn must not show either."""
    more: dict[str, Any] = field(default_factory=dict)


def simulation_of(federation: Federation, setting: Setting, folder: str) -> Simulation:
    randomness = Randomness.of(5)
    device = torch.device(setting.device)
    model = model_of(setting.model, federation, randomness.key("model", 0)).to(device)
    federation = federation.to(device)
    place = None if setting.folder is None else setting.folder / folder
    private = setting.privacy and setting.method.channel == "billboard"
    privacy = Privacy(noise=1.0) if private else None
    method = setting.method.for_run(federation, privacy)
    rounds = len(Votes.of(method, federation).stages) + method.usual_rounds
    settings: Any = {"privacy": privacy, "rounds": min(rounds, 10), "store": setting.store}
    plan = Plan(method=setting.method, **settings, **setting.more)
    return prepare.simulation_of(plan, federation, model, Everyone(), randomness, device, place)


def own_view(federation: Federation) -> Iterator[tuple[str, str, Any]]:
    """(task, what, value): parts and scaling, as each task has them."""
    scaling, target = federation.preprocessing, federation.target_scale
    for number, name in enumerate(federation.names):
        for part in PARTS:
            x, y = federation.part(part).of(number)
            yield name, f"{part} rows", x
            yield name, f"{part} targets", y
        if scaling is not None:
            row = 0 if len(scaling.shift) == 1 else number
            yield name, "shift", scaling.shift[row]
            yield name, "scale", scaling.scale[row]
        if target is not None:
            yield name, "target scale", torch.stack([target.shift[number], target.scale[number]])


def steps_view(
    simulation: Simulation, boards: list[Board], without: str | None
) -> Iterator[tuple[str, str, Any]]:
    """Rounds with given billboards: every task's batches, contribution and state."""
    federation, names = simulation.federation, simulation.federation.names
    members = [k for k, name in enumerate(names) if name != without]
    cohort = torch.tensor(members, device=simulation.device)
    for board in boards:
        round = board.round
        for chunk, states, sent in simulation.tasks.train(
            board, simulation.course.public(board), cohort
        ):
            bounded = Bounded.of(sent, 0.5, simulation.channel.moments)
            # Another shape may give other last bits; whether it does depends on the processor.
            shape = (len(chunk.filled), chunk.width)
            for place, task in enumerate(chunk.tasks.tolist()):
                yield names[task], f"shape of its chunk in round {round}", shape
                yield names[task], f"contribution of round {round}", sent[place]
                yield names[task], f"clipped in round {round}", bounded.scale[place]
                for part, value in states.items():
                    yield names[task], f"state {part} after round {round}", value[place]
            simulation.tasks.store.put(chunk.tasks, states)
        simulation.tasks.store.settle(board, {"curve": [], "dropped": 0, "clip": None}, save=True)
    if simulation.method.settles:
        public = simulation.course.public(boards[-1])
        everyone = torch.arange(len(federation), device=simulation.device)
        for tasks, states in simulation.tasks.settled(public, everyone):
            for place, task in enumerate(tasks.tolist()):
                yield names[task], "last step", states["w"][place]


def last_view(simulation: Simulation, board: Board) -> Iterator[tuple[str, str, Any]]:
    """The last step of every task, given the last billboard."""
    simulation.tasks.board = board
    made = personalise(simulation.tasks, "best", silent, alone=False)
    everyone = torch.arange(len(simulation.federation), device=simulation.device)
    w, buffers = made.models(everyone)
    for number, name in enumerate(simulation.federation.names):
        yield name, "choice", made.chosen[number]
        yield name, "last step", w[number]
        yield name, "last statistics", buffers[number]


def same(one: Any, other: Any) -> bool:
    """Bit for bit; NaN equals NaN."""
    if not isinstance(one, Tensor):
        return one == other
    bits = [side.cpu().numpy().tobytes() for side in (one, other)]
    return one.shape == other.shape and bits[0] == bits[1]


def noticed(one: Federation, other: Federation, setting: Setting | None = None) -> list[str]:
    """What tasks other than the target can tell apart, in words."""
    views = [list(own_view(one)), list(own_view(other))]
    if setting is not None:
        first, second = (
            simulation_of(each, setting, folder)
            for each, folder in ((one, "one"), (other, "other"))
        )
        boards = _boards(first)
        views[0] += steps_view(first, boards, None)
        views[1] += steps_view(second, boards, setting.without)
        if setting.last_step and isinstance(setting.method, TrainedMethod):
            views[0] += last_view(first, boards[-1])
            views[1] += last_view(second, boards[-1])
    mine, theirs = ({(task, what): value for task, what, value in view} for view in views)
    differ = [
        f"{what} of {task}"
        for (task, what), value in mine.items()
        if task != TARGET and not ((task, what) in theirs and same(value, theirs[task, what]))
    ]
    assert len({task for task, _ in mine}) > 5
    return differ


def _boards(simulation: Simulation) -> list[Board]:
    """The first billboard, and one far from it for the second round and for every stage."""
    generator = torch.Generator().manual_seed(3)
    first = simulation.board
    moved = {
        name: value + 0.1 * torch.randn(value.shape, generator=generator).to(value)
        for name, value in first.tensors.items()
    }
    begin = [
        simulation.course.stages.index(stage) for stage in dict.fromkeys(simulation.course.stages)
    ]
    return [first, *(Board(moved, round) for round in sorted({1, *begin} - {0}))]


ON_TABLES = [name for name in METHODS if name != "related"]
