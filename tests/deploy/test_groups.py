"""Groups that find each other across silos and as processes: as on one machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tacit
from tacit.deploy.flower.trial import Trial
from tacit.deploy.site import Site
from tacit.deploy.table import own_rows
from tests.deploy.direct import personal
from tests.deploy.test_equal import across

SILOS = ("north", "east", "south", "west")
BOTH = [tacit.Clusters(groups=2), tacit.ClusterPriors(groups=2)]
ROUNDS = 7
"""Those that find groups, and some in which groups are compared."""
FILE = """
[consortium]
name = "groups"
silos = ["north", "east", "south", "west"]
[data]
target = "y"
kind = "regression"
range = [-20, 20]
[data.columns]
dose = {{ range = [-10, 10], scale = [0, 1] }}
size = {{ range = [-10, 10], scale = [0, 1] }}
[method]
name = "{name}"
groups = 2
[privacy]
noise = 0.05
[run]
rounds = {rounds}
seed = 5
"""


def two_kinds(tasks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every second task has the opposite weights."""
    draw = np.random.default_rng(0)
    names = np.repeat(np.arange(tasks), 24)
    x = draw.standard_normal((len(names), 2))
    y = (1 - 2 * (names % 2)) * (x @ [1.0, 2.0]) + 0.1 * draw.standard_normal(len(names))
    return x, y, names


def found_both(run: tacit.Run) -> None:
    """There are two groups, and every second task is in the other one."""
    board, everyone = run.simulation.board, torch.arange(len(run.federation))
    joined = run.simulation.tasks.states(everyone)["joined"].argmax(dim=1).tolist()
    assert int((board["share"] > 0).sum()) == 2
    assert joined == joined[:2] * (len(joined) // 2)
    assert joined[0] != joined[1]


@pytest.mark.parametrize("method", BOTH, ids=lambda m: type(m).__name__)
def test_silos_find_the_groups_that_the_simulation_finds(method, tmp_path):
    x, y, names = two_kinds(4)
    federation = tacit.data.from_arrays(x, y, names, scale="none", target_scale="none")
    given = {"rounds": ROUNDS, "seed": 3, "privacy": tacit.Privacy(noise=0.05)}
    found, expected, run, _ = across(federation, method, tmp_path, **given)
    found_both(run)
    assert torch.allclose(found, expected, atol=2e-5)
    assert expected.abs().max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clusters", "cluster-priors"])
def test_silos_that_are_processes_find_the_same_groups(name, tmp_path):
    x, y, names = two_kinds(len(SILOS))
    tables: dict[str, Path] = {}
    for k, silo in enumerate(SILOS):
        rows = [
            f"{a:.5f},{b:.5f},{c:.5f}"
            for (a, b), c in zip(x[names == k], y[names == k], strict=True)
        ]
        tables[silo] = tmp_path / f"{silo}.csv"
        tables[silo].write_text("\n".join(["dose,size,y", *rows]), encoding="utf-8")
    text = FILE.format(name=name, rounds=ROUNDS)
    with Trial(tmp_path / "trial", text, tables) as trial:
        trial.start()
        trial.wait(seconds=200)
    terms = trial.terms
    federation = terms.federation({k: own_rows(terms, s, tables[s]) for k, s in enumerate(SILOS)})
    given = {"privacy": terms.make_privacy(), "personalise": "none", "baselines": False}
    given |= {"model": terms.model, "rounds": terms.rounds, "cohort": terms.cohort, "seed": 5}
    run = tacit.train(federation, terms.make_method(), **given)
    found_both(run)
    left = torch.stack([personal(Site.open(trial.folder / silo).silo) for silo in SILOS])
    assert torch.allclose(left, run.models(torch.arange(len(SILOS)))[0], atol=2e-5)
