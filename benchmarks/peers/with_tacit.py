"""tacit, called as anybody calls it: with what the work fixes, and nothing turned off beside it.

The small table is the plain command: method `auto`, every task's last step, comparisons, verdict
and report. So it does more than the peers do in that time.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from works import BATCH, DELTA, EPSILON, NOISE, RATE, STEPS, Rows, Work, peer


class Ticks:
    """Told of rounds, as a progress bar is."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self.tick = tick

    def say(self, text: str) -> None: ...

    @contextlib.contextmanager
    def rounds(self, title: str, total: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
        yield lambda round, point: self.tick()


def command(table: str) -> None:
    """`tacit train` on a file."""
    from tacit.cli import main

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        sys.argv = ["tacit", "train", "--data", table, "--task", "site", "--target", "y", "--quiet"]
        sys.argv += ["--epsilon", str(EPSILON), "--delta", str(DELTA), "--out", str(out)]
        with contextlib.suppress(SystemExit):
            main()
        found = json.loads((out / "result.json").read_text())
    accuracy = found["metrics"]["overall"]["accuracy"]
    print(
        json.dumps({"accuracy": accuracy, "seconds": 0, "cpu": 0, "rounds": [], "cpu_rounds": []})
    )


def train(name: str, work: Work, rows: Rows, tick: Callable[[], None]) -> float:
    import tacit

    kind = "multiclass" if name == "cnn" else "binary"  # 62 numbers could be any
    run = tacit.train(
        tacit.data.from_arrays(rows.x, rows.y, rows.task, kind=kind, scale="none"),
        tacit.FedAvg(lr=RATE, local_steps=STEPS, batch=BATCH, clip=work.clip),
        model=tacit.models.cnn if name == "cnn" else "linear",
        privacy=tacit.Privacy(noise=NOISE),
        rounds=work.rounds,
        cohort=work.cohort / work.tasks,
        personalise="none",  # the work is one model for all: peers have no last step,
        baselines=False,  # and compare with nothing
        seed=0,  # so that nothing is written to disk that peers do not write
        progress=Ticks(tick),
    )
    return run.metrics["overall"]["accuracy"]


if __name__ == "__main__":
    if sys.argv[1] == "table":
        command(sys.argv[3])
    else:
        peer(train)
