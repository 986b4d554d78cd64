"""Examples of the reference: multi-task learning without privacy."""

# %%
from functools import partial

import numpy as np

import tacit
from tacit import classical

draw = np.random.default_rng(0)
task = np.repeat([f"t{k}" for k in range(8)], 15)
x = draw.normal(size=(120, 4))
tasks = tacit.data.from_arrays(x, x.sum(axis=1) + draw.normal(size=120), task)

# %% Problem
problem = classical.Problem.of(tasks.train, "regression")
problem.x.shape

# %% ridge, Fit
fit = classical.ridge(problem, 0.1)
fit.w.shape, fit.converged  # a model for each task, and whether it is the minimum

# %% lasso
classical.lasso(problem, 0.05).w

# %% pooled
classical.pooled(problem, 0.1).w

# %% mean_regularised
classical.mean_regularised(problem, 1.0).w

# %% group_sparse
classical.group_sparse(problem, 0.1).w

# %% trace_norm
classical.trace_norm(problem, 0.1).w

# %% relationship, task_covariance
related = classical.relationship(problem, 0.1)
classical.task_covariance(problem, related.w).shape  # who is like whom: [8, 8]

# %% strongest, path
top = classical.strongest(problem, classical.lasso)  # above it nothing but intercepts is left
len(classical.path(classical.lasso, problem, [top, top / 10, top / 100]))

# %% cross_validate, Choice
choice = classical.cross_validate(classical.ridge, problem, [0.01, 0.1, 1.0], folds=3)
choice.strength, choice.fit.w.shape

# %% SOLVERS, Solver
sorted(classical.SOLVERS)
solver: classical.Solver = partial(classical.mean_regularised, strength=0.01)
