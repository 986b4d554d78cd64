"""`tacit reproduce`: papers' figures and tables, as published and as obtained here.

    tacit reproduce pmtl/figure3 --data DIR            # or: python -m tacit.reproduce …
    tacit reproduce mpmtl/figure6                      # `mpmtl` has a package of its own
    tacit reproduce fedmtl/table3 --data DIR           # and so has `fedmtl`

Needs no accountant where the noise is in OUT/noise.json already (see `--noise-only`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tacit.errors import TacitError
from tacit.reproduce import fedmtl, mpmtl, run
from tacit.reproduce.mpmtl.run import FIGURES, REAL, REPETITIONS

EXPERIMENTS = run.EXPERIMENTS | mpmtl.EXPERIMENTS | fedmtl.EXPERIMENTS
"""What can be reproduced, by name."""
SEEDS = {"pmtl": 3, "mpmtl": REPETITIONS, "fedmtl": 3}


def reproduce(
    name: str,
    data: Path | None,
    out: Path | None = None,
    *,
    sets: Sequence[str] | None = None,
    seeds: int | None = None,
    reduced: bool = False,
    device: str = "cpu",
    model: str | None = None,
    noise_only: bool = False,
    pages: bool = False,
    limit: float | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Run what is not yet in `out`, write the files, and return the Markdown page.

    `pages` writes the pages from what was run before; `limit` seconds later no run is begun. Both
    are for FedMTL's experiments only.
    """
    if name not in EXPERIMENTS:
        raise TacitError(f"there is no {name!r} to reproduce: choose {', '.join(EXPERIMENTS)}")
    paper = name.split("/")[0]
    out = Path("papers") / paper if out is None else out
    seeds = SEEDS[paper] if seeds is None else seeds
    if paper == "fedmtl":
        if model is not None or noise_only:
            raise TacitError(f"{name} has models of its own and no noise: leave that option out")
        return fedmtl.reproduce(
            name, data, out, sets=sets, seeds=seeds, reduced=reduced, device=device, pages=pages,
            limit=math.inf if limit is None else limit, say=say,
        )  # fmt: skip
    if pages or limit is not None:
        raise TacitError(f"{name} knows neither --pages nor --limit: finished runs are kept anyway")
    needs = paper == "pmtl" or bool(set(sets or FIGURES[name][1]) & set(REAL))
    if needs and data is None:
        raise TacitError("pass --data DIR, or set TACIT_DATA to the folder of data sets")
    if paper == "mpmtl":
        if model is not None:
            raise TacitError(f"model={model!r}: {name} is about linear models only")
        return mpmtl.reproduce(
            name, data, out, sets=sets, seeds=seeds, reduced=reduced, device=device,
            noise_only=noise_only, say=say,
        )  # fmt: skip
    assert data is not None
    return run.reproduce(
        name, data, out, sets=sets, seeds=seeds, reduced=reduced, device=device, model=model,
        noise_only=noise_only, say=say,
    )  # fmt: skip


__all__ = ["EXPERIMENTS", "reproduce"]
