"""`tacit` with servers that can be stopped in the middle of a real job, to be killed there.

A server looks for the file NAME.hold beside its certificates: where to stand still, and how often
to pass there before. It then says so in its log, and waits until the file is gone.

| place           | when                                                       |
|-----------------|------------------------------------------------------------|
| `phase P`       | as phase P of a computation on shares begins               |
| `sent L to X`   | after a message with label L to party X                    |
| `before L to X` | before it                                                  |
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.cli import main
from tacit.secure.net.tls import TlsLinks
from tacit.secure.protocol.engine import Engine

phase, send = Engine.phase, TlsLinks.send
passed: Counter[str] = Counter()


def reach(name: str, place: str) -> None:
    file = Path(sys.argv[sys.argv.index("--certificates") + 1]) / f"{name}.hold"
    if not file.exists():
        return
    wanted, passes = json.loads(file.read_text())
    if place != wanted:
        return
    passed[place] += 1
    if passed[place] > passes:
        print(f"stands at {place}", flush=True)
        while file.exists():
            time.sleep(0.01)


@contextmanager
def phase_that_holds(self: Engine, name: str) -> Iterator[None]:
    with phase(self, name):
        reach(self.links.name, f"phase {name}")
        yield


def send_that_holds(self: TlsLinks, to: str, label: str, data) -> None:
    reach(self.name, f"before {label} to {to}")
    send(self, to, label, data)
    reach(self.name, f"sent {label} to {to}")


Engine.phase, TlsLinks.send = phase_that_holds, send_that_holds

if __name__ == "__main__":
    main()
