"""Where every random number of a run comes from.

A stream is named by its purpose and its round, not by how often it was used before. So a run that
is killed and resumed needs no saved generator state, a silo can draw its own batches without
knowing who else is in the cohort, and the order in which tasks are computed changes nothing.

What a task draws for itself (its split, its batches, the masks of its dropout layers) is hashed
from the run's key, the task's own name (`name_keys`) and the number of its own row. It never
depends on the task's place among the others: a row more in one task changes nothing elsewhere.

Without a seed, cohorts and noise come straight from the operating system. With a seed, everything
is reproducible, and therefore *not private*: whoever knows the seed can subtract the noise.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

PURPOSES = {
    "cohort": 1,
    "noise": 2,
    "batches": 3,
    "model": 4,
    "layers": 5,
    "personalise": 6,
    "tuning": 7,
    "between": 8,
    "attendance": 9,
    "server noise": 10,
    "persons": 11,
}

BLOCK, ABREAST = 1 << 14, 8
"""The operating system's numbers are made so many at a time, by so many threads at most: they take
longer than a round of a network on a GPU."""


@dataclass(frozen=True)
class Randomness:
    """Named random streams, from a seed or from the operating system."""

    seed: int | None = None
    run_key: int = 0
    """Public; local shuffles and, with a seed, everything else derive from it."""

    @classmethod
    def of(cls, seed: int | None) -> Randomness:
        """Local steps need reproducible but not secret numbers: unseeded runs draw one key."""
        key = seed if seed is not None else int.from_bytes(os.urandom(6), "little")
        return cls(seed, key)

    @property
    def secret(self) -> bool:
        """Whether cohorts and noise are unpredictable to others."""
        return self.seed is None

    def _generator(self, purpose: str, round: int, *number: int) -> np.random.Generator:
        words = [self.run_key, PURPOSES[purpose], round, *number]
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))

    def uniform(self, purpose: str, round: int, draw: int, count: int) -> np.ndarray:
        """`count` numbers in (0, 1], the `draw`-th block of this purpose and round."""
        if self.secret:
            return _uniform_from(os.urandom, count)
        words = [self.run_key, PURPOSES[purpose], round, draw]
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))
        return 1.0 - generator.random(count)

    def normal(
        self, purpose: str, round: int, count: int, *, number: int | None = None
    ) -> np.ndarray:
        """`count` standard normal numbers in double precision; `number` tells parties apart."""
        if not self.secret:
            parts = () if number is None else (number,)
            return self._generator(purpose, round, *parts).standard_normal(count)
        blocks = [min(BLOCK, count - begin) for begin in range(0, count, BLOCK)]
        if len(blocks) < 2:
            return normal_from(os.urandom, count)
        with ThreadPoolExecutor(min(ABREAST, len(blocks), os.cpu_count() or 1)) as pool:
            return np.concatenate(list(pool.map(partial(normal_from, os.urandom), blocks)))

    def key(self, purpose: str, round: int) -> int:
        """A 63-bit key for counter-based hashing; public, so never for noise or secret cohorts."""
        return int(self._generator(purpose, round).integers(2**63))


def normal_from(source: Callable[[int], bytes], count: int) -> np.ndarray:
    """`count` standard normal numbers, made of a source of uniform bytes that nobody else knows.

    They are made by Box-Muller, each as the scaled sum of two independent ones: one
    double-precision normal alone has gaps that an attacker can use (Mironov 2012); the sum makes
    inverting it infeasible (Holohan & Braghin 2021).
    """
    radius = np.sqrt(-2.0 * np.log(_uniform_from(source, 2 * count)))
    angle = 2.0 * np.pi * _uniform_from(source, 2 * count)
    pairs = (radius * np.cos(angle)).reshape(2, count)
    return pairs.sum(axis=0) / np.sqrt(2.0)


def _uniform_from(source: Callable[[int], bytes], count: int) -> np.ndarray:
    """`count` numbers in (0, 1]."""
    words = np.frombuffer(source(8 * count), dtype="<u8")
    return ((words >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53


def name_keys(names: Sequence[str]) -> np.ndarray:
    """A 64-bit integer for each name, made from its letters alone."""
    import torch

    if not len(names):
        return np.zeros(0, dtype=np.int64)
    text = np.asarray(names, dtype=np.str_)
    letters = text.view(np.uint32).reshape(len(text), -1).astype(np.int64)
    lengths = torch.from_numpy(np.char.str_len(text).astype(np.int64))
    mixed = scramble(lengths)
    for place in range(letters.shape[1]):  # the longest name decides how often, and nothing else
        inside = lengths > place
        mixed = torch.where(inside, _mix(mixed ^ torch.from_numpy(letters[:, place])), mixed)
    return mixed.numpy()


def name_key(name: str) -> int:
    """A number from 0 on that only this name has."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "little")


def digests(words: Iterable[bytes]) -> np.ndarray:
    """A 64-bit integer for each, of which nobody can make another one with the same."""
    found = (hashlib.blake2b(word, digest_size=8).digest() for word in words)
    return np.frombuffer(b"".join(found), dtype="<i8").astype(np.int64)


def scramble(*parts: torch.Tensor | int) -> torch.Tensor:
    """Hash integers to well-mixed 64-bit integers, the same on every device (SplitMix64's mixer).

    Arguments broadcast. Used to shuffle each task's rows by (key, name, row) without any state.
    """
    import torch  # servers that add up shares need noise, and not this

    mixed: torch.Tensor | int = 0
    for part in parts:
        # Integers stay integers: a GPU cannot record that a number comes from the CPU.
        word = mixed ^ part
        mixed = _mix(word) if isinstance(word, torch.Tensor) else _mix_int(word)
    return torch.as_tensor(mixed)


def _mix_int(word: int) -> int:
    """`_mix` of one integer, as a signed one of 64 bits."""
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    word ^= word >> 31
    return word - 2**64 if word >= 2**63 else word


def _mix(word: torch.Tensor) -> torch.Tensor:
    word = word + -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed integer
    word = (word ^ _shift(word, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    word = (word ^ _shift(word, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    return word ^ _shift(word, 31)


def _shift(word: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift (torch shifts signed integers arithmetically)."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


class Ahead:
    """Numbers that are drawn while something else is at work."""

    def __init__(self, draw: Callable[[], np.ndarray]) -> None:
        self._draw, self._drawn = draw, list[np.ndarray]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(Exception):
            self._drawn.append(self._draw())

    def take(self) -> np.ndarray:
        """Wait for them. If the thread could not draw, they are drawn here, and whatever is wrong
        is raised."""
        self._thread.join()
        return self._drawn.pop() if self._drawn else self._draw()
