"""`python -m papers fedmtl/…`: table 3 and figures 2 and 5 to 9 of FedMTL, on stand-ins.

    python -m papers fedmtl/table3 --data DIR           # needs lfw_pseudo_attr/ in DIR
    python -m papers fedmtl/table3 --pages              # no runs: the pages again, from the CSV

| module       | what                                                                   |
|--------------|------------------------------------------------------------------------|
| `sets`       | the stand-ins, how they are dealt, and what is trained on them          |
| `contenders` | the methods of table 3, and which settings are tried                    |
| `positional` | baselines as published, with heads averaged by position                 |
| `fits`       | one run                                                                |
| `grid`       | all runs, kept in `cells.csv` and `rounds.csv`                          |
| `choose`     | settings by validation rows of a dealing that no result is shown for    |
| `table3`     | the tables and what was aimed at; `evidence` has thresholds and guard   |
| `curves`     | figures 7 and 8                                                        |
| `groups`     | figures 2 and 6, with heads given to groups of clients; and figure 5    |
| `shares`     | figure 9: time on shares against time in the clear                      |
| `published`  | what the paper prints                                                  |
| `remarks`    | what the runs say, in sentences computed from the files                 |
"""

from papers.fedmtl.run import EXPERIMENTS, SEEDS, reproduce

__all__ = ["EXPERIMENTS", "SEEDS", "reproduce"]
