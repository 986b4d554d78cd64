"""`python -m papers mpmtl/…`: figures 2 to 8 of Model-Protected Multi-Task Learning.

    python -m papers mpmtl/figure6                      # made-up data
    python -m papers mpmtl/figure8 --data DIR           # School and LSOA II

| module       | what                                                                   |
|--------------|------------------------------------------------------------------------|
| `trials`     | data sets and splits, and where settings are chosen                     |
| `fits`       | every method as a function; `fast` and `data_level` have some of them   |
| `compare`    | settings, and the grid of cells                                        |
| `wishart`    | the printed noise, refuted; `attack` refutes it, `composition` adds up  |
| `examples`   | figures 2 to 5                                                         |
| `tradeoff`   | figures 6 to 8                                                         |
| `published`  | what the paper prints, and what was aimed at                            |
"""

from papers.mpmtl.run import EXPERIMENTS, SEEDS, reproduce

__all__ = ["EXPERIMENTS", "SEEDS", "reproduce"]
