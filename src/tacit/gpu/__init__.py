"""Whether a device can run our own kernels, and where they are.

They are written in Triton, which comes with PyTorch where there is a GPU. Beside each use is the
same in plain PyTorch, which all other devices run.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import torch

OLDEST = (8, 0)
"""GPUs before this have no bfloat16."""


@lru_cache
def usable(device: torch.device) -> bool:
    """Whether it is a GPU with what kernels need; says so once if it is one without."""
    if device.type != "cuda":
        return False
    try:
        load()
    except ImportError:
        why = "Triton is not installed"
    else:
        if torch.cuda.get_device_capability(device) >= OLDEST:
            return True
        why = f"{torch.cuda.get_device_name(device)} has no bfloat16"
    warnings.warn(
        f"networks train slower than they could, those with convolutions several times: {why}",
        stacklevel=2,
    )
    return False


@lru_cache
def load() -> Any:
    """The kernels themselves, which only a GPU needs."""
    from tacit.gpu import kernels

    return kernels
