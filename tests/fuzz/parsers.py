"""Everything of tacit that reads a file somebody else may have written or damaged."""

from __future__ import annotations

import gzip
import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import tacit
from tacit import PMTL, Privacy, SavedModels, TacitError
from tacit.data import from_table
from tacit.data.npz import from_npz
from tacit.data.relation_file import with_relation
from tacit.data.schema import read_schema, write_schema
from tacit.deploy.agreement import Agreement
from tacit.deploy.diary import EVENTS, Diary, read_diary
from tacit.deploy.events import Contributed, RequestFailed, SiloDeclined, Spending
from tacit.deploy.example import write_example
from tacit.engine.simulate import Simulation
from tacit.engine.store import CHECKPOINT, JOURNAL, LEDGER, TABLE, Store, confirm_ledger
from tacit.experiment import toml as config
from tacit.experiment.models import BLEND
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.local import flat
from tacit.models import linear
from tacit.privacy import Ledger, Poisson, Release
from tacit.randomness import Randomness
from tests.fuzz.mutate import Mutator, in_tensors, in_zip, mutated

TASKS = 4
EXPERIMENT = Path(__file__).parents[2] / "docs" / "experiment.toml"


def _table(rows: int) -> str:
    return "site,sex,age,outcome\n" + "".join(
        f"site-{k % TASKS},{'fm'[k % 2]},{20 + k},{k % 3 == 0:d}\n" for k in range(rows)
    )


CSV = _table(24)


@dataclass(frozen=True)
class Parser:
    """Whole files, how they are changed, and what reads them."""

    samples: tuple[bytes, ...]
    read: Callable[[bytes], None]
    mutate: Mutator = mutated


def toml(folder: Path) -> Parser:
    table, path = folder / "table.csv", folder / "settings.toml"
    table.write_text(CSV)
    consortium = write_example(
        table, target="outcome", silos=("a-1", "b-2", "c-3"), task=None, drop=("site",),
        name="three", method="pmtl", epsilon=2.0,
    )  # fmt: skip

    def read(content: bytes) -> None:
        path.write_bytes(content)
        refused: list[TacitError] = []
        for reader in (lambda: config.check(config.read(path)), lambda: Agreement.read(path)):
            try:
                reader()
            except TacitError as error:
                refused.append(error)
        if len(refused) == 2:  # each of the two is for one of the samples
            raise max(refused, key=lambda error: "\n" in str(error))

    return Parser((EXPERIMENT.read_bytes(), consortium.encode()), read)


def csv(folder: Path) -> Parser:
    plain, zipped = folder / "table.csv", folder / "table.csv.gz"

    def read(content: bytes) -> None:
        path = zipped if content.startswith(b"\x1f\x8b") else plain
        path.write_bytes(content)
        from_table(path, task="site", target="outcome")

    text = CSV.encode()
    return Parser((text, text.replace(b",", b";"), gzip.compress(text, mtime=0)), read)


def parquet(folder: Path) -> Parser:
    import pyarrow
    import pyarrow.parquet

    path = folder / "table.parquet"
    lines = [line.split(",") for line in CSV.splitlines()]
    columns = dict(zip(lines[0], map(list, zip(*lines[1:], strict=True)), strict=True))
    columns["age"] = [float(age) for age in columns["age"]]
    samples = []
    for compression in ("none", "snappy"):
        pyarrow.parquet.write_table(pyarrow.table(columns), path, compression=compression)
        samples.append(path.read_bytes())

    def read(content: bytes) -> None:
        path.write_bytes(content)
        from_table(path, task="site", target="outcome")

    return Parser(tuple(samples), read)


def npz(folder: Path) -> Parser:
    path, generator = folder / "arrays.npz", np.random.default_rng(0)
    x = generator.normal(size=(24, 3)).astype(np.float32)
    names = np.array([f"task-{k}" for k in range(TASKS)])
    numbers = np.arange(24) % TASKS
    samples = []
    for more in (
        {"tasks": names[numbers]},
        {"tasks": numbers, "names": names, "features": np.array(["a", "b", "c"])},
    ):
        np.savez_compressed(path, x=x, y=x[:, 0], **more)
        samples.append(path.read_bytes())

    def read(content: bytes) -> None:
        path.write_bytes(content)
        from_npz(path)

    return Parser(tuple(samples), read, in_zip)


def schema(folder: Path) -> Parser:
    table, path = folder / "table.csv", folder / "schema.json"
    table.write_text(CSV)
    found = from_table(table, task="site", target="outcome").schema
    assert found is not None
    write_schema(found, path)
    whole = path.read_bytes()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        from_table(table, schema=read_schema(path))

    return Parser((whole,), read)


def relation(folder: Path) -> Parser:
    path, names = folder / "relation.csv", [f"task-{k}" for k in range(TASKS)]
    generator = np.random.default_rng(0)
    x = generator.normal(size=(24, 3)).astype(np.float32)
    federation = tacit.data.from_arrays(x, x[:, 0], np.array(names)[np.arange(24) % TASKS])
    clusters = "task,cluster\n" + "".join(f"{name},{k % 2}\n" for k, name in enumerate(names))
    rows = 0.5 * np.eye(TASKS) + 0.5
    matrix = "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows.tolist())])

    def read(content: bytes) -> None:
        path.write_bytes(content)
        with_relation(federation, path)

    return Parser((clusters.encode(), matrix.encode()), read)


def ledger(folder: Path) -> Parser:
    """Chained and as before there was a chain; what is read is never less than a mark says."""
    path, release = folder / LEDGER, Release(Poisson(0.5), 4.0)
    book = Ledger.at(path)
    for round in range(4):
        book.book(round, release, repeatable=False, clip=1.0)
    chained, mark, booked = path.read_bytes(), book.mark, book.releases()
    plain = "".join(json.dumps(entry) + "\n" for entry in book.entries).encode()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        found = Ledger.at(path)
        found.confirm(mark, path)
        assert found.releases() >= booked, "fewer releases than the checkpoint says"

    return Parser((chained, plain), read)


def _trained(folder: Path, rounds: int = 2) -> Simulation:
    """A private run of a few rounds with its ledger and its checkpoint in this folder."""
    generator = np.random.default_rng(0)
    names = np.array([f"task-{k}" for k in range(TASKS)])[np.arange(24) % TASKS]
    x = generator.normal(size=(24, 3)).astype(np.float32)
    federation = tacit.data.from_arrays(x, x[:, 0], names, scale="none", target_scale="none")
    method, model = PMTL(batch=4, local_steps=1), flat.build(linear, federation, 0)
    plan = Plan(method=method, privacy=Privacy(noise=4.0), rounds=rounds)
    randomness, cpu = Randomness.of(None), torch.device("cpu")
    simulation = simulation_of(plan, federation, model, Poisson(0.5), randomness, cpu, folder)
    simulation.run()
    return simulation


def checkpoint(folder: Path) -> Parser:
    simulation = _trained(folder)
    mark, place = simulation.channel.ledger.mark, folder / CHECKPOINT
    paths = [place / JOURNAL, place / TABLE, folder / LEDGER]
    whole = {path: path.read_bytes() for path in paths}
    state = simulation.method.state(simulation.model, simulation.board)

    def read(content: bytes) -> None:
        path = paths[content[0]]
        for other in paths:
            other.write_bytes(whole[other])
        path.write_bytes(content[1:])
        found = confirm_ledger(folder)
        simulation.channel.ledger = found
        simulation.rounds.store = Store(TASKS, state, folder=place)
        simulation.resume()
        assert len(found) >= mark["entries"], "fewer releases than were made"

    samples = tuple(bytes([k]) + whole[path] for k, path in enumerate(paths))
    return Parser(samples, read, _one_file({0: in_tensors}))


def events(folder: Path) -> Parser:
    """A diary is read as far as it can be, and shown as words that steer no terminal."""
    diary = Diary(folder)
    spent = Spending(0.5, 2.0, "add-remove", 0.001, "Poisson cohorts q=0.5", "PLD")
    for event in (
        Contributed(2, True, 5, 0.25, 0.5, False, spent),
        RequestFailed("train", 3, "ValueError", "no rows", "one\ntwo"),
        SiloDeclined("north", "refused", "train", 0, "because"),
    ):
        diary.write(event)
    path = folder / EVENTS

    def read(content: bytes) -> None:
        path.write_bytes(content)
        entries, unreadable = read_diary(folder)
        for entry in entries:
            lines = f"{entry.when}  {entry.said}".split("\n")
            assert all(line.isprintable() for line in lines) and len(entry.said) < 20_000
        if unreadable:
            raise TacitError(f"{unreadable} lines cannot be read")

    return Parser((path.read_bytes(),), read)


def models(folder: Path) -> Parser:
    """Of a run that keeps a method's models, and of one whose tasks combine them with trees."""
    table, rows, paths = folder / "table.csv", {"sex": ["f", "m"], "age": [30.0, 40.0]}, []
    settings: Any = {"rounds": 5, "seed": 0, "baselines": False}
    for method, last, many in ((PMTL(local_steps=1), "none", 24), ("mixed", "best", 40 * TASKS)):
        table.write_text(_table(many))
        federation = from_table(table, task="site", target="outcome")
        run = tacit.train(federation, method, personalise=last, **settings)
        run.save(folder / last)
        shutil.rmtree(folder / last / CHECKPOINT, ignore_errors=True)
        paths += sorted((folder / last / "models").iterdir())
    whole = {path: path.read_bytes() for path in paths}
    assert any(path.name == BLEND and b"on_shared" in whole[path] for path in paths)

    def read(content: bytes) -> None:
        path = paths[content[0]]
        for other in paths:
            other.write_bytes(whole[other])
        path.write_bytes(content[1:])
        with warnings.catch_warnings():  # a column by another name is said, and counts as missing
            warnings.filterwarnings("ignore", message=".*counts? as missing", category=UserWarning)
            SavedModels.load(path.parent).predict(rows, ["site-0", "site-1"])

    samples = tuple(bytes([k]) + whole[path] for k, path in enumerate(paths))
    tensors = {k: in_tensors for k, path in enumerate(paths) if path.suffix == ".safetensors"}
    return Parser(samples, read, _one_file(tensors))


def _one_file(mutators: dict[int, Mutator]) -> Mutator:
    """The first byte says which file of a folder it is, and stays."""

    def mutate(content: bytes, random: Random) -> bytes:
        return content[:1] + mutators.get(content[0], mutated)(content[1:], random)

    return mutate


PARSERS: dict[str, Callable[[Path], Parser]] = {
    made.__name__: made
    for made in (toml, csv, npz, parquet, schema, relation, ledger, checkpoint, events, models)
}
