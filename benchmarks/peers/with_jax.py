"""Hand-written JAX: the round as one compiled function, all tasks of the cohort in it.

Linear tasks are mapped (`vmap`); networks come one after the other (`lax.map`), because XLA has no
fast convolution on a CPU whose filters differ from task to task.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from works import BATCH, CLASSES, NOISE, RATE, STEPS, Rows, Work, drawn, noise_for, peer, split

Parameters = dict[str, Array]


def network(w: Parameters, x: Array) -> Array:
    """As the others': [rows, 1, 28, 28] to [rows, classes]."""
    for layer in ("first", "second"):
        x = lax.conv(x, w[layer], (1, 1), "VALID") + w[f"{layer} bias"][:, None, None]
        x = lax.reduce_window(
            jax.nn.relu(x), -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
        )
    return x.reshape(len(x), -1) @ w["last"] + w["last bias"]


def linear(w: Parameters, x: Array) -> Array:
    return x @ w["last"] + w["last bias"]


def started(shapes: dict[str, tuple[int, ...]]) -> Parameters:
    """Drawn as PyTorch draws them, about."""
    keys = jax.random.split(jax.random.key(0), len(shapes))
    found = {}
    for key, (name, shape) in zip(keys, shapes.items(), strict=True):
        fan_in = shape[0] if name == "last" else int(np.prod(shape[1:]))
        found[name] = jax.random.uniform(key, shape, minval=-1, maxval=1) / max(1, fan_in) ** 0.5
        found[name] *= not name.endswith("bias")
    return found


def train(name: str, work: Work, rows: Rows, tick: Callable[[], None]) -> float:
    learned, (tests, answers) = split(rows)
    rng, predict = np.random.default_rng(0), network if name == "cnn" else linear
    shapes: dict[str, tuple[int, ...]] = {"last": (rows.x.shape[1], 1), "last bias": (1,)}
    if name == "cnn":
        shapes = {"first": (32, 1, 5, 5), "first bias": (32,), "second": (64, 32, 5, 5)}
        shapes |= {"second bias": (64,), "last": (1024, CLASSES), "last bias": (CLASSES,)}
    w = started(shapes)

    def loss(w: Parameters, x: Array, y: Array) -> Array:
        out = predict(w, x)
        if name == "cnn":
            return -jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], 1).mean()
        return (jax.nn.softplus(out[:, 0]) - y * out[:, 0]).mean()

    def client(w: Parameters, x: Array, y: Array) -> Parameters:
        def step(own: Parameters, batch: Any) -> tuple[Parameters, None]:
            slope = jax.grad(loss)(own, *batch)
            return jax.tree.map(lambda value, g: value - RATE * g, own, slope), None

        own, _ = lax.scan(step, w, (x, y))
        sent = jax.tree.map(lambda after, before: after - before, own, w)
        norm = jnp.sqrt(sum(jnp.sum(part**2) for part in jax.tree.leaves(sent)))
        return jax.tree.map(lambda part: part * jnp.minimum(1, work.clip / norm), sent)

    @jax.jit
    def a_round(w: Parameters, x: Array, y: Array, key: Array, noise: float) -> Parameters:
        if name == "cnn":
            add = lambda total, own: (jax.tree.map(jnp.add, total, client(w, *own)), None)  # noqa: E731
            total, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, w), (x, y))
        else:
            sent = jax.vmap(client, (None, 0, 0))(w, x, y)
            total = jax.tree.map(lambda part: part.sum(0), sent)
        keys = dict(zip(w, jax.random.split(key, len(w)), strict=True))
        normal = {k: jax.random.normal(keys[k], w[k].shape) for k in w}
        return {k: w[k] + (total[k] + noise * work.clip * normal[k]) / work.cohort for k in w}

    noise = noise_for(work.rounds) if name == "table" else NOISE
    starts = np.cumsum([0, *(len(y) for _, y in learned)])
    every = [np.concatenate([own[side] for own in learned]) for side in (0, 1)]
    key = jax.random.key(1)
    for number in range(work.rounds):
        cohort = rng.choice(work.tasks, work.cohort, replace=False)
        index = np.stack([starts[task] + drawn(learned[task], rng) for task in cohort])
        x, y = (side[index.reshape(-1, STEPS, BATCH)] for side in every)
        w = a_round(w, x, y, jax.random.fold_in(key, number), noise)
        jax.block_until_ready(w)
        tick()
    out = jnp.concatenate([predict(w, some) for some in np.array_split(tests, 10)])
    said = out.argmax(1) if name == "cnn" else out[:, 0] > 0
    return float((said == answers).mean())


if __name__ == "__main__":
    peer(train)
