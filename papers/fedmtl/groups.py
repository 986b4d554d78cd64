"""Figures 2, 5 and 6: what the dealing looks like, and how alike models are in groups of clients.

Groups of clients are given the same heads; after training, their layers are compared.
"""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from papers.common.write import markdown_table, write_csv, write_figure
from papers.fedmtl import plots
from papers.fedmtl.contenders import AS_PUBLISHED
from papers.fedmtl.context import FedMTLContext
from papers.fedmtl.fits import FedMTLFit, Seen
from papers.fedmtl.grid import WantedRun
from papers.fedmtl.sets import FedMTLPlan
from tacit.data.deal import Dealing
from tacit.data.sets.faces import HEADS
from tacit.methods import FedMTL, Local

IMAGES = 9000
LR = 0.3
"""Step size of figures 2 and 6: the middle of those that table 3 tries."""
LAYERS = ("task layers", "top shared layer", "bottom shared layer")


def figure5(context: FedMTLContext) -> str:
    """Of the dealing alone: no rows are read."""
    plan = context.plan("lfwa")
    dealing = Dealing(plan.clients, 0, 1.0, 0, plan.min_rows)
    rows = np.bincount(dealing.rows(IMAGES), minlength=plan.clients)
    holds = dealing.heads(HEADS)
    names = dealing.names()
    lines = [
        (
            names[k],
            int(rows[k]),
            int(holds[k].sum()),
            " ".join(f"T{h + 1}" for h in np.flatnonzero(holds[k])),
        )
        for k in range(plan.clients)
    ]
    write_csv(context.out / "figure5.csv", ("client", "samples", "heads", "which"), lines)
    many = Counter(int(n) for n in holds.sum(axis=1))
    by_number = [many[k] for k in range(1, HEADS + 1)]
    by_head = [int(n) for n in holds.sum(axis=0)]
    write_figure(context.out, "figure5", plots.dealt(rows.tolist(), by_number, by_head))
    table = [
        (
            "samples per client",
            "drawn",
            f"{rows.min()} to {rows.max()}, median {statistics.median(rows.tolist()):g}",
        ),
        ("clients by number of heads, 1 to 8", "drawn", ", ".join(map(str, by_number))),
        ("clients by head, T1 to T8", "drawn", ", ".join(map(str, by_head))),
    ]
    why = (
        f"The paper shows one dealing of 12 000 images of CelebA; here it is the one with seed 0 "
        f"of the stand-in for LFWA, {IMAGES} images. The concentration of the Dirichlet "
        "distribution is not published: it is 1 here. Every client has at least "
        f"{plan.min_rows} images, and every head at least two clients."
    )
    head = ("", "published", "ours")
    return "\n\n".join([markdown_table(head, table), "## Why they differ", why])


def figure6(context: FedMTLContext) -> str:
    """Similarity of task layers and of shared layers, by sub-group."""
    plan = context.plan("figure6")
    method = FedMTL(**AS_PUBLISHED, lr=LR, local_steps=plan.local_steps, batch=plan.batch)
    path = context.out / "figure6.csv"

    def keep(job: WantedRun, fit: FedMTLFit) -> None:
        exchange = fit.exchange
        assert exchange is not None and isinstance(exchange.record, Seen)
        shared = exchange.record.shared
        assert shared is not None
        rows = []
        for layers, matrix in (("task", exchange.record.similarity), ("shared", shared)):
            numbers = matrix.double().cpu().numpy()
            rows += [
                (layers, i, j, round(float(numbers[i, j]), 4))
                for i in range(plan.clients)
                for j in range(plan.clients)
            ]
        write_csv(path, ("layers", "client", "other", "similarity"), rows)

    _once(context, WantedRun(plan, method, 0, title="FedMTL, as published"), path, keep)
    if not path.is_file():
        return "Nothing was run yet: there is nothing to show."
    found = {name: np.zeros((plan.clients, plan.clients)) for name in ("task", "shared")}
    for row in _read(path):
        found[row["layers"]][int(row["client"]), int(row["other"])] = float(row["similarity"])
    names = _sub_groups(plan)
    write_figure(context.out, "figure6", plots.heat(found["task"], found["shared"], names))
    lines = [
        (words, "drawn", *(f"{_mean(found[name], plan, kind):.2f}" for name in found))
        for words, kind in (
            ("the same sub-group", "same"),
            ("the same heads, the other domain", "heads"),
            ("other heads, the same domain", "domain"),
            ("other heads, the other domain", "neither"),
        )
    ]
    head = (
        "mean similarity of two clients of",
        "published",
        "ours: task layers",
        "ours: shared layers",
    )
    why = (
        "The paper's groups have images of CelebA and of LFWA; here they see photographs and "
        "their negatives (stand-in). Task layers: S of FedMTL, eq. 6, as the curator sees it in "
        "the last round. Shared layers: the cosine of what was learned since the common start, of "
        "the models that were uploaded in the last round."
    )
    return "\n\n".join([markdown_table(head, lines), "## Why they differ", why])


def _sub_groups(plan: FedMTLPlan) -> list[str]:
    """G11 … G24: domain, then sub-group."""
    half = len(plan.groups) // 2
    return [f"G{k // half + 1}{k % half + 1}" for k in range(len(plan.groups))]


def _mean(matrix: np.ndarray, plan: FedMTLPlan, kind: str) -> float:
    group, half = np.array(plan.group_of), len(plan.groups) // 2
    heads = (group[:, None] % half) == (group % half)
    domain = (group[:, None] // half) == (group // half)
    others = ~np.eye(len(matrix), dtype=bool)
    mask = {
        "same": heads & domain,
        "heads": heads & ~domain,
        "domain": ~heads & domain,
        "neither": ~heads & ~domain,
    }[kind]
    return float(matrix[mask & others].mean())


def figure2(context: FedMTLContext) -> str:
    """t-SNE of layers of clients that trained alone, coloured by group."""
    plan = context.plan("figure2")
    method = Local(lr=LR, local_steps=plan.local_steps, batch=plan.batch)
    path = context.out / "figure2.csv"
    columns = ("layers", "client", "group", "head", "x", "y", "nearest group", "nearest head")

    def keep(job: WantedRun, fit: FedMTLFit) -> None:
        write_csv(path, columns, [line for name in LAYERS for line in _placed(plan, fit, name)])

    _once(context, WantedRun(plan, method, 0, title="alone"), path, keep)
    if not path.is_file():
        return "Nothing was run yet: there is nothing to show."
    rows = _read(path)
    panels = [(name, [row for row in rows if row["layers"] == name]) for name in LAYERS]
    names = [f"G{k + 1}: {', '.join(heads)}" for k, heads in enumerate(plan.groups)]
    write_figure(context.out, "figure2", plots.scatter(panels, names))
    lines = []
    for name, points in panels:
        by_group = statistics.mean(p["nearest group"] == p["group"] for p in points)
        by_head = statistics.mean(p["nearest head"] == p["head"] for p in points)
        shown = f"{100 * by_head:.0f} %" if name == LAYERS[0] else "–"
        lines.append((name, "drawn", f"{100 * by_group:.0f} %", shown))
    head = (
        "",
        "published",
        "ours: nearest is of the same group",
        "ours: nearest is of the same head",
    )
    why = (
        "The paper shows CelebA, here it is the stand-in for LFWA; 20 rounds of training alone. "
        "t-SNE shows neighbours and no distances, so the table counts them before it: for how many "
        "layers the nearest other layer, by Euclidean distance, has the same group or head. By "
        "chance it would be 15 to 18 % (group) and 30 % (head). The top shared layer is the fully "
        "connected one, the bottom one the first convolution."
    )
    return "\n\n".join([markdown_table(head, lines), "## Why they differ", why])


def _placed(plan: FedMTLPlan, fit: FedMTLFit, name: str) -> list[tuple[Any, ...]]:
    """Points in the plane for the layers of all clients, and the nearest of each."""
    vectors, who, heads = _layers(fit, name)
    apart = torch.cdist(vectors, vectors).double().cpu().numpy()
    xy = _tsne(apart)
    group = [f"G{plan.group_of[client] + 1}" for client in who]
    near = (apart + np.diag(np.full(len(apart), np.inf))).argmin(axis=1)
    return [
        (
            name,
            client,
            group[k],
            heads[k],
            *(round(float(v), 3) for v in xy[k]),
            group[near[k]],
            heads[near[k]],
        )
        for k, client in enumerate(who)
    ]


def _layers(fit: FedMTLFit, name: str) -> tuple[Tensor, list[int], list[str]]:
    """Vectors [n, size], whose they are, and which head (for task layers)."""
    simulation = fit.simulation
    held = simulation.federation.heads
    assert held is not None
    everyone = torch.arange(len(simulation.federation), device=simulation.device)
    w, buffers = simulation.personal(everyone)
    if name == LAYERS[0]:
        pairs = held.holds.nonzero().tolist()
        parts = simulation.model.parts[1:]
        layers = torch.stack([w[client, parts[head]] for client, head in pairs])
        return layers, [client for client, _ in pairs], [held.names[head] for _, head in pairs]
    shared = [
        values
        for key, values in simulation.model.named(w, buffers).items()
        if key.startswith("body.") and key.endswith("weight") and values.ndim > 2
    ]
    chosen = shared[-1] if name == LAYERS[1] else shared[0]
    return chosen.flatten(1), everyone.tolist(), [""] * len(everyone)


def _tsne(apart: np.ndarray) -> np.ndarray:
    from sklearn.manifold import TSNE  # slow to import, and needed here only

    made = TSNE(
        metric="precomputed",
        init="random",
        random_state=0,
        perplexity=min(15.0, (len(apart) - 1) / 3),
    )
    return made.fit_transform(apart)


def _once(context: FedMTLContext, job: WantedRun, path: Path, keep: Any) -> None:
    """A run whose file is needed as well as its cell."""
    grid = context.grid
    grid.run(
        [job],
        path.stem,
        then=keep,
        missing=lambda job: grid.get(job) is None or not path.is_file(),
    )


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
