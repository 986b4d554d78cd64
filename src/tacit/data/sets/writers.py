"""MNIST with the people who wrote the digits, from one archive `mnist_by_writer.npz`.

QMNIST says which NIST writer each digit of MNIST came from. The archive holds `x_train` (784 bytes
a row), `y_train` and `writer_train`, and the same with `_test` for MNIST's test set, which is by
other writers: settings chosen on those have seen nothing of the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.data.assemble import About, assemble
from tacit.data.federation import Federation
from tacit.data.folders import find, only
from tacit.data.npz import read_arrays
from tacit.data.split import SplitRule
from tacit.data.targets import Target
from tacit.errors import TacitError

FILE = "mnist_by_writer.npz"
KEYS = ("x", "y", "writer")


def writers(
    path: str | Path | None = None,
    *,
    people: Literal["train", "test"] = "train",
    **split: Any,
) -> Federation:
    """Handwritten digits: x [N, 1, 28, 28] in [0, 1], ten classes, a task for each writer.

    `people` are the 539 writers of MNIST's training set, or the 297 others of its test set.
    """
    if people not in ("train", "test"):
        raise TacitError(f"people={people!r}: choose train or test")
    rule = SplitRule(**{"min_rows": 3} | split)
    folder = find("writers", path, ("writers", "qmnist_writer"))
    file = only(folder, (FILE,), "MNIST with writers as one archive")
    names = [f"{key}_{people}" for key in KEYS]
    arrays = read_arrays(file, tuple(names))
    x, y, who = (arrays[name] for name in names)
    if x.ndim != 2 or x.shape[1] != 784 or x.dtype != np.uint8:
        raise TacitError(
            f"x_{people} of {file} is {x.dtype.name} {x.shape}, expected uint8 [N, 784]"
        )
    if y.shape != (len(x),) or who.shape != (len(x),):
        raise TacitError(
            f"{file} has {len(x)} images, y_{people} {y.shape} and writer_{people} {who.shape}; "
            "expected one class and one writer for each image"
        )
    if y.dtype.kind not in "iu" or not bool(((y >= 0) & (y <= 9)).all()):
        raise TacitError(f"y_{people} of {file} must hold whole numbers from 0 to 9")
    in_order = np.argsort(who, kind="stable")
    images = x[in_order].reshape(-1, 1, 28, 28).astype(np.float32) / 255.0
    classes = tuple(str(digit) for digit in range(10))
    target = Target("multiclass", y[in_order].astype(np.int64), 10, classes)
    names = np.array([f"writer-{number}" for number in who[in_order].tolist()])
    return assemble(images, target, names, About(source="QMNIST, MNIST by writer"), rule=rule)
