"""`python -m papers pmtl/…`: figures and tables of Private Multi-Task Learning.

    python -m papers pmtl/figure3 --data DIR

| module        | what                                                                   |
|---------------|------------------------------------------------------------------------|
| `sets`        | the data sets, and what stands in for those that are not at hand        |
| `settings`    | what is trained on which set                                            |
| `grid`        | all runs, kept in `cells.csv`; `means` has means over seeds             |
| `choices`     | settings of every method for every ε, chosen on validation rows         |
| `experiments` | figures 1, 3, 7 and 8, tables 1 and 3                                   |
| `curves`      | figure 2                                                                |
| `noises`      | figures 4 to 6: accuracy and ε over rounds, by clip and noise           |
| `published`   | what the paper prints                                                  |
"""

from papers.pmtl.run import EXPERIMENTS, SEEDS, reproduce

__all__ = ["EXPERIMENTS", "SEEDS", "reproduce"]
