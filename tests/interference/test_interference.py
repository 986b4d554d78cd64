"""No task can tell what another holds, how many rows it has, where it stands, or who was drawn.

Each case compares all that the other tasks have, bit for bit; `test_every_planted_coupling…` puts
couplings in on purpose, which the same comparison must find.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from tacit import data
from tacit.data import split as split_module
from tacit.data.federation import Federation
from tacit.engine import bench, tasks
from tacit.methods import METHODS, TrainedMethod
from tacit.sklearn import PrivateMultiTaskClassifier
from tests.interference.harness import CHANGES, TARGET, Setting, Table, noticed, table
from tests.interference.networks import NETWORKS, made

QUICK = ("many rows more", "another place in the file")
BATCHES = pytest.mark.parametrize("batch", [6, None], ids=["batches of 6", "full batches"])


def both(change: str, kind: str = "binary", shape=(5,), **more) -> tuple[Federation, Federation]:
    before = table(kind, shape=shape)
    one, other = before, CHANGES[change](*before)
    return tuple(data.from_arrays(*each, kind=kind, **more) for each in (one, other))  # type: ignore[return-value]


def method(name: str, batch: int | None):
    """With steps large enough to matter and few enough to be quick."""
    kind = METHODS[name]
    return kind(batch=batch, local_steps=2) if issubclass(kind, TrainedMethod) else kind()


# --- data ---


def _as_csv(found: Table, folder) -> Federation:
    x, y, names = found
    head = ",".join([*(f"x{k}" for k in range(x.shape[1])), "y", "site"])
    lines = [
        ",".join([*(f"{v:.9g}" for v in row), f"{t:.9g}", name])
        for row, t, name in zip(x, y, names, strict=True)
    ]
    path = folder / "table.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return data.from_table(path, task="site", target="y", kind="binary")


def _as_frame(found: Table, folder) -> Federation:
    x, y, names = found
    gaps = np.where(x[:, 0] > 1, np.nan, x[:, 0].astype(float))
    columns = {"a": gaps, "b": x[:, 1], "c": np.where(x[:, 2] > 0, "high", "low"), "y": y}
    return data.from_table(columns | {"site": names}, task="site", target="y", kind="binary")


def _as_npz(found: Table, folder) -> Federation:
    x, y, names = found
    np.savez(folder / "rows.npz", x=x, y=y, tasks=names)
    return data.load(str(folder / "rows.npz"), kind="binary")


def _as_leaf(found: Table, folder) -> Federation:
    x, y, names = found
    users = list(dict.fromkeys(names.tolist()))
    x = np.tile(1 / (1 + np.exp(-np.clip(x, -50, 50))), (1, 200))[:, :784]
    rows = {
        user: {"x": x[names == user].tolist(), "y": y[names == user].astype(int).tolist()}
        for user in users
    }
    counts = [int((names == user).sum()) for user in users]
    content = {"users": users, "num_samples": counts, "user_data": rows}
    (folder / "all.json").write_text(json.dumps(content))
    return data.load("femnist", path=str(folder / "all.json"))


def _as_estimator(found: Table, folder) -> Federation:
    x, y, names = found
    estimator = PrivateMultiTaskClassifier()
    return estimator._federation(estimator._rows(x, y, names), estimator.method)


SOURCES = {
    "arrays": lambda found, folder: data.from_arrays(*found, kind="binary"),
    "table": _as_csv,
    "frame with gaps": _as_frame,
    "npz": _as_npz,
    "leaf": _as_leaf,
    "estimator": _as_estimator,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("source", SOURCES)
def test_parts_and_scaling(source, change, tmp_path):
    found = []
    for number, rows in enumerate((table("binary"), CHANGES[change](*table("binary")))):
        (tmp_path / str(number)).mkdir()
        found.append(SOURCES[source](rows, tmp_path / str(number)))
    assert noticed(*found) == []


# --- methods, models, chunks, stores ---


QUICKLY = [(name, 6) for name in METHODS] + [(name, None) for name in ("pmtl", "fedavg")]
"""Each method once; linear methods have full batches in any case."""
IN_FULL = [(n, None) for n, kind in METHODS.items() if issubclass(kind, TrainedMethod)]


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        *QUICKLY,
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in IN_FULL if pair not in QUICKLY),
    ],
)
def test_every_method(name, batch):
    kind = "multiclass" if name == "fedrep" else "binary"
    model = "mlp" if name == "fedrep" else METHODS[name].usual_model
    # On the billboard of `naive` every task has a row, in the order of the file.
    for change in QUICK[:1] if name == "naive" else QUICK:
        pair = both(change, kind)
        if name == "related":
            pair = tuple(each.clustered([k[-1] for k in each.names]) for each in pair)
        setting = Setting(method(name, batch), model, last_step=(name, batch) == ("pmtl", 6))
        assert noticed(*pair, setting) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mixed", "count"),
        ("mixed", "multiclass"),
        ("mixed", "survival"),
        ("prior", "count"),
    ],
)
def test_linear_methods_with_other_outcomes(name, kind):
    for change in (*QUICK, "wild values"):
        setting = Setting(method(name, None), last_step=False)
        assert noticed(*both(change, kind), setting) == []


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("name", "kind", "batch"),
    [("pmtl", "regression", 6), ("pmtl", "regression", None), ("prior", "binary", None)],
)
def test_every_change(name, kind, change, batch):
    assert noticed(*both(change, kind), Setting(method(name, batch))) == []


@BATCHES
@pytest.mark.parametrize("network", NETWORKS)
def test_every_sort_of_layer(network, batch):
    module, shape = made(network)
    for change in QUICK:
        setting = Setting(method("fedavg", batch), module, last_step=False)
        assert noticed(*both(change, "multiclass", shape), setting) == []


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_the_last_step_of_every_sort_of_layer(network):
    module, shape = made(network)
    pair = both("many rows more", "multiclass", shape)
    assert noticed(*pair, Setting(method("pmtl", 6), module)) == []


@pytest.mark.parametrize("size", [1, 1 << 14, 1 << 17, 1 << 30])
def test_chunks_of_several_sizes(size, monkeypatch):
    """One task at a time, a few, and all at once."""
    monkeypatch.setattr("tacit.local.chunks.CPU_CHUNK_BYTES", size)
    setting = Setting(method("pmtl", None), last_step=False)
    assert noticed(*both("many rows more"), setting) == []


def test_models_on_disk(tmp_path):
    setting = Setting(method("pmtl", 6), store="disk", folder=tmp_path, last_step=False)
    assert noticed(*both("another place in the file"), setting) == []


@BATCHES
@pytest.mark.parametrize("network", ["dropout", "statistics"])
def test_who_else_is_drawn(network, batch):
    """The target is in the one cohort and not in the other."""
    module, shape = made(network)
    one, _ = both("one row more", "multiclass", shape)
    setting = Setting(method("pmtl", batch), module, last_step=False, without=TARGET)
    assert noticed(one, one, setting) == []


@pytest.mark.parametrize("threads", [2, 4])
def test_several_threads(threads, monkeypatch):
    """Every thread gets whole vectors, wherever a task stands."""
    monkeypatch.setattr("tacit.local.threads.WORTH_SHARING", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        module, shape = made("curved")
        setting = Setting(method("pmtl", 6), module, last_step=False)
        assert noticed(*both("another place in the file", "multiclass", shape), setting) == []
    finally:
        torch.set_num_threads(before)


# --- the comparison finds what it is there to find ---


def _split_by_position(monkeypatch) -> None:
    """As it was: keys drawn by position in the whole table."""
    rows = np.random.default_rng(0).integers(2**62, size=10_000)

    def by_position(*parts):
        return torch.from_numpy(rows[: len(parts[-1])])

    monkeypatch.setattr(split_module, "scramble", by_position)


def _draw_by_number(monkeypatch) -> None:
    """Batches and masks by a task's number instead of its name."""
    numbers = property(lambda self: torch.arange(len(self)))
    monkeypatch.setattr(Federation, "keys", numbers)


def _draw_by_place(monkeypatch) -> None:
    """Batches and masks by the place in a chunk."""
    real = tasks.scramble
    monkeypatch.setattr(tasks, "scramble", lambda key, keys: real(key, torch.arange(len(keys))))


def _pad_to_the_largest(monkeypatch) -> None:
    for module in (tasks, bench):
        monkeypatch.setattr(
            module, "widths_of", lambda counts, **_: torch.full_like(counts, int(counts.max()))
        )


def _fit_chunks_to_the_cohort(monkeypatch) -> None:
    real = tasks.chunks

    def fitted(tasks, widths, slots):
        return real(tasks, widths, lambda width: len(tasks))

    monkeypatch.setattr(tasks, "chunks", fitted)


def _train_from_others(monkeypatch) -> None:
    """A state that is a mean over the chunk."""
    real = tasks.Tasks._sound

    def mixed(self, chunk, before, after, sent=None):
        after = {name: value.mean(dim=0).expand_as(value) for name, value in after.items()}
        return real(self, chunk, before, after, sent)

    monkeypatch.setattr(tasks.Tasks, "_sound", mixed)


DRAWN = "the target is drawn or not"
PLANTED = {
    "the old split": (_split_by_position, "one row more", 6, "linear"),
    "batches by number": (_draw_by_number, "another place in the file", 6, "linear"),
    "batches by place": (_draw_by_place, "another place in the file", 6, "linear"),
    "masks by place": (_draw_by_place, "another place in the file", None, "dropout"),
    "rows padded to the largest": (_pad_to_the_largest, "many rows more", None, "curved"),
    "chunks that fit the cohort": (_fit_chunks_to_the_cohort, DRAWN, 6, "curved"),
    "states mixed in a chunk": (_train_from_others, "other values", 6, "linear"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_every_planted_coupling_is_found(planted, monkeypatch):
    plant, change, batch, network = PLANTED[planted]
    kind, model, shape = "binary", "linear", (5,)
    if network != "linear":
        model, shape = made(network)
        kind = "multiclass"
    setting = Setting(method("pmtl", batch), model, last_step=False)

    def compared() -> list[str]:
        if change != DRAWN:
            return noticed(*both(change, kind, shape), setting)
        one, _ = both("other values", kind, shape)
        return noticed(one, one, dataclasses.replace(setting, without=TARGET))

    assert compared() == []
    plant(monkeypatch)
    assert compared() != []


def test_pooled_scaling_is_found_and_called_a_leak():
    one, other = both("other values", scale="pooled")
    assert noticed(one, other) != []
    assert one.leaks and other.leaks


def test_a_name_is_all_that_a_task_draws_by():
    """Two tasks with the same rows and other names draw other batches."""
    one, _ = both("one row more")
    renamed = dataclasses.replace(one, names=[f"{name}'" for name in one.names])
    assert not bool((one.keys == renamed.keys).any())
