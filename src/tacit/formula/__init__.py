"""Mixed models by formula: `tacit.mixed("wage ~ educ + exper + (1 + exper | person)", table)`.

The bracket is ours: it names the task column and the effects that each task has of its own. The
rest is read by `formulaic`, as R and statsmodels users know it, with one restriction: a row of the
design comes from a row of the table. What looks at all rows (`scale(x)`, splines, `np.mean(x)`)
would tell every task about the others, which no noise covers, and is refused.
"""

from tacit.formula.run import coefficients, mixed

__all__ = ["coefficients", "mixed"]
