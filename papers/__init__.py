"""The figures and tables of three papers, as published and as obtained here.

    python -m papers --list
    python -m papers pmtl/figure3 --data DIR
    python -m papers mpmtl/figure6

Run from the root of a checkout: this package is not part of what `pip install tacit` brings. The
code of a paper is beside its results, and uses only public names of tacit. Where the noise is in
noise.json already, no accountant is needed (see `--noise-only`).

| package  | paper                                                                                |
|----------|--------------------------------------------------------------------------------------|
| `pmtl`   | Private Multi-Task Learning: Formulation and Applications to Federated Learning       |
| `mpmtl`  | Model-Protected Multi-Task Learning                                                   |
| `fedmtl` | FedMTL: Privacy-Preserving Federated Multi-Task Learning                              |
| `common` | what they share                                                                       |
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers import fedmtl, mpmtl, pmtl
from papers.common.request import PageRequest
from tacit.errors import TacitError

PAPERS = {"pmtl": pmtl, "mpmtl": mpmtl, "fedmtl": fedmtl}
EXPERIMENTS = pmtl.EXPERIMENTS | mpmtl.EXPERIMENTS | fedmtl.EXPERIMENTS
"""What can be reproduced, by name."""


def reproduce(name: str, data: Path | None = None, out: Path | None = None, **options: Any) -> Path:
    """Run what is not yet in `out`, write the files, and return the Markdown page.

    `options` are those of a `PageRequest`. Results are written beside the paper's code by default.
    """
    if name not in EXPERIMENTS:
        raise TacitError(f"there is no {name!r} to reproduce: choose {', '.join(EXPERIMENTS)}")
    paper = name.split("/")[0]
    if options.get("seeds") is None:
        options["seeds"] = PAPERS[paper].SEEDS
    options["sets"] = tuple(options.get("sets") or ())
    place = Path(__file__).parent / paper if out is None else out
    return PAPERS[paper].reproduce(PageRequest(name, data, place, **options))


__all__ = ["EXPERIMENTS", "reproduce"]
