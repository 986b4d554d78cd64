"""`python -m tacit.reproduce`: the same as `tacit reproduce`, with fewer things installed."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path

from tacit.data.folders import VARIABLE
from tacit.errors import TacitError
from tacit.reproduce import EXPERIMENTS, reproduce


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tacit.reproduce", description=__doc__)
    parser.add_argument("name", nargs="?", help="like pmtl/figure3 or fedmtl/table3")
    parser.add_argument("--data", default=os.environ.get(VARIABLE), help="folder of data sets")
    parser.add_argument("--out", help="folder for the results; by default papers/<paper>")
    parser.add_argument("--sets", help="only these data sets, with commas")
    parser.add_argument("--seeds", type=int, help="repetitions; by default 3, or 20 for mpmtl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", help="in place of the model of the settings")
    parser.add_argument("--reduced", action="store_true", help="small, for two cores")
    parser.add_argument("--noise-only", action="store_true", help="calibrate the noise, no runs")
    parser.add_argument("--pages", action="store_true", help="no runs, pages from the CSV (fedmtl)")
    parser.add_argument("--limit", type=float, help="begin no run after so many seconds (fedmtl)")
    parser.add_argument("--list", action="store_true", help="show what can be reproduced")
    given = parser.parse_args()
    if given.list:
        print("\n".join(f"{name}  {title}" for name, title in EXPERIMENTS.items()))
        return
    try:
        if given.name is None:
            raise TacitError(
                "say what to reproduce, like pmtl/figure3 (--list shows what there is)"
            )
        page = reproduce(
            given.name,
            Path(given.data) if given.data else None,
            Path(given.out) if given.out else None,
            sets=given.sets.split(",") if given.sets else None,
            seeds=given.seeds,
            reduced=given.reduced,
            device=given.device,
            model=given.model,
            noise_only=given.noise_only,
            pages=given.pages,
            limit=given.limit,
            say=functools.partial(print, flush=True),
        )
    except TacitError as error:
        print(f"tacit: {error}", file=sys.stderr)
        sys.exit(2)
    print(page)


if __name__ == "__main__":
    main()
