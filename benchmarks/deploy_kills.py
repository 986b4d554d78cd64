"""One run across four silos, with many kill -9 at random moments: does it end as if nothing was?

    python benchmarks/deploy_kills.py --kills 50 --rounds 30

First an undisturbed run, then the same again (same seed) while parties are killed and started
anew: the coordinator and the silos, evenly over the rounds, at random moments within them. Compared
are the personal models at the silos, the last billboard, and the ledgers of both sides. With
`--unseeded` noise comes from the operating system: models then differ, and ledgers may count the
rounds that were in flight twice.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import safetensors.torch

from tacit.deploy.conduct import BILLBOARD, STATUS
from tacit.deploy.flower.trial import Trial
from tacit.secure.jobs.job import COORDINATOR

SILOS, ROWS, COLUMNS = ("north", "east", "south", "west"), 80, 6
TERMS = """
[consortium]
name = "kills"
silos = ["north", "east", "south", "west"]
[data]
target = "y"
kind = "binary"
labels = ["0", "1"]
[data.columns]
{columns}
[method]
name = "{method}"
{privacy}
[run]
rounds = {rounds}
model = "{model}"
{seed}
"""


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--kills", type=int, default=50)
    given.add_argument("--rounds", type=int, default=30)
    given.add_argument("--seed", type=int, default=0, help="of the moments and victims")
    given.add_argument("--unseeded", action="store_true", help="noise from the operating system")
    settings = given.parse_args()
    text = terms_text(settings.rounds, seeded=not settings.unseeded)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = tables_in(folder)
        began = time.monotonic()
        with Trial(folder / "calm", text, tables) as calm:
            calm.start()
            calm.wait()
        print(f"undisturbed: {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        with Trial(folder / "killed", text, tables, patience=300) as killed:
            killed.start()
            counts = _disturb(killed, settings.kills, settings.rounds, random.Random(settings.seed))
            killed.wait(seconds=600)
        print(f"killed: {time.monotonic() - began:.0f} s, {counts}")
        _compare(calm, killed, settings.rounds, settings.unseeded)


def terms_text(
    rounds: int,
    *,
    seeded: bool = True,
    model: str = "linear",
    method: str = "pmtl",
    unit: str = "task",
) -> str:
    """What the silos agree on; methods on the exchange have no privacy."""
    columns = "\n".join(f"x{k} = {{ range = [-10, 10] }}" for k in range(COLUMNS))
    given = {"seed": "seed = 1" if seeded else "", "model": model, "method": method}
    given["privacy"] = "" if method == "fedmtl" else "[privacy]\nepsilon = 4.0"
    if unit != "task":
        given["privacy"] += f'\nunit = "{unit}"\npersons = {len(SILOS) * ROWS}'
    return TERMS.format(columns=columns, rounds=rounds, **given)


def tables_in(folder: Path) -> dict[str, Path]:
    """A made-up table for each silo."""
    draw = np.random.default_rng(0)
    truth, tables = draw.normal(size=COLUMNS), {}
    for silo in SILOS:
        x = draw.normal(size=(ROWS, COLUMNS))
        y = x @ (truth + draw.normal(size=COLUMNS) / 2) > 0
        lines = [",".join([*(f"x{k}" for k in range(COLUMNS)), "y"])]
        lines += [
            ",".join([*(f"{value:.5f}" for value in row), str(int(label))])
            for row, label in zip(x, y, strict=True)
        ]
        tables[silo] = folder / f"{silo}.csv"
        tables[silo].write_text("\n".join(lines))
    return tables


def _disturb(trial: Trial, kills: int, rounds: int, chance: random.Random) -> dict[str, int]:
    """Kill and start again, so that all kills fall between the first round and the last."""
    parties = (COORDINATOR, *trial.silos)
    counts = dict.fromkeys(parties, 0)
    for number in range(kills):
        _wait_for_round(trial, number * (rounds - 1) // kills)
        time.sleep(chance.random() * 1.5)
        name = chance.choice(parties)
        trial.kill(name)
        counts[name] += 1
        time.sleep(chance.random())
        trial.start(name)
    return counts


def _wait_for_round(trial: Trial, round: int) -> None:
    path, until = trial.folder / COORDINATOR / STATUS, time.monotonic() + 300
    while time.monotonic() < until:
        if path.exists() and json.loads(path.read_text())["round"] >= round:
            return
        time.sleep(0.02)
    raise SystemExit(f"round {round} did not come: {trial.said(COORDINATOR)}")


def _compare(calm: Trial, killed: Trial, rounds: int, unseeded: bool) -> None:
    def models(trial: Trial) -> dict[str, dict[str, np.ndarray]]:
        path = "model/personal.safetensors"
        return {
            silo: {
                name: value.numpy()
                for name, value in safetensors.torch.load_file(trial.folder / silo / path).items()
            }
            for silo in trial.silos
        }

    one, other = models(calm), models(killed)
    apart = max(
        float(np.abs(value - other[silo][name]).max())
        for silo, parts in one.items()
        for name, value in parts.items()
    )
    boards = [
        safetensors.torch.load_file(trial.folder / COORDINATOR / BILLBOARD)
        for trial in (calm, killed)
    ]
    board = max(float((boards[0][name] - boards[1][name]).abs().max()) for name in boards[0])
    booked = {
        COORDINATOR: _lines(killed.folder / COORDINATOR / "ledger.jsonl"),
        **{
            silo: sum(map(_lines, (killed.folder / silo).glob("runs/*/ledger.jsonl")))
            for silo in killed.silos
        },
    }
    print(f"largest difference of personal models {apart:.2e}, of billboards {board:.2e}")
    print(f"releases booked, of {rounds} rounds: {booked}")
    if not unseeded and (apart > 1e-5 or board > 1e-5):
        raise SystemExit("the killed run ended in other models")
    if any(count < rounds for count in booked.values()):
        raise SystemExit("a round is missing in a ledger")


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


if __name__ == "__main__":
    main()
