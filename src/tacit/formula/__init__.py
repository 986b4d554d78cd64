"""Formulas: `"wage ~ educ + exper + (1 + exper | person)"` and a table become rows of a design.

The bracket is ours: it names the task column and the effects that each task has of its own. The
rest is read by `formulaic`, as R and statsmodels users know it, with one restriction: a row of the
design comes from a row of the table. What looks at all rows (`scale(x)`, splines, `np.mean(x)`)
would tell every task about the others, which no noise covers, and is refused. (`tacit.mixed` runs
them.)
"""

from tacit.formula.design import Design, FormulaSchema, design
from tacit.formula.text import Formula, parse

__all__ = ["Design", "Formula", "FormulaSchema", "design", "parse"]
