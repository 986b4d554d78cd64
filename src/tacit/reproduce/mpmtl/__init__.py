"""`tacit reproduce mpmtl/…`: figures 2 to 8 of Model-Protected Multi-Task Learning.

    tacit reproduce mpmtl/figure6                      # made-up data
    tacit reproduce mpmtl/figure8 --data DIR           # School and LSOA II

| module       | what                                                                   |
|--------------|------------------------------------------------------------------------|
| `trials`     | data sets and splits, and where settings are chosen                     |
| `fits`       | every method as a function; `fast` and `data_level` have some of them   |
| `compare`    | settings, and the grid of cells                                        |
| `examples`   | figures 2 to 5                                                         |
| `tradeoff`   | figures 6 to 8                                                         |
| `published`  | what the paper prints, and what was aimed at                            |
"""

from tacit.reproduce.mpmtl.run import EXPERIMENTS, reproduce

__all__ = ["EXPERIMENTS", "reproduce"]
