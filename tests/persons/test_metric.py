"""Coordinates that persons send their scores in: made of the information that was published."""

from __future__ import annotations

import numpy as np
import torch

import tacit


def alike(rows: int = 900) -> tacit.Federation:
    """Yes or no at three tasks; two columns go together, and one is a flag that few have."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, 4))
    x[:, 1] = 0.95 * x[:, 0] + 0.3 * x[:, 1]
    x[:, 3] = draw.random(rows) < 0.1
    y = draw.random(rows) < 1 / (1 + np.exp(-x @ [1.0, -1.0, 0.5, 1.0]))
    about = {"kind": "binary", "scale": "none", "persons": True}
    task = np.arange(rows) % 3
    return tacit.data.from_arrays(x, y.astype(int), task, validation=0.0, test=0.0, **about)


def test_rows_tell_as_much_in_every_direction_of_what_is_sent() -> None:
    privacy = tacit.Privacy(epsilon=8.0, delta=1e-4, unit="row", persons=900)
    quiet = {"personalise": "none", "baselines": False, "seed": 0}
    board = tacit.train(alike(), privacy=privacy, method="mixed", **quiet).simulation.board
    raw, metric = board["informations"][0], board["metric"]
    assert torch.linalg.eigvalsh(raw).amin() < 0.1 * torch.linalg.eigvalsh(raw).amax()
    told = torch.linalg.eigvalsh(metric @ raw @ metric)
    assert told.amin() > 0.5 and told.amax() < 1.5
    torch.testing.assert_close(metric @ board["back"], torch.eye(5, dtype=torch.float64))
    # Noise of a score, brought back, is less where rows tell less.
    noise = board["back"] @ board["back"]
    vectors = torch.linalg.eigh(raw)[1]
    assert vectors[:, 0] @ noise @ vectors[:, 0] < 0.2 * (vectors[:, -1] @ noise @ vectors[:, -1])
