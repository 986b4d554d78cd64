"""Where the tasks' own states live: one row of numbers per task, in memory or in a mapped file.

Only the rows of a cohort are ever read or written, so a round costs what its cohort costs. A task
that has not taken part yet has no row (the first column says so) and takes no memory: untouched
pages of the table are never materialised.

With a folder the states survive a kill at any moment. Changes of a round (or of a few) are first
written as one journal file, moved into place atomically, and only then copied into the table;
opening the folder again copies the journal once more, which changes nothing if it was complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from tacit.errors import TacitError
from tacit.files import make_folder, reading, replace, writing
from tacit.methods.base import Board, State
from tacit.privacy.ledger import Ledger

LEDGER, CHECKPOINT = "ledger.jsonl", "checkpoint"
TABLE, JOURNAL = "states.bin", "journal.safetensors"
WORDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls the kinds of numbers that states and billboards are made of."""
REMEDY = (
    "put the whole folder of the run back from a backup; without one, count all that its ledger "
    "has as spent, and begin again in another folder"
)


class Store:
    """States of all tasks as rows `[took part, *state]` of one table.

    `place="disk"` keeps the table in the mapped file only; `place="memory"` keeps it on `device`
    and, given a folder, mirrors it to the file when the journal is saved.
    """

    def __init__(
        self,
        tasks: int,
        state: State,
        *,
        place: Literal["memory", "disk"] = "memory",
        folder: Path | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._columns = {name: value.numel() for name, value in state.items()}
        self._folder, self._on_disk = folder, place == "disk"
        shape = (tasks, 1 + sum(self._columns.values()))
        self._file: np.memmap | None = None
        if folder is not None:
            make_folder(folder)
            self._file = _mapped(folder / TABLE, shape, begun=(folder / JOURNAL).exists())
        if self._on_disk:
            assert self._file is not None
            self._rows = torch.from_numpy(self._file)
        else:
            self._rows = torch.zeros(shape, device=device)
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._room, self._used = list[Tensor](), 0
        self._unsaved: list[Tensor] = []

    @property
    def holds(self) -> tuple[str, ...]:
        """What a state is made of."""
        return tuple(self._columns)

    @property
    def keeps(self) -> bool:
        """Whether anything survives this process."""
        return self._folder is not None

    @property
    def journal(self) -> Path:
        """Where the last saved round is."""
        assert self._folder is not None
        return self._folder / JOURNAL

    def take(self, tasks: Tensor, fresh: State) -> State:
        """States of these tasks, stacked; a task that never took part gets a fresh one."""
        device, here = next(iter(fresh.values())).device, tasks.to(self._rows.device)
        new = self._rows[:, :1].index_select(0, here).to(device) == 0
        # Looking is free on a CPU; a GPU would have to be waited for.
        some, states, begin = new.is_cuda or bool(new.any()), {}, 1
        for name, width in self._columns.items():
            own = self._rows[:, begin : begin + width].index_select(0, here).to(device)
            states[name] = torch.where(new, fresh[name], own) if some else own
            begin += width
        return states

    def put(self, tasks: Tensor, states: State) -> None:
        """New states of tasks of this round; they count once the round is settled."""
        own, begin = [states[name] for name in self._columns], 1
        away = own[0].device != self._rows.device
        rows = self._waiting(len(tasks), pinned=away)
        if away:  # in one piece, from a GPU
            rows.copy_(torch.cat([own[0].new_ones(len(tasks), 1), *own], dim=1))
        else:
            rows[:, 0] = 1.0
            for value in own:
                rows[:, begin : begin + value.shape[1]] = value
                begin += value.shape[1]
        self._pending.append((tasks.to(self._rows.device), rows))

    def _waiting(self, tasks: int, *, pinned: bool) -> Tensor:
        """Where rows of a round wait: the same memory in every round, because fresh pages are slow,
        and those that come next can have what these were made in."""
        place, width = self._used, self._rows.shape[1]
        if place == len(self._room) or len(self._room[place]) < tasks:
            self._room[place:] = [self._rows.new_empty(tasks, width, pin_memory=pinned)]
        self._used += 1
        return self._room[place][:tasks]

    def put_back(self, tasks: Tensor) -> None:
        """States as they are: nothing changes, and saving takes as long as if something did."""
        here = tasks.to(self._rows.device)
        self._pending.append((here, self._rows[here]))

    def settle(self, board: Board, notes: dict[str, Any], *, save: bool) -> None:
        """End a round. With `save` (always, on disk) the states survive whatever comes next."""
        if self._on_disk:
            self._journal(self._pending, board, notes)
        for tasks, rows in self._pending:
            self._rows.index_copy_(0, tasks, rows)
        changed, self._pending, self._used = [tasks for tasks, _ in self._pending], [], 0
        if self._on_disk or self._folder is None:
            return
        self._unsaved += changed
        if save:
            every = torch.cat(self._unsaved).unique() if self._unsaved else torch.zeros(0).long()
            rows = self._rows[every].cpu()
            self._journal([(every, rows)], board, notes)
            assert self._file is not None
            self._file[every.cpu().numpy()] = rows.numpy()
            self._unsaved = []

    def bring(self, task: int, folder: Path) -> None:
        """Take over one task's state from the folder of another store, which is made like this one.

        As with `put`, it counts once it is settled.
        """
        state = {name: torch.zeros(width) for name, width in self._columns.items()}
        other = Store(len(self._rows), state, place="disk", folder=folder)
        other.reopen()
        row = other._rows[task : task + 1].clone()
        if bool(row[0, 0]):
            self._pending.append((torch.tensor([task]), row.to(self._rows.device)))

    def reopen(self) -> tuple[Board, dict[str, Any]] | None:
        """Finish what a crash interrupted; returns the last saved board and notes, if any."""
        assert self._file is not None
        path = self.journal
        if not path.exists():
            return None
        with reading(path, REMEDY), safe_open(path, framework="pt") as file:
            notes = _notes(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            tasks, rows = tensors.pop("tasks"), tensors.pop("rows")
            if rows.shape != (len(tasks), self._file.shape[1]) or rows.dtype != torch.float32:
                raise ValueError(f"its rows are {rows.dtype} {tuple(rows.shape)}")
            if len(tasks) and not 0 <= int(tasks.min()) <= int(tasks.max()) < len(self._file):
                raise ValueError("it names tasks that there are not")
            self._file[tasks.numpy()] = rows.numpy()
        if not self._on_disk:
            self._rows.copy_(torch.from_numpy(np.asarray(self._file)))
        values = {name.removeprefix("board."): value for name, value in tensors.items()}
        return Board(values, notes.pop("round")), notes

    def _journal(
        self, changes: list[tuple[Tensor, Tensor]], board: Board, notes: dict[str, Any]
    ) -> None:
        assert self._file is not None
        with writing(self.journal.with_name(TABLE)):
            self._file.flush()  # the table must hold the last journal before it is replaced
        none = (torch.zeros(0, dtype=torch.int64), torch.zeros(0, self._rows.shape[1]))
        tensors = {f"board.{name}": [value] for name, value in board.tensors.items()}
        tensors["tasks"], tensors["rows"] = map(list, zip(*(changes or [none]), strict=True))
        metadata = {"notes": json.dumps({"round": board.round, **notes})}
        replace(self.journal, *_packed(tensors, metadata))


def _packed(
    tensors: dict[str, list[Tensor]], metadata: dict[str, str]
) -> Iterator[bytes | memoryview]:
    """The parts of a safetensors file: a header, and numbers from where they lie.

    A tensor may come in blocks of rows. To make one of them, and bytes of that, takes longer than
    to write them to a disk.
    """
    header, end = dict[str, Any](__metadata__=metadata), 0
    # Those with long numbers first: each begins at a multiple of its own length.
    ordered = sorted(tensors.items(), key=lambda item: -item[1][0].element_size())
    for name, blocks in ordered:
        first, begin = blocks[0], end
        shape = [sum(map(len, blocks)), *first.shape[1:]] if first.ndim else []
        end += sum(block.numel() * block.element_size() for block in blocks)
        kind = WORDS[first.dtype]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, blocks in ordered:
        for block in blocks:
            yield block.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _mapped(path: Path, shape: tuple[int, int], *, begun: bool) -> np.memmap:
    """The table in its file, which must be as long as the run left it, once the run has begun."""
    size, flags = 4 * shape[0] * shape[1], os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with writing(path), open(os.open(path, flags, 0o600), "r+b") as file:
        there = os.fstat(file.fileno()).st_size
        if not begun:  # what lies there is of a run that never began
            os.ftruncate(file.fileno(), 0)
        elif there != size:
            raise TacitError(f"{path} has {there} bytes, but {size} are needed; {REMEDY}")
        return np.memmap(file, dtype=np.float32, mode="r+", shape=shape)


def saved_notes(folder: Path) -> dict[str, Any] | None:
    """What was noted with the last saved round of this folder; None before the first."""
    path = folder / JOURNAL
    if not path.exists():
        return None
    with reading(path, REMEDY), safe_open(path, framework="pt") as file:
        return _notes(file)


def lost(path: Path, proof: str) -> TacitError:
    """A file that must be there, because of what else is."""
    return TacitError(f"{path} is gone, but {proof}; {REMEDY}")


def check_unused(folder: Path, first: Path) -> None:
    """Refuse a folder in which a run lost `first`, which is written before anything else."""
    if (folder / CHECKPOINT / JOURNAL).exists():
        raise lost(first, f"{folder} holds a run")


def confirm_ledger(folder: Path) -> Ledger:
    """The ledger of a run's folder, which must be all that its checkpoint was saved with."""
    # In this order: somebody may be at work here, and the ledger is written before the checkpoint.
    notes = saved_notes(folder / CHECKPOINT)
    ledger = Ledger.at(folder / LEDGER)
    if notes is not None:
        ledger.confirm(notes.get("ledger"), folder / CHECKPOINT / JOURNAL)
    return ledger


def _notes(file: Any) -> dict[str, Any]:
    notes = json.loads(file.metadata()["notes"])
    if type(notes["round"]) is not int or notes["round"] < 0:
        raise ValueError(f"its round is {notes['round']!r}")
    return notes


def in_the_place_of(now: Board, kept: Board) -> Board:
    """A billboard of a checkpoint, if it can stand for this one.

    Its tensors are in the same order: what was traced takes them by position.
    """
    for name, value in now.tensors.items():
        found = kept[name]
        if found.shape != value.shape or found.dtype != value.dtype:
            raise ValueError(f"its {name} is {found.dtype} {tuple(found.shape)}")
    return Board({name: kept[name] for name in now.tensors}, kept.round)
