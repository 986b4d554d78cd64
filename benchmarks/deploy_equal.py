"""The same seeded run three times: simulated, on Flower's simulation engine, and as processes.

    python benchmarks/deploy_equal.py

Four silos with made-up tables. Processes are those of `tacit coordinator run` and `tacit silo run`,
over TLS with registered keys. Compared are the personal models as the method leaves them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

import tacit
from deploy_kills import SILOS, tables_in, terms_text
from tacit.deploy.flower.trial import Trial
from tacit.deploy.site import Site
from tacit.deploy.table import own_rows

METHODS = (
    ("pmtl", "task", 20),
    ("fedavg", "task", 20),
    ("prior", "task", 1),
    ("mpmtl", "task", 5),
    ("fedmtl", "task", 10),
    ("mixed", "row", 5),
    ("fedavg", "row", 20),
)
"""The unit of privacy, and how many rounds; `prior` is the one-shot private covariance."""


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--without-ray", action="store_true")
    settings = given.parse_args()
    print("largest difference of a parameter from the simulation's, all silos")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = tables_in(folder)
        for method, unit, rounds in METHODS:
            text = terms_text(rounds, method=method, unit=unit)
            with Trial(folder / f"{method}-{unit}", text, tables) as trial:
                trial.start()
                trial.wait(seconds=300)
            terms = trial.terms
            rows = {k: own_rows(terms, silo, tables[silo]) for k, silo in enumerate(SILOS)}
            alike = {
                "model": terms.model, "rounds": rounds, "privacy": terms.make_privacy(), "seed": 1,
                "personalise": "none", "baselines": False,
            }  # fmt: skip
            federation = terms.federation(rows)
            expected = _models(tacit.train(federation, terms.make_method(), **alike))
            found = {"processes": torch.stack([_left(trial.folder / silo) for silo in SILOS])}
            if not settings.without_ray and unit == "task":
                on_ray = tacit.train(federation, terms.make_method(), engine="flower", **alike)
                found["Ray"] = _models(on_ray)
            apart = [f"{k} {float((v - expected).abs().max()):.1e}" for k, v in found.items()]
            largest = float(expected.abs().max())
            said = f"{method:8} {unit:6} {rounds:3} rounds  {'  '.join(apart)}"
            print(f"{said}  (largest {largest:.2g})")


def _models(run: tacit.Run) -> torch.Tensor:
    return run.models(torch.arange(len(SILOS)))[0]


def _left(folder: Path) -> torch.Tensor:
    """What the method left at a silo, before the silo's own last step."""
    work = Site.open(folder).silo.latest()
    simulation = None if work is None else work.reopen()
    assert work is not None and simulation is not None
    return simulation.personal(torch.tensor([work.task]))[0][0]


if __name__ == "__main__":
    main()
