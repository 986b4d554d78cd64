"""What the reproductions of several papers share: requests, files of finished runs, noise, tables.

| module     | what                                                                |
|------------|---------------------------------------------------------------------|
| `request`  | what was asked for: a figure, where its data are, how large          |
| `cells`    | a CSV file of finished runs, read at the start and appended to       |
| `noise`    | calibrated noise in a file, for machines without an accountant       |
| `devices`  | where runs are made                                                 |
| `tasks`    | a federation of the first tasks alone                               |
| `write`    | CSV, PNG, SVG and Markdown                                          |
"""
