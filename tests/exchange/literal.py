"""FedMTL's equations 2 to 9 once more, as the paper prints them: plain loops over plain numbers.

A client is a dictionary: its shared layers, its task layers by name, its number of rows. Nothing
here knows of tensors, of parts, or of heads that a client does not hold.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from tacit.exchange import Uploads

SAME = 1e-9
"""Similarities that differ by less are equal: a threshold of 1 keeps equal layers together."""


def cosine(a: list[float], b: list[float]) -> float:
    """Equation 4, the shorter layer padded with zeros; 0 for a layer of zeros."""
    dot = sum(x * y for x, y in itertools.zip_longest(a, b, fillvalue=0.0))
    lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return dot / lengths if lengths > 0 else 0.0


def best_mapping(table: list[list[float]]) -> float:
    """Equation 5: every one-to-one mapping of some rows to some columns is tried."""
    rows, columns = len(table), len(table[0])
    best = 0.0
    for count in range(1, min(rows, columns) + 1):
        for chosen in itertools.combinations(range(rows), count):
            for partners in itertools.permutations(range(columns), count):
                total = sum(table[a][b] for a, b in zip(chosen, partners, strict=True))
                best = max(best, total)
    return best


def similarities(clients: list[dict], fake: int = 0) -> list[list[float]]:
    """Equation 6, with so many fake tasks (layers of zeros) added to every client."""
    found = []
    for i, one in enumerate(clients):
        row = []
        for j, other in enumerate(clients):
            zeros = [[0.0]] * fake
            table = [
                [cosine(a, b) for b in [*other["heads"].values(), *zeros]]
                for a in [*one["heads"].values(), *zeros]
            ]
            row.append(1.0 if i == j else best_mapping(table) / len(one["heads"]))
        found.append(row)
    return found


def variant_scores(clients: list[dict], name: str, threshold: float) -> tuple[list, list]:
    """S for the shared layers and for the task layers, as the ablations describe them."""
    n = len(clients)
    similar = [
        [0.0 if value < threshold - SAME else value for value in row]
        for row in similarities(clients)
    ]
    one = [[1.0] * n for _ in range(n)]
    own = [[float(i == j) for j in range(n)] for i in range(n)]
    sets = [set(client["heads"]) for client in clients]
    jaccard = [[len(a & b) / len(a | b) for b in sets] for a in sets]
    equal = [[float(a == b) for b in sets] for a in sets]
    return {
        "FedMTL": (similar, similar),
        "Z": (similar, similar),
        "X": (one, own),
        "G": (one, one),
        "T": (one, similar),
        "J": (jaccard, jaccard),
        "E": (equal, equal),
    }[name]


def enough(others: list[float], peers: int) -> bool:
    """Whether so many of these weights have a say."""
    total = sum(others) * (1 + 1e-9)
    heavy = [weight for weight in others if 10 * max(1, peers - 1) * weight > total]
    return len(heavy) >= peers or 10 * (sum(others) - sum(heavy)) > total


def mixture(weights: dict[int, float], layers: dict[int, list[float]], own: int, peers: int):
    """Equations 2 and 3; with fewer than so many others in it, the client's own.

    Of a few who weigh nine tenths of all others, each counts with a weight worth the name.
    """
    if not enough([weight for j, weight in weights.items() if j != own], peers):
        return layers[own]
    total = sum(weights.values())
    return [
        sum(weights[j] * layers[j][t] for j in weights) / total for t in range(len(layers[own]))
    ]


def personal_models(
    clients: list[dict], name: str, threshold: float = 0.0, peers: int = 1
) -> list[dict]:
    """Equations 2, 3, 8 and 9: the personal model of every client."""
    shared_scores, head_scores = variant_scores(clients, name, threshold)
    answers = []
    for i, client in enumerate(clients):
        p = {j: shared_scores[i][j] * other["size"] for j, other in enumerate(clients)}
        shared = mixture(p, {j: o["shared"] for j, o in enumerate(clients)}, i, peers)
        heads = {}
        for task in client["heads"]:
            holders = {j: o for j, o in enumerate(clients) if task in o["heads"]}
            q = {j: head_scores[i][j] * o["size"] for j, o in holders.items()}
            layers = {j: o["heads"][task] for j, o in holders.items()}
            heads[task] = mixture(q, layers, i, peers)
        answers.append({"shared": shared, "heads": heads})
    return answers


def random_clients(seed: int, n: int, lengths: list[int], spread: float, zeros: float = 0.0):
    """Clients in two groups whose task layers are alike, with different sets of tasks.

    Task k has a layer of `lengths[k]` numbers; with the chance `zeros` a layer is all zero.
    """
    generator = np.random.default_rng(seed)
    base = generator.normal(size=max(lengths))
    # Tasks are a little alike as well, so that the best partner is not always the same task.
    centres = base + 0.8 * generator.normal(size=(2, len(lengths), max(lengths)))
    clients = []
    for _ in range(n):
        group = generator.integers(2)
        held = generator.permutation(len(lengths))[: generator.integers(1, len(lengths) + 1)]
        heads = {}
        for k in sorted(held.tolist()):
            layer = centres[group, k] + spread * generator.normal(size=max(lengths))
            layer = 0 * layer if generator.random() < zeros else layer
            heads[f"T{k}"] = layer[: lengths[k]].tolist()
        shared = generator.normal(size=3).tolist()
        clients.append({"shared": shared, "heads": heads, "size": int(generator.integers(1, 40))})
    return clients


def uploads_of(
    clients: list[dict],
    lengths: list[int],
    *,
    round: int = 0,
    rounds: int = 1,
    rest: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Uploads:
    """The same clients as the curator gets them; heads that they do not hold are sevens."""
    names = [f"T{k}" for k in range(len(lengths))]
    vectors, holds = [], []
    for client in clients:
        layers = [client["heads"].get(name, [7.0] * lengths[k]) for k, name in enumerate(names)]
        vectors.append([*client["shared"], *itertools.chain(*layers), *[0.5] * rest])
        holds.append([name in client["heads"] for name in names])
    bounds = [0, *itertools.accumulate([3, *lengths, rest])]
    return Uploads(
        torch.arange(len(clients)),
        torch.tensor(vectors, dtype=dtype),
        torch.tensor([client["size"] for client in clients]),
        torch.tensor(holds),
        list(itertools.starmap(slice, itertools.pairwise(bounds))),
        round,
        rounds,
    )
