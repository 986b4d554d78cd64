"""Settings of the whole process: a server makes them for itself, a library must not.

Together these are worth half of a server's time, and change nothing that it computes.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys

from tacit.secure.ring.kernels import warm_up

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Of glibc's mallopt."""
SWITCH = 0.02
"""Seconds between switches of threads that compute; most threads here wait for sockets."""
LARGEST = 32 << 20
"""The most that M_MMAP_THRESHOLD takes."""


def speed_up_process() -> None:
    """Call this once, before the first product: numba asks for the processor's features then."""
    sys.setswitchinterval(SWITCH)
    _keep_memory()
    _prefer_wide_vectors()
    warm_up()


def _keep_memory() -> None:
    """Do not hand buffers back after every use: fresh pages cost more than filling them."""
    with contextlib.suppress(OSError, AttributeError):  # another C library does as it likes
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_ARENA_MAX, 1)


def _prefer_wide_vectors() -> None:
    """Let compiled loops use the processor's widest vectors, which numba avoids by default."""
    with contextlib.suppress(ImportError):
        from llvmlite import binding
        from numba.core import config

        features = binding.get_host_cpu_features()
        features["prefer-256-bit"] = False
        setattr(config, "CPU_FEATURES", features.flatten())  # noqa: B010
