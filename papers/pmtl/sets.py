"""The paper's data sets where the user has them, and what stands in for them where not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from papers.common.tasks import first_tasks
from papers.pmtl.settings import PLANS, Version
from tacit import data
from tacit.data.federation import PARTS, Federation, Rows
from tacit.errors import TacitError

FEW_WRITERS = 50
"""Tasks of the reduced version."""


@dataclass(frozen=True)
class DataSet:
    """A loaded data set, and how it differs from the paper's."""

    key: str
    version: Version
    title: str
    federation: Federation
    differs: str
    """Why a figure differs from the published one: short, for a cell of a table."""
    why: str
    """The same at length."""

    @property
    def standing_in(self) -> bool:
        return self.version != "full"


@dataclass(frozen=True)
class _Place:
    """A folder below the data folder, and what is made of it."""

    folders: tuple[str, ...]
    version: Version
    title: str
    load: Callable[[Path, bool], Federation]
    differs: str
    why: str


def _femnist(path: Path, reduced: bool) -> Federation:
    return data.load("femnist", path=path, min_rows=8, users=FEW_WRITERS if reduced else 205)


def _femnist_test(path: Path, reduced: bool) -> Federation:
    return data.load("femnist", path=path, min_rows=8, users=FEW_WRITERS if reduced else None)


def _writers(path: Path, reduced: bool) -> Federation:
    found = data.load("writers", path=path)
    return first_tasks(found, FEW_WRITERS) if reduced else found


def _celeba(path: Path, reduced: bool) -> Federation:
    return data.load("celeba", path=path, users=FEW_WRITERS if reduced else 515)


def _stackoverflow(path: Path, reduced: bool) -> Federation:
    sizes: dict[str, Any] = {"users": FEW_WRITERS, "words": 1000, "tags": 20} if reduced else {}
    return one_tag(data.load("stackoverflow", path=path, **sizes))


def _stackexchange(path: Path, reduced: bool) -> Federation:
    words, tags = (500, 20) if reduced else (2000, 50)
    return one_tag(data.load("stackexchange", path=path, words=words, tags=tags, min_rows=8))


PLACES: dict[str, tuple[_Place, ...]] = {
    "writers": (
        _Place(
            ("writers", "qmnist_writer"),
            "stand-in",
            "MNIST by writer (stand-in for FEMNIST)",
            _writers,
            "other data: 10 classes, 539 writers",
            "MNIST by writer (QMNIST) stands in for FEMNIST: 539 writers with 67 training images "
            "each, 10 digits instead of 62 characters, so every accuracy is higher.",
        ),
    ),
    "femnist": (
        _Place(
            ("femnist",),
            "full",
            "FEMNIST",
            _femnist,
            "one setting for all ε, Poisson cohorts",
            "FEMNIST as in the paper: 205 writers, the paper's network. The paper picks clip, "
            "noise and rounds for each ε; here one setting serves all. Cohorts are Poisson, "
            "contributions weigh 1, and the regulariser is the printed one.",
        ),
        _Place(
            ("femnist_pmtl",),
            "stand-in",
            "FEMNIST, test part only (stand-in)",
            _femnist_test,
            "a fraction of the images per writer",
            "Only the authors' test part of FEMNIST is at hand: 202 writers with 18 training "
            "images each for 62 classes, so every accuracy is lower.",
        ),
    ),
    "stackoverflow": (
        _Place(
            ("stackoverflow",),
            "full",
            "StackOverflow",
            _stackoverflow,
            "one setting for all ε, Poisson cohorts",
            "StackOverflow as in the paper: 400 users, 10 000 words, 500 tags, one tag per post, "
            "as the authors' code has it (the most frequent of the post's tags here).",
        ),
        _Place(
            ("stackexchange", "stackexchange_travel"),
            "stand-in",
            "travel.stackexchange (stand-in for StackOverflow)",
            _stackexchange,
            "other data: a small site, 50 tags",
            "The first posts of travel.stackexchange.com stand in for StackOverflow: few users "
            "with few posts, 2 000 words, 50 tags and one for all others; the label is the most "
            "frequent tag of a post. Words and tags were counted over all users, which no ε "
            "covers.",
        ),
    ),
    "celeba": (
        _Place(
            ("celeba",),
            "full",
            "CelebA",
            _celeba,
            "one setting for all ε, Poisson cohorts",
            "CelebA as in the paper: 515 persons. Groups of filters are normalised instead of "
            "batches, which would keep statistics beside the model.",
        ),
    ),
}


def find_sets(
    folder: Path, keys: tuple[str, ...], *, reduced: bool, say: Callable[[str], None]
) -> list[DataSet]:
    """The asked-for data sets that are in the folder; a line for each that is not."""
    if not folder.is_dir():
        raise TacitError(f"{folder} is no folder: pass --data DIR with the data sets in it")
    found = []
    for key in keys:
        place, path = _place(folder, key)
        if place is None or path is None:
            names = " or ".join(f"{name}/" for p in PLACES[key] for name in p.folders)
            say(f"{key} is left out: there is no {names} in the data folder")
            continue
        say(f"reading {place.title}")
        version: Version = "reduced" if reduced else place.version
        why = place.why
        if reduced:
            why += (
                f" Reduced: at most {FEW_WRITERS} tasks, a linear model, 20 rounds, for two cores."
            )
        found.append(
            DataSet(key, version, place.title, place.load(path, reduced), place.differs, why)
        )
    if not found:
        raise TacitError(f"none of {', '.join(keys)} is in {folder}: there is nothing to run")
    return found


def _place(folder: Path, key: str) -> tuple[_Place | None, Path | None]:
    for place in PLACES[key]:
        for name in place.folders:
            if (folder / name).is_dir():
                return place, folder / name
    return None, None


def linear(data: DataSet) -> DataSet:
    """Images as a fixed public representation, which a linear layer learns from."""
    if (data.key, "linear") not in PLANS or data.version != "stand-in":
        return data
    return dataclasses.replace(
        data,
        version="linear",
        title=f"{data.title}, linear layer",
        federation=data.federation.through("strokes"),
        why=f"{data.why} The model is a linear layer on a fixed public representation of images "
        "(`tacit.data.representation`), not the paper's network, with 60 rounds and one setting "
        "for all ε.",
    )


def one_tag(federation: Federation) -> Federation:
    """One class per row: the most frequent of its tags, or "another tag".

    The authors' code trains a softmax on one tag per post, and its accuracy is published.
    """

    def single(rows: Rows) -> Rows:
        none = (rows.y.sum(dim=1) == 0).to(rows.y)
        # Tags are ordered by frequency, so the first one that a row has is its most frequent.
        y = torch.cat([rows.y, none.unsqueeze(1)], dim=1).argmax(dim=1)
        return Rows(rows.x, y, rows.offsets)

    parts: dict[str, Any] = {name: single(federation.part(name)) for name in PARTS}
    labels = (*federation.labels, "another tag")
    return dataclasses.replace(
        federation, kind="multiclass", outputs=len(labels), labels=labels, **parts
    )
