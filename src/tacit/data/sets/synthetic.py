"""Made-up tasks whose true weights are known.

Low rank and group sparse are those of Liang et al., "Model-Protected Multi-Task Learning" (MP-MTL),
section 4.4. There the training rows are `rows`, the test rows nine times as many. The paper has no
validation rows; here as many as training rows are drawn extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import torch

from tacit.checks import check_whole
from tacit.data.federation import Federation, Kind, Rows
from tacit.errors import TacitError


@dataclass(frozen=True)
class Synthetic:
    """A federation and the weights [tasks, features] it was made with."""

    federation: Federation
    weights: np.ndarray


class NumberedNames(Sequence[str]):
    """`task-0`, `task-1` …, made when asked for: a million names take no memory."""

    def __init__(self, count: int) -> None:
        self.size = count

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        numbers = range(self.size)[index]
        if isinstance(numbers, int):
            return f"task-{numbers}"
        return [f"task-{number}" for number in numbers]


def low_rank(
    tasks: int = 320,
    rows: int = 30,
    features: int = 30,
    rank: int = 5,
    seed: int = 0,
    *,
    test_rows: int | None = None,
    validation_rows: int | None = None,
) -> Synthetic:
    """Weights W ~ MVN(0, I, Sigma) with a Sigma [tasks, tasks] of this rank, mean diagonal 100.

    The paper draws Sigma but does not say how; rank 5 and 100 reproduce its published errors.
    """
    rng = _generator(seed, tasks=tasks, rows=rows, features=features, rank=rank)
    factor = rng.standard_normal((tasks, rank), dtype=np.float32)
    factor *= np.sqrt(100.0 / np.mean(np.sum(factor.astype(np.float64) ** 2, axis=1)))
    weights = factor @ rng.standard_normal((rank, features), dtype=np.float32)
    return _unit_rows(rng, weights, rows, test_rows, validation_rows, "low-rank")


def group_sparse(
    tasks: int = 320,
    rows: int = 30,
    features: int = 30,
    relevant: int = 4,
    seed: int = 0,
    *,
    test_rows: int | None = None,
    validation_rows: int | None = None,
) -> Synthetic:
    """Only the first `relevant` features matter, with weights uniform in [-50, -1] and [1, 50]."""
    rng = _generator(seed, tasks=tasks, rows=rows, features=features, relevant=relevant)
    if relevant > features:
        raise TacitError(f"relevant is {relevant}, but there are only {features} features")
    weights = np.zeros((tasks, features), dtype=np.float32)
    sign = rng.integers(0, 2, (tasks, relevant)) * 2 - 1
    weights[:, :relevant] = sign * rng.uniform(1.0, 50.0, (tasks, relevant))
    return _unit_rows(rng, weights, rows, test_rows, validation_rows, "group-sparse")


def personal_shift(
    tasks: int = 100,
    rows: int = 20,
    features: int = 10,
    spread: float = 0.5,
    seed: int = 0,
    *,
    kind: Literal["regression", "binary"] = "regression",
    noise: float = 0.5,
    test_rows: int | None = None,
    validation_rows: int | None = None,
) -> Synthetic:
    """Tasks that share most of what there is to learn: common weights + a personal deviation.

    Common weights have norm 2, deviations have norm `spread` on average (root mean square), rows
    are standard normal. Regression adds noise of this standard deviation; binary draws from the
    logistic model. As many validation rows as training rows, and twice as many test rows.
    """
    rng = _generator(seed, tasks=tasks, rows=rows, features=features)
    if not spread >= 0 or not noise >= 0:
        raise TacitError(f"spread is {spread} and noise is {noise}, expected 0 or more")
    if kind not in ("regression", "binary"):
        raise TacitError(f"kind is {kind!r}, expected 'regression' or 'binary'")
    common = rng.standard_normal(features, dtype=np.float32)
    weights = rng.standard_normal((tasks, features), dtype=np.float32)
    weights *= np.float32(spread / np.sqrt(features))
    weights += 2.0 * common / np.linalg.norm(common)

    def draw(count: int) -> Rows:
        x = rng.standard_normal((tasks, count, features), dtype=np.float32)
        signal = np.matmul(x, weights[:, :, None])[:, :, 0]
        if kind == "binary":
            # rng.logistic has no single-precision version; this is its inverse distribution.
            u = rng.random((tasks, count), dtype=np.float32)
            y = (u * (1.0 + np.exp(-np.clip(signal, -30, 30))) < 1.0).astype(np.float32)
        else:
            y = signal + noise * rng.standard_normal((tasks, count), dtype=np.float32)
        return _rows(x, y)

    return _federation(
        draw, weights, (rows, validation_rows, test_rows, 2 * rows), kind, "personal-shift"
    )


def _unit_rows(
    rng: np.random.Generator,
    weights: np.ndarray,
    rows: int,
    test_rows: int | None,
    validation_rows: int | None,
    source: str,
) -> Synthetic:
    """y = x w + N(0, 1) with rows x of norm one."""
    tasks, features = weights.shape

    def draw(count: int) -> Rows:
        x = rng.standard_normal((tasks, count, features), dtype=np.float32)
        x /= np.linalg.norm(x, axis=2, keepdims=True)
        y = np.matmul(x, weights[:, :, None])[:, :, 0]
        y += rng.standard_normal((tasks, count), dtype=np.float32)
        return _rows(x, y)

    return _federation(
        draw, weights, (rows, validation_rows, test_rows, 9 * rows), "regression", source
    )


def _rows(x: np.ndarray, y: np.ndarray) -> Rows:
    tasks, count, features = x.shape
    return Rows(
        torch.from_numpy(x.reshape(tasks * count, features)),
        torch.from_numpy(y.reshape(-1).astype(np.float32, copy=False)),
        torch.arange(tasks + 1, dtype=torch.int64) * count,
    )


def _federation(draw, weights: np.ndarray, counts, kind: Kind, source: str) -> Synthetic:
    """`counts`: training, validation and test rows, and the test rows where None was passed."""
    rows, validation_rows, test_rows, usual_test = counts
    validation_rows = rows if validation_rows is None else validation_rows
    test_rows = usual_test if test_rows is None else test_rows
    check_whole("validation_rows", validation_rows, 0)
    check_whole("test_rows", test_rows, 0)
    # Drawn in this order, so that other sizes of the held-out parts leave training rows alone.
    train, test, validation = draw(rows), draw(test_rows), draw(validation_rows)
    federation = Federation(
        names=NumberedNames(len(weights)),
        kind=kind,
        outputs=1,
        train=train,
        validation=validation,
        test=test,
        features=tuple(f"x{i}" for i in range(weights.shape[1])),
        labels=("0", "1") if kind == "binary" else (),
        source=f"synthetic {source}",
    )
    return Synthetic(federation, weights)


def _generator(seed: int, **sizes: int) -> np.random.Generator:
    """The source of all draws, once the sizes of what is drawn are known to be sizes."""
    for name, value in sizes.items():
        check_whole(name, value, 2 if name == "tasks" else 1)
    check_whole("seed", seed, 0)
    return np.random.default_rng(seed)
