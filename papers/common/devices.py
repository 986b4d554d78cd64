"""Where runs are made."""

from __future__ import annotations

import os

import torch

from tacit.errors import TacitError


def prepare_device(name: str) -> torch.device:
    """The device, with the faster products that are exact enough for accuracies."""
    if name not in ("cpu", "cuda"):
        raise TacitError(f"device={name!r}: use cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise TacitError("device='cuda': no CUDA device is there; use device='cpu'")
    if name == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32
    return torch.device(name)


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} (TF32 products)"
    return f"CPU with {os.cpu_count()} cores"
