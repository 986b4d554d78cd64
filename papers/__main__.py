"""Repeat a figure or table of a paper: CSV, plot, and a table beside the published one."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path

from papers import EXPERIMENTS, reproduce
from papers.common.request import PLAIN_COMMAND
from tacit.data.folders import VARIABLE
from tacit.errors import TacitError


def read(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=PLAIN_COMMAND, description=__doc__)
    parser.add_argument("name", nargs="?", help="like pmtl/figure3 or fedmtl/table3; see --list")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get(VARIABLE) or None,
        help=f"folder of data sets; by default what {VARIABLE} names",
    )
    parser.add_argument("--out", type=Path, help="folder for the results; by default papers/PAPER")
    parser.add_argument("--sets", help="only these data sets, with commas")
    parser.add_argument("--seeds", type=int, help="repetitions; by default 3, or 20 for mpmtl")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--together", action="store_true", help="runs that no other process began, no page (pmtl)"
    )
    parser.add_argument("--reduced", action="store_true", help="small, for two cores")
    parser.add_argument("--noise-only", action="store_true", help="calibrate the noise, no runs")
    parser.add_argument(
        "--pages", action="store_true", help="no runs, pages of what was run before"
    )
    parser.add_argument("--limit", type=float, help="begin no run after so many seconds (fedmtl)")
    parser.add_argument("--list", action="store_true", help="show what can be reproduced")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = vars(read(arguments))
    if given.pop("list"):
        print("\n".join(f"{name}  {title}" for name, title in EXPERIMENTS.items()))
        return
    given["sets"] = given["sets"].split(",") if given["sets"] else ()
    try:
        if given["name"] is None:
            raise TacitError(
                "say what to reproduce, like pmtl/figure3 (--list shows what there is)"
            )
        page = reproduce(**given, say=functools.partial(print, flush=True))
    except TacitError as error:
        print(f"papers: {error}", file=sys.stderr)
        sys.exit(2)
    print(page)


if __name__ == "__main__":
    main()
