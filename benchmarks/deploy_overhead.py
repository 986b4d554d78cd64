"""What the engine adds to a round of four silos on loopback, beyond the slowest silo's own work.

    python benchmarks/deploy_overhead.py --rounds 30

All parties are processes as in `tacit deploy demo`, with TLS and registered keys. Each silo notes
how long it worked on each request (reading, checking, training, booking, saving), the coordinator
how long each question to all silos took. The difference to the slowest silo is what messages cost:
packing, Flower's requests, signatures, TLS, and waiting to be noticed. The first three rounds, in
which everything is loaded and tried out for the first time, are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from deploy_kills import SILOS, tables_in, terms_text
from tacit.deploy.flower.trial import Trial
from tacit.secure.jobs.job import COORDINATOR

TIMED = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[3])
def timed(owner, name, key):
    inner = getattr(owner, name)
    def outer(self, asked):
        began = time.monotonic()
        answer = inner(self, asked)
        with (folder / "times.jsonl").open("a") as file:
            file.write(json.dumps({**key(asked), "seconds": time.monotonic() - began}) + "\\n")
        return answer
    setattr(owner, name, outer)
if sys.argv[1] == "silo":
    from tacit.deploy.silo import Silo
    timed(Silo, "answer", lambda asked: {"kind": asked.kind, "round": asked.round})
else:
    from tacit.deploy.flower.asking import FlowerSilos
    def first(asked):
        one = next(iter(asked.values()))
        return {"kind": one.kind, "round": one.round}
    timed(FlowerSilos, "ask", first)
from tacit.cli import main
main()
"""


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--rounds", type=int, default=30)
    given.add_argument("--model", default="linear", help="a name in tacit.models.MODELS")
    settings = given.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = terms_text(settings.rounds, model=settings.model)
        command = (sys.executable, "-c", TIMED)
        with Trial(folder / "trial", text, tables_in(folder), command=command) as trial:
            trial.start()
            trial.wait(seconds=300)
        asked = _times(trial.folder / COORDINATOR)
        worked = [_times(trial.folder / silo) for silo in SILOS]
    rounds = range(3, settings.rounds)
    slowest = [max(own["train", t] for own in worked) for t in rounds]
    added = [asked["train", t] - own for t, own in zip(rounds, slowest, strict=True)]
    print(f"{len(SILOS)} silos, {settings.model} model, {len(added)} rounds")
    print(f"slowest silo's own work  {_said(slowest)}")
    print(f"added by the engine      {_said(added)}")


def _times(folder: Path) -> dict[tuple[str, int], float]:
    lines = (folder / "times.jsonl").read_text().splitlines()
    return {(one["kind"], one["round"]): one["seconds"] for one in map(json.loads, lines)}


def _said(seconds: list[float]) -> str:
    mean, sd = statistics.mean(seconds), statistics.stdev(seconds)
    return f"{mean:.3f} ± {sd:.3f} s a round, at most {max(seconds):.3f} s"


if __name__ == "__main__":
    main()
