"""Run a computation on shares as threads, and look at what came out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.secure.net.links import Mesh
from tacit.secure.protocol.additive import Additive
from tacit.secure.protocol.engine import Engine
from tacit.secure.protocol.replicated import Replicated

SETTINGS = [("dealer", 2), ("dealer", 3), ("dealer", 4), ("replicated", 3)]


def pieces(secret: np.ndarray, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Additive shares of a tensor of words."""
    top = np.iinfo(secret.dtype).max
    masks = [rng.integers(0, top, secret.shape, secret.dtype, True) for _ in range(count - 1)]
    last = secret.copy()
    for mask in masks:
        last = last - mask
    return [*masks, last]


def words(values: Any, dtype: Any = np.uint64) -> np.ndarray:
    return np.asarray(values, dtype=np.int64).astype(np.uint64).astype(dtype)


def numbers(found: np.ndarray) -> np.ndarray:
    return found.view(np.int32 if found.dtype == np.uint32 else np.int64).astype(np.int64)


def compute(
    trust: str,
    servers: int,
    secrets: list[np.ndarray],
    program: Callable[..., np.ndarray],
    *,
    final: bool = False,
    seed: int = 0,
    watch: Callable[[Mesh], None] = lambda mesh: None,
) -> np.ndarray:
    """What `program(engine, *shared)` returns, put together from all servers' shares."""
    rng = np.random.default_rng(seed)
    names = [f"server-{i}" for i in range(servers)]
    everybody = [*names, "dealer"] if trust == "dealer" else names
    mesh = Mesh(everybody, patience=30)
    watch(mesh)
    split = [pieces(secret, servers, rng) for secret in secrets]
    results: dict[str, np.ndarray] = {}
    failures: list[BaseException] = []

    def shares_of(index: int) -> list[np.ndarray]:
        if trust == "replicated":
            return [np.stack([s[index], s[(index + 1) % 3]]) for s in split]
        return [s[index][None] for s in split]

    def work(name: str) -> None:
        try:
            engine: Engine
            if trust == "dealer":
                engine = Additive(mesh.links[name], names, "dealer")
            else:
                engine = Replicated(mesh.links[name], names)
            if name == "dealer":
                own = [np.zeros((1, *secret.shape), secret.dtype) for secret in secrets]
            else:
                own = shares_of(names.index(name))
            results[name] = program(engine, *own)
        except BaseException as error:
            failures.append(error)
        finally:
            mesh.stop(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in everybody]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    parts = [results[name] if final else results[name][0] for name in names]
    return np.sum(parts, axis=0, dtype=parts[0].dtype)
