"""The one table of what `load` can read: data sets by name, and files by the end of their name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

from tacit.checks import check_type, near, none_in_words
from tacit.data.arrays import from_arrays
from tacit.data.deal import Dealing
from tacit.data.federation import Federation
from tacit.data.npz import from_npz
from tacit.data.reading import SUFFIXES, instead_of
from tacit.data.sets import leaf, synthetic
from tacit.data.sets.attributes import celeba_attributes, facea, lfwa
from tacit.data.sets.digits import digits
from tacit.data.sets.faces import lfw_pseudo
from tacit.data.sets.heart import heart
from tacit.data.sets.lsoa import lsoa2
from tacit.data.sets.multilevel import RECIPES, multilevel
from tacit.data.sets.nyud2 import nyud2
from tacit.data.sets.scenes import scenes
from tacit.data.sets.school import school
from tacit.data.sets.stackoverflow import stackoverflow
from tacit.data.sets.tcga import tcga_brca
from tacit.data.sets.writers import writers
from tacit.data.split import SplitRule
from tacit.data.tabular import from_table
from tacit.data.text import stackexchange, text
from tacit.data.words import Sizes
from tacit.errors import TacitError


@dataclass(frozen=True)
class Source:
    """A data set that `load` knows by name; `needs` is what must be there first, or empty."""

    name: str
    title: str
    """What it is, in a few words."""
    kind: str
    """What is to be predicted: numbers, counts, classes and so on."""
    needs: str = ""


@dataclass(frozen=True)
class Reader:
    """What makes the federation, and the options it takes, each with its type."""

    read: Callable[..., Federation]
    options: dict[str, Any]

    def __call__(self, name: str, *given: Any, **options: Any) -> Federation:
        for option, value in list(options.items()):
            if option not in self.options:
                known = sorted(self.options)
                raise TacitError(f"{name} takes no option {option!r}{near(option, known, 20)}")
            declared = self.options[option]
            value = options[option] = none_in_words(declared, value)
            # Files and flags easily give a number where text is wanted; readers check numbers.
            if value is None or {str, Sequence[str]} & {declared, *get_args(declared)}:
                check_type(f"{name}: {option}", declared, value)
        return self.read(*given, **options)


def _reader(
    read: Callable[..., Federation],
    like: Callable[..., Any] | None = None,
    without: Iterable[str] = (),
) -> Reader:
    """A reader whose options are the parameters of `like` (of `read` itself by default)."""
    made = like or read
    parameters, kinds = inspect.signature(made).parameters.values(), get_type_hints(made)
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    return Reader(read, {name: kinds[name] for name in named if name not in without})


def _with(options: dict[str, Any], read: Callable[..., Federation]) -> Reader:
    """A reader that takes these options beside its own."""
    return Reader(read, _reader(read).options | options)


DEALT, SPLIT, SIZED = map(get_type_hints, (Dealing, SplitRule, Sizes))
"""Options that several data sets share."""
_dealt, _split = partial(_with, DEALT), partial(_with, SPLIT)
_sized = partial(_with, SIZED | SPLIT)
_OF_TABLES = ("validation", "test", "split_seed", "scale", "person")


def _table(path: str, **options: Any) -> Federation:
    absent = [f"{key}=" for key in ("task", "target") if key not in options]
    if absent and options.get("schema") is None:
        raise TacitError(
            f"{path} is a table, so say which columns hold the task and the target: pass "
            f"{' and '.join(absent)} (--task, --target), or a schema (--schema)"
        )
    return from_table(path, **options)


def _made_up(make: Callable[..., synthetic.Synthetic]) -> Reader:
    return _reader(lambda **options: make(**options).federation, like=make)


_PACKAGED = [
    (
        Source(name, recipe.title, recipe.kind, "tacit[data]"),
        _reader(partial(multilevel, name), from_table, ("table", "task", "target")),
    )
    for name, recipe in RECIPES.items()
]
_BUILT_IN = [
    (Source("digits", "handwritten digits dealt to simulated writers", "multiclass"),
     _split(digits)),
    (Source("low-rank", "made-up tasks with low-rank weights (MP-MTL 4.4)", "regression"),
     _made_up(synthetic.low_rank)),
    (Source("group-sparse", "made-up tasks with few relevant features (MP-MTL 4.4)", "regression"),
     _made_up(synthetic.group_sparse)),
    (Source("personal-shift", "made-up tasks around common weights", "regression or binary"),
     _made_up(synthetic.personal_shift)),
    (Source("scenes", "made-up scenes, pixels in heads: stand-in for NYUD2", "segmentation"),
     _dealt(scenes)),
]  # fmt: skip
_IN_A_FOLDER = [
    (Source("femnist", "handwritten characters by writer, LEAF", "multiclass",
            "LEAF JSON in $TACIT_DATA/femnist"),
     _split(leaf.femnist)),
    (Source("celeba", "smiling celebrities, LEAF", "binary",
            "LEAF JSON and raw/img_align_celeba in $TACIT_DATA/celeba"),
     _split(leaf.celeba)),
    (Source("writers", "MNIST digits by writer, QMNIST", "multiclass",
            "mnist_by_writer.npz in $TACIT_DATA/writers"),
     _split(writers)),
    (Source("school", "exam scores of London pupils by school (MP-MTL 4.5)", "regression",
            "school_b.mat or school.mat in $TACIT_DATA/school"),
     _reader(school)),
    (Source("lsoa2", "health outcomes of the aged, LSOA II (MP-MTL 4.5)", "binary",
            "data_processed_LSOAII.mat in $TACIT_DATA/lsoa2"),
     _reader(lsoa2)),
    (Source("stackoverflow", "tags of posts by user, TFF Stack Overflow", "multilabel",
            "stackoverflow_train.h5 (tacit[data]) or .sqlite in $TACIT_DATA/stackoverflow"),
     _sized(stackoverflow)),
    (Source("stackexchange", "tags of posts by user, a Stack Exchange site", "multilabel",
            "Posts.csv.gz in $TACIT_DATA/stackexchange"),
     _sized(stackexchange)),
    (Source("celeba-attributes", "40 attributes of celebrities, in heads (FedMTL 7)", "multilabel",
            "list_attr_celeba.txt or .csv and img_align_celeba in $TACIT_DATA/celeba"),
     _dealt(celeba_attributes)),
    (Source("lfwa", "40 attributes of faces in the wild, in heads (FedMTL 7)", "multilabel",
            "lfw_att_40.mat (tacit[data]) and lfw in $TACIT_DATA/lfwa"),
     _dealt(lfwa)),
    (Source("facea", "CelebA and LFWA, half of the clients each (FedMTL 7)", "multilabel",
            "both of them in $TACIT_DATA"),
     _dealt(facea)),
    (Source("lfw-pseudo", "stand-in for LFWA: attributes that a model predicted", "multilabel",
            "lfw_9000_32x32_facer40.npz in $TACIT_DATA/lfw_pseudo_attr"),
     _dealt(lfw_pseudo)),
    (Source("nyud2", "classes of pixels of rooms, in heads (FedMTL 7)", "segmentation",
            "train/ and val/ with image/*.npy, label/*.npy in $TACIT_DATA/nyud2"),
     _dealt(nyud2)),
    (Source("heart", "heart disease in four hospitals that predict different things", "multilabel",
            "processed.*.data of UCI in $TACIT_DATA/heart"),
     _with({name: SPLIT[name] for name in SPLIT if name != "min_rows"}, heart)),
    (Source("tcga_brca", "survival with breast cancer in six regions, TCGA", "survival",
            "brca.csv and centers.csv of FLamby in $TACIT_DATA/tcga_brca"),
     _with({name: _reader(from_table).options[name] for name in _OF_TABLES}, tcga_brca)),
    (Source("text", "tags or a label of texts by user", "multilabel or multiclass",
            "a .csv file of yours (path=)"),
     _sized(text)),
]  # fmt: skip

NAMED = {source.name: (source, reader) for source, reader in _PACKAGED + _BUILT_IN + _IN_A_FOLDER}
"""Every data set known by name."""

FILES = {
    **dict.fromkeys(SUFFIXES, _reader(_table, from_table, ("table",))),
    ".npz": _reader(from_npz, from_arrays, ("x", "y", "tasks")),
}
"""Every kind of file that holds a federation by itself."""


def load(
    name_or_path: str | Path,
    *,
    represent: str | None = None,
    heads: str | None = None,
    **options: Any,
) -> Federation:
    """A federation by name (see `sources`), from a table (.csv, .parquet, …), or from a .npz file.

    Options are those of the function that reads it: `from_table` for tables (which need `task` and
    `target`), `from_arrays` for .npz, the generator's sizes and seed, or `path` and more for a
    data set in a folder. Without `path` such a folder is looked for under $TACIT_DATA. With
    `represent` rows are seen through a fixed public representation (`data.representation`). With
    `heads="labels"` every label is a head of its own, and a task works on those that it has labels
    for (`Federation.with_heads`).
    """
    if heads is not None and heads != "labels":
        # An option of this name belongs to the data set itself.
        options["heads"] = heads
    federation = _load(str(name_or_path), options)
    federation = federation.with_heads() if heads == "labels" else federation
    return federation if represent is None else federation.through(represent)


def _load(name: str, options: dict[str, Any]) -> Federation:
    if name in NAMED:
        return NAMED[name][1](name, **options)
    for suffix, reader in FILES.items():
        if name.lower().endswith(suffix):
            return reader(name, name, **options)
    if Path(name).exists() or Path(name).suffix or len(Path(name).parts) > 1:
        raise TacitError(
            f"{name} is not a file that can be read; {instead_of(name)} or .npz, or "
            f"the name of a data set with path= ({', '.join(s.name for s, _ in _IN_A_FOLDER)})"
        )
    raise TacitError(
        f"there is no data set {name!r}{near(name, [s.name for s in sources()])} (or pass a file)"
    )


def sources() -> list[Source]:
    """Every data set that `load` knows by name."""
    return [source for source, _ in NAMED.values()]
