"""Where federations come from: files, arrays, public data sets, made-up tasks."""

from tacit.data.arrays import from_arrays
from tacit.data.masks import from_masks
from tacit.data.npz import from_npz
from tacit.data.preprocess import Preprocessing
from tacit.data.reading import read_table
from tacit.data.registry import Source, load, sources
from tacit.data.schema import Schema
from tacit.data.tabular import from_table

__all__ = [
    "Preprocessing",
    "Schema",
    "Source",
    "from_arrays",
    "from_masks",
    "from_npz",
    "from_table",
    "load",
    "read_table",
    "sources",
]
