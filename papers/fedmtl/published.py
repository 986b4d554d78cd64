"""What the paper prints: test accuracies, mIoU and pixel accuracy, in per cent.

Pritam Sen, Cristian Borcea. "FedMTL: Privacy-Preserving Federated Multi-Task Learning." European
Conference on Artificial Intelligence, 2024.
"""

from __future__ import annotations

TABLE_3: dict[str, dict[str, tuple[float, ...]]] = {
    "FedMTL": {"celeba": (83.3,), "lfwa": (70.9,), "facea": (78.3,), "nyud2": (37.2, 74.4)},
    "FedAvg": {"celeba": (76.0,), "lfwa": (64.7,), "facea": (68.5,), "nyud2": (28.9, 62.0)},
    "FedProx": {"celeba": (76.4,), "lfwa": (64.7,), "facea": (69.3,), "nyud2": (30.4, 63.9)},
    "MOCHA": {"celeba": (81.7,), "lfwa": (67.9,), "facea": (76.9,), "nyud2": (34.9, 71.1)},
    "pFedMe": {"celeba": (76.2,), "lfwa": (64.7,), "facea": (69.2,), "nyud2": (30.3, 64.2)},
    "FedFomo": {"celeba": (80.9,), "lfwa": (68.9,), "facea": (76.1,), "nyud2": (35.1, 72.0)},
    "FedAMP": {"celeba": (81.9,), "lfwa": (68.4,), "facea": (77.1,), "nyud2": (35.4, 71.3)},
}
"""Table 3, two heads for each client."""
ROWS = {
    "fedmtl": "FedMTL",
    "fedavg-position": "FedAvg",
    "fedprox-position": "FedProx",
    "pfedme-position": "pFedMe",
    "mocha": "MOCHA",
    "fedfomo": "FedFomo",
    "fedamp": "FedAMP",
}
"""Which contender is the paper's: baselines as published go by position."""
D2 = {"celeba": (82.5,), "lfwa": (70.5,), "nyud2": (36.7,)}
"""Section 7.2: FedMTL, a random number of heads for each client."""
FIGURE_8 = {"D1": 78.3, "D2": 78.5}
"""Section 7.2: FedMTL on FaceA; the other curves are drawn only."""
DRAWN = "drawn, not printed"


def published(name: str, key: str) -> tuple[float, ...] | None:
    return TABLE_3[ROWS[name]].get(key) if name in ROWS else None
