"""Tag prediction at Stack Overflow's size: 400 tasks, each with 10 000 x 500 weights of its own.

    python benchmarks/tag_prediction.py [--method fedavg] [--store disk] [--dense]

Made-up posts of up to 64 words; PMTL with an expected cohort of 100, clipped and noised. What
counts is the peak memory of the whole process, as the system reports it: the personal models alone
are 8 GB. With `--store disk` they are pages of a file, which count for the peak although the system
drops them when it needs the memory; so the memory that is the process's own is watched as well.
With `--dense` the same rounds are run once more by plain steps and whole vectors, which touch every
weight; the processor time of a round is without the learning curve.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.func import vmap

from tacit import PMTL, FedAvg, Federation, FedProx, Privacy, train
from tacit.data.split import SplitRule
from tacit.data.words import Sizes, Texts, tag_federation
from tacit.engine.rounds import Rounds
from tacit.experiment.start import model_of
from tacit.local import reached, sgd
from tacit.local.batches import draw
from tacit.methods import Board

LENGTH = 64
METHODS = {"pmtl": PMTL, "fedavg": FedAvg, "fedprox": FedProx}


def posts(tasks: int, rows: int, words: int, tags: int, folder: Path) -> Federation:
    """A post has two tags, and words that go with them; the vocabularies are public files."""
    rng = np.random.default_rng(0)
    names, labels = [f"w{k}" for k in range(words)], [f"t{k}" for k in range(tags)]
    for file, listed in (("words", names), ("tags", labels)):
        (folder / file).write_text("\n".join(listed))
    texts = Texts([], [], [])
    for task in range(tasks):
        for _ in range(rows):
            own = (tags * rng.random(2) ** 2).astype(int)
            about = own[rng.integers(0, 2, 16)] + tags * rng.integers(0, words // tags, 16)
            other = (words * rng.random(rng.integers(8, LENGTH - 16)) ** 2).astype(int)
            text = [names[k] for k in (*about, *other)]
            texts.add(f"user-{task}", text, [labels[k] for k in own])
    sizes = Sizes(words, tags, folder / "words", folder / "tags", LENGTH)
    return tag_federation(texts, sizes, SplitRule(), "made-up posts")


def own_memory() -> float:
    """GiB that belong to this process alone: no pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 2**20
    return 0.0


class Watch:
    """Prints rounds where a progress bar would stand, and looks at memory all the time."""

    def __init__(self) -> None:
        self.seconds = self.own_peak = 0.0
        self.each: list[float] = []
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.own_peak = max(self.own_peak, own_memory())
            time.sleep(0.02)

    def say(self, text: str) -> None:
        print(text, flush=True)

    @contextlib.contextmanager
    def rounds(self, title: str, total: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
        began = time.monotonic()

        def on_round(number: int, point: dict[str, Any]) -> None:
            nonlocal began
            if not number:
                began = time.monotonic()
            self.seconds = (time.monotonic() - began) / max(number, 1)
            print(f"round {number}: loss {point['loss']:.4f}, own peak {self.own_peak:.1f} GiB")

        yield on_round

    @property
    def cpu(self) -> float:
        """Processor time of a round: the median."""
        return statistics.median(self.each)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Rounds by themselves, from the cohort to the billboard, and what is saved of them."""
        whole = Rounds.next_board, Rounds.save

        def next_board(rounds: Rounds) -> Board:
            began = time.process_time()
            board = whole[0](rounds)
            self.each.append(time.process_time() - began)
            return board

        def save(rounds: Rounds, **settings: bool) -> None:
            began = time.process_time()
            whole[1](rounds, **settings)
            self.each[-1] += time.process_time() - began

        with (
            mock.patch.object(Rounds, "next_board", next_board),
            mock.patch.object(Rounds, "save", save),
        ):
            yield


def trained(data: Federation, options: argparse.Namespace, folder: Path) -> Watch:
    """All rounds, watched."""
    watch = Watch()
    with watch.timed():
        run(data, options, folder, watch)
    return watch


def run(data: Federation, options: argparse.Namespace, folder: Path, watch: Watch) -> None:
    train(
        data,
        METHODS[options.method](lr=0.5, local_steps=5, batch=20, clip=1.0),
        model="bag",
        privacy=Privacy(noise=0.5),
        rounds=options.rounds,
        cohort=min(100, options.tasks // 2),
        baselines=False,
        personalise="none",
        seed=0,  # not private, but the same work; and nothing is mirrored to disk unasked
        store=options.store,
        out=folder if options.store == "disk" else None,
        progress=watch,
    )


def steps_alone(data: Federation, tasks: int = 4) -> float:
    """Processor time of five steps of some tasks, with nothing around them."""
    model = model_of("bag", data, 0)
    batches = draw(data.train, torch.arange(tasks), 5, 20, torch.arange(tasks))
    start, buffers = model.start.expand(tasks, -1), model.buffers.expand(tasks, -1)
    step = vmap(
        lambda w, b, rows: sgd.sgd(model, w, b, rows, 0.5, pull=0.1, towards=model.start)[0]
    )
    taken = []
    for _ in range(3):
        began = time.process_time()
        step(start, buffers, batches)
        taken.append(time.process_time() - began)
    return min(taken) / tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=list(METHODS), default="pmtl")
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--tags", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", choices=["memory", "disk"], default="memory")
    parser.add_argument("--dense", action="store_true", help="also by plain steps")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        data = posts(options.tasks, options.rows, options.words, options.tags, folder)
        watch = trained(data, options, folder / "sparse")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if options.dense:
            sparse = steps_alone(data)
            sgd.applies = lambda *given: False
            reached.LONG = 1 << 62
            plain = trained(data, options, folder / "dense")
            dense = steps_alone(data)
            print(
                f"steps of one task alone: {1e3 * sparse:.0f} ms of processor time, plain ones "
                f"{1e3 * dense:.0f} ms, {dense / sparse:.1f} times as long"
            )
            longer, more = plain.seconds / watch.seconds, plain.cpu / watch.cpu
            print(
                f"plain steps: {plain.seconds:.1f} s per round, {longer:.1f} times as long; "
                f"{more:.1f} times the processor time (bar: 20)"
            )
    result = {
        "method": options.method,
        "tasks": options.tasks,
        "store": options.store,
        "peak_gib": peak,
        "own_peak_gib": watch.own_peak,
        "seconds_per_round": watch.seconds,
    }
    print(
        f"{options.method}, {options.tasks} tasks with {options.words:,} x {options.tags} weights, "
        f"{options.store}: "
        f"{watch.seconds:.1f} s per round ({watch.cpu:.2f} of processor time), "
        f"peak {peak:.1f} GiB, of its own {watch.own_peak:.1f} "
        "(bar: under 24 GB, which is 22.4 GiB)"
    )
    if options.json:
        options.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
