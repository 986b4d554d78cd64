"""kill -9 at random moments: a run always goes on, and a seeded one ends where it would have."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from pathlib import Path

import pytest

from tests.engine import crash

pytestmark = pytest.mark.slow

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.engine.crash"])


@pytest.fixture(scope="module", autouse=True)
def ready():
    """Everything is imported before the first run: kills are timed by how long a run takes."""
    process = CONTEXT.Process(target=int)
    process.start()
    process.join(180)


def start(folder: Path, store: str, seed: int | None, save_every: float):
    process = CONTEXT.Process(target=crash.run, args=(str(folder), store, seed, save_every))
    process.start()
    return process


def finish(folder: Path, store: str, seed: int | None, save_every: float) -> float:
    began = time.monotonic()
    process = start(folder, store, seed, save_every)
    process.join(180)
    assert process.exitcode == 0
    return time.monotonic() - began


def ledger(folder: Path) -> list[str]:
    path = folder / "ledger.jsonl"
    lines = path.read_text().split("\n") if path.exists() else [""]
    return lines[:-1]  # what follows the last newline was never released


def outcome(folder: Path) -> dict:
    """All that must not depend on when the run was interrupted."""
    result = json.loads((folder / "result.json").read_text())
    result.pop("timing")
    files = {path.name: path.read_bytes() for path in sorted((folder / "models").iterdir())}
    return {"result": result, "ledger": ledger(folder), **files}


@pytest.mark.parametrize(("store", "save_every"), [("memory", 0.0), ("memory", 0.2), ("disk", 0.0)])
def test_kill_at_random_moments_changes_nothing(tmp_path, store, save_every):
    undisturbed = tmp_path / "undisturbed"
    seconds = finish(undisturbed, store, 7, save_every)
    folder, moments, kills = tmp_path / "killed", random.Random(store + str(save_every)), 0
    while kills < 7:  # three settings: 21 kills in all
        process = start(folder, store, 7, save_every)
        process.join(moments.uniform(0.02, max(0.3, 0.6 * seconds)))
        if process.exitcode is not None:  # it was done: begin once more
            assert process.exitcode == 0
            assert outcome(folder) == outcome(undisturbed)
            folder = tmp_path / f"killed-{kills}"
            continue
        process.kill()
        process.join()
        kills += 1
    finish(folder, store, 7, save_every)
    assert outcome(folder) == outcome(undisturbed)
    assert len(ledger(folder)) == crash.ROUNDS


def test_without_a_seed_the_ledger_only_grows_and_never_falls_behind(tmp_path):
    folder, moments, seen = tmp_path / "run", random.Random(3), []
    for _ in range(4):
        process = start(folder, "memory", None, 0.0)
        process.join(moments.uniform(0.3, 1.5))
        process.kill()
        process.join()
        now = ledger(folder)
        assert now[: len(seen)] == seen
        seen = now
    finish(folder, "memory", None, 0.0)
    final = ledger(folder)
    assert final[: len(seen)] == seen
    rounds = [json.loads(line)["round"] for line in final]
    assert set(rounds) == set(range(crash.ROUNDS))  # every published round was booked
    assert len(rounds) <= crash.ROUNDS + 4  # and at most one extra for each kill
    result = json.loads((folder / "result.json").read_text())
    assert result["guarantee"]["releases"] == len(final)
    assert result["guarantee"]["private"] is True
