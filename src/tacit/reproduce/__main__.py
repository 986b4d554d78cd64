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
    parser.add_argument("name", help=", ".join(EXPERIMENTS))
    parser.add_argument("--data", default=os.environ.get(VARIABLE), help="folder of data sets")
    parser.add_argument("--out", default="papers/pmtl", help="folder for the results")
    parser.add_argument("--sets", help="only these data sets, with commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", help="in place of the model of the settings")
    parser.add_argument("--reduced", action="store_true", help="small, for two cores")
    parser.add_argument("--noise-only", action="store_true", help="calibrate the noise, no runs")
    given = parser.parse_args()
    try:
        if given.data is None:
            raise TacitError(f"pass --data DIR, or set {VARIABLE} to the folder of data sets")
        page = reproduce(
            given.name,
            Path(given.data),
            Path(given.out),
            sets=given.sets.split(",") if given.sets else None,
            seeds=given.seeds,
            reduced=given.reduced,
            device=given.device,
            model=given.model,
            noise_only=given.noise_only,
            say=functools.partial(print, flush=True),
        )
    except TacitError as error:
        print(f"tacit: {error}", file=sys.stderr)
        sys.exit(2)
    print(page)


if __name__ == "__main__":
    main()
