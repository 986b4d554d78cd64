"""Silos notice as little of each other as tasks on one machine do.

Workers of Ray run the code of silos: `tests/deploy/flower` compares them with the simulation.
"""

from __future__ import annotations

import pytest
import torch

import tacit
from tacit import data
from tacit.deploy.terms import terms_of
from tacit.experiment.plan import Plan
from tests.deploy import runs
from tests.deploy.direct import personal
from tests.interference.harness import CHANGES, TARGET, table


def both(change: str):
    before = table("binary", tasks=6)
    pair = (before, CHANGES[change](*before))
    return [data.from_arrays(*each, kind="binary") for each in pair]


@pytest.mark.parametrize("change", [name for name in CHANGES if "place" not in name])
def test_silos_send_and_keep_the_same(change, tmp_path):
    """One round from the same billboard; the order of silos is agreed, so no place can change."""
    seen = []
    for number, federation in enumerate(both(change)):
        sent = {}

        def answered(task, request, reply, sent=sent):
            if request.kind == "train":
                sent[task] = reply.tensors["sent"]
            return reply

        method, privacy = tacit.PMTL(local_steps=2), tacit.Privacy(noise=1.0)
        plan = Plan(method=method, rounds=1, cohort=1.0, privacy=privacy, seed=3)
        terms = terms_of(federation, plan)
        _, direct = runs.run(terms, federation, tmp_path / str(number), answered=answered)
        kept = {silo.name: personal(silo) for silo in direct.silos}
        seen.append({name: (sent[k], kept[name]) for k, name in enumerate(federation.names)})
    for name in seen[0].keys() - {TARGET}:
        for one, other in zip(seen[0][name], seen[1][name], strict=True):
            assert torch.equal(one, other)
    assert change == "wild values" or not torch.equal(seen[0][TARGET][0], seen[1][TARGET][0])
