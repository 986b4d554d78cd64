"""FedMTL with a curator on shares ends where it ends with a plain one: real faces, 60 clients.

    python -m benchmarks.secure_equal                    # 3 rounds with the published settings
    python -m benchmarks.secure_equal --rounds 5 --lr 0.1 --clients 20

The stand-in for LFWA of table 3 (`lfw_pseudo_attr` in $TACIT_DATA, or --data), LeNet, two heads for
each client, replicated shares among three servers in one process. Plain and secure runs have the
same seed, so all that differs is the rounding of shares. How much that may grow in later rounds
shows a plain run whose weights are moved by 2⁻²³, the rounding of single precision. Where 32 bits
do not hold a parameter, the round is refused before anything is sent, which is shown.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import tacit
from papers.fedmtl.contenders import AS_PUBLISHED
from papers.fedmtl.sets import NETWORKS, plan_of
from tacit.exchange import Answer, Uploads


class Nudged(tacit.FedMTL):
    """All answers are off by the last bit of single precision: training decides what that grows to.

    At large step sizes a last bit changes a model as much as it changes it on shares of 64 bits.
    """

    def answer(self, uploads: Uploads, memory: dict[str, torch.Tensor]) -> Answer:
        found = super().answer(uploads, memory)
        return dataclasses.replace(found, weights=found.weights * (1 + 2.0**-23))


def models(run: tacit.Run) -> torch.Tensor:
    """Every client's personal parameters, [clients, length]."""
    return run.models(torch.arange(len(run.federation)))[0].double()


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest relative distance of a client's parameters."""
    return float(((found - wanted).norm(dim=1) / wanted.norm(dim=1)).max())


def peers(run: tacit.Run) -> float:
    """How many others have a say in a client's shared layers, on average, in the last round."""
    weights = run.simulation.exchange.record.weights  # pyright: ignore
    heard = (weights != 0) & ~torch.eye(len(weights), dtype=torch.bool)
    return float(heard.sum() / len(heard))


def main() -> None:
    as_written = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--data", type=Path, default=os.environ.get("TACIT_DATA"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.3, help="table 3 tries 0.1, 0.3 and 1")
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 32], choices=(32, 64))
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    plan = dataclasses.replace(plan_of("lfwa"), clients=chosen.clients)
    federation = plan.load(chosen.data and Path(chosen.data), "D1", chosen.seed)
    given: dict[str, Any] = {"local_steps": plan.local_steps, "batch": plan.batch}
    given |= AS_PUBLISHED | {"lr": chosen.lr}
    table = Table(title=f"{plan.title}: {len(federation)} clients, lr {chosen.lr:g}")
    for name in ("curator", "rounds", "largest distance", "test accuracy", "peers", "seconds"):
        table.add_column(name, justify="left" if name == "curator" else "right")
    curators: list[tuple[str, type[tacit.FedMTL], tacit.Secure | None]] = [
        ("plain", tacit.FedMTL, None),
        ("plain, moved by 2⁻²³", Nudged, None),
    ]
    for bits in chosen.bits:
        secure = tacit.Secure(trust="replicated", bits=bits)
        curators.append((f"replicated, {bits} bits", tacit.FedMTL, secure))
    for rounds in sorted({1, chosen.rounds}):  # one round is one aggregation of the same uploads
        wanted = None
        for title, kind, curator in curators:
            begun = time.perf_counter()
            try:
                run = tacit.train(
                    federation, kind(**given), model=NETWORKS[plan.model], rounds=rounds,
                    curator=curator, baselines=False, personalise="none", seed=chosen.seed,
                )  # fmt: skip
            except tacit.TacitError as refused:
                table.add_row(title, str(rounds), f"refused: {refused}")
                continue
            seconds, found = time.perf_counter() - begun, models(run)
            wanted = found if wanted is None else wanted
            table.add_row(
                title, str(rounds), f"{apart(found, wanted):.1e}",
                f"{run.metrics['overall']['accuracy']:.8f}",
                "" if curator else f"{peers(run):.1f}", f"{seconds:.0f}",
            )  # fmt: skip
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
