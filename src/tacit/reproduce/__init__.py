"""`tacit reproduce`: the PMTL paper's figures and tables, as published and as obtained here.

    tacit reproduce pmtl/figure3 --data DIR            # or: python -m tacit.reproduce …

Needs no accountant where the noise is in OUT/noise.json already (see `--noise-only`).
"""

from tacit.reproduce.run import EXPERIMENTS, reproduce

__all__ = ["EXPERIMENTS", "reproduce"]
