"""Baselines as the FedMTL paper runs them: heads are averaged by position, whatever they predict.

With two tasks each, all clients' models have the same form, so an implementation that does not know
about tasks runs: the first task layers of all clients are averaged, and the second ones, though
they predict different attributes. That is what the published FedAvg, FedProx and pFedMe do. Here it
is the federation that changes: every client's heads are called "first", "second", …, and any method
runs on it as it is.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tacit.data.federation import PARTS, Federation
from tacit.data.heads import Heads
from tacit.errors import TacitError

PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def by_position(federation: Federation) -> Federation:
    """The same clients; head k is whatever comes k-th among a client's own."""
    heads = federation.heads
    if heads is None or len(set(heads.outputs)) > 1 or len(set(heads.holds.sum(1).tolist())) > 1:
        raise TacitError("heads can be taken by position only where all clients have equally many")
    count, size = int(heads.holds[0].sum()), heads.outputs[0]
    mine = heads.holds.nonzero()[:, 1].reshape(len(federation), count)
    width = size if federation.kind == "multilabel" else 1  # pixels have one plane for each head
    columns = (mine.unsqueeze(2) * width + torch.arange(width)).flatten(1)
    parts = {}
    for name in PARTS:
        rows = federation.part(name)
        each = columns.repeat_interleave(rows.counts, dim=0)
        index = each.reshape(*each.shape, *[1] * (rows.y.ndim - 2)).expand(
            -1, -1, *rows.y.shape[2:]
        )
        parts[name] = replace(rows, y=rows.y.gather(1, index))
    everyone = torch.ones(len(federation), count, dtype=torch.bool)
    return replace(
        federation,
        **parts,
        heads=Heads(PLACES[:count], (size,) * count, everyone),
        outputs=count * size,
        labels=(),
    )
