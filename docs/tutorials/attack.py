# %% [markdown]
# # Attack your own run
#
# A promise is an upper bound on ε. An attack that tells runs with and without one task apart
# proves a *lower* bound. If the two ever crossed, the promise would be refuted.

# %%
import numpy as np

import tacit

draw = np.random.default_rng(6)
task = np.repeat([f"task-{k}" for k in range(40)], 12)
x = draw.normal(size=(480, 3))
y = x.sum(axis=1) + draw.normal(size=480)
federation = tacit.data.from_arrays(x, y, task)

# %% [markdown]
# ## The channel, thousands of times
#
# The run that `tacit.train` would make is attacked by an observer who knows everything but
# whether one task took part, and who may choose that task's contribution. Nothing is trained,
# because only the channel stands between the two.

# %%
found = tacit.audit(
    federation,
    tacit.FedAvg(clip=1.0),
    privacy=tacit.Privacy(epsilon=2.0),
    rounds=5,
    many_runs=2000,
    seed=0,
)
print(found)

# %% [markdown]
# The lower bound is below what is promised, and of the same size: no leak beside the sum is seen.
# With more runs it comes closer.
#
# ## Does any other task notice?
#
# The proof needs that a task moves the sum only by its own contribution. So compare two
# federations that differ in one row of one task, bit by bit.

# %%
fewer = np.arange(480) != 0  # without the first row of the first task
neighbour = tacit.data.from_arrays(x[fewer], y[fewer], task[fewer])
found = tacit.audit(
    federation,
    tacit.FedAvg(clip=1.0),
    privacy=tacit.Privacy(epsilon=2.0),
    rounds=5,
    neighbour=neighbour,
    seed=0,
)
print("what must not happen:", found.broken or "nothing of the kind was seen")
for name, number in found.tries.items():
    print(f"{name}: {number:g}")

# %% [markdown]
# ## One that cheats
#
# A tuning that is not paid for: make the run ten times and keep what looks best. What an attack
# proves about ten releases that are booked as one is above the ε that was promised for one.

# %%
one = tacit.privacy.spent(
    {tacit.privacy.Release(tacit.privacy.Everyone(), 4.0): 1}, 1e-3, "add-remove"
)
ten = tacit.privacy.spent(
    {tacit.privacy.Release(tacit.privacy.Everyone(), 4.0): 10}, 1e-3, "add-remove"
)
print(f"promised for one release: ε = {one.epsilon:.2f}; truly spent by ten: ε = {ten.epsilon:.2f}")

looks = 100_000  # what somebody sees: the mean of ten releases, with noise 4 on each
without = draw.normal(0, 4 / np.sqrt(10), size=looks)
there = draw.normal(1, 4 / np.sqrt(10), size=looks)  # the task moves each of them by one clip
line = np.quantile(without, 0.99)  # "it was there" above this line
wrong, right = (without > line).mean(), (there > line).mean()
bound = np.log((right - 1e-3) / wrong)
print(f"right {right:.1%}, wrong {wrong:.1%} of the time: ε is at least {bound:.2f}")

# %% [markdown]
# This is why every report says that settings chosen by comparing runs are not covered, and why
# `tacit tune` exists. On the command line: `tacit audit` takes the folder of a run, and needs no
# rows.
