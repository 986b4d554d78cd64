# %% [markdown]
# # A table of schools
#
# Two hundred schools know the marks of ten to thirty pupils each. What helps pupils is much the
# same everywhere, but schools are not the same. No school may show its pupils' marks to anybody.
#
# We make the table up, so that we know the truth.

# %%
import numpy as np

import tacit

draw = np.random.default_rng(1)
rows = []
for school in range(200):
    level, slope = 5 * draw.normal(), 6 + 1.5 * draw.normal()
    for _ in range(draw.integers(10, 31)):
        hours, earlier = draw.gamma(4, 1), draw.normal(50, 10)
        mark = 20 + level + slope * hours / 2 + 0.5 * earlier + 6 * draw.normal()
        rows.append((f"school-{school}", hours, earlier, mark))
names = ("school", "hours", "earlier", "mark")
table = {name: list(column) for name, column in zip(names, zip(*rows))}
len(rows)

# %% [markdown]
# ## Look before you train
#
# A *federation* is the rows of all tasks, split into parts for training and testing. The
# assumptions say what was taken to be public.

# %%
schools = tacit.data.from_table(table, task="school", target="mark")
print(schools.kind, "of", len(schools), "tasks from", ", ".join(schools.features))
for one in schools.assumptions:
    print("assumed:", one)

# %% [markdown]
# ## Is it worth it?
#
# This needs no data, only what everybody may know.

# %%
print(tacit.forecast(tasks=200, rows=16, features=2, epsilon=1))

# %% [markdown]
# ## Train
#
# `epsilon=1` is the promise for a whole school: all that other schools see changes the odds of
# any guess about its taking part by a factor of 2.7 at most. The noise is calibrated from that. A
# folder holds the ledger, the models and the report.

# %%
run = tacit.train(schools, privacy=tacit.Privacy(epsilon=1.0), out="runs/schools")
print(run.verdict.sentences[0])
print()
print(run.guarantee)

# %% [markdown]
# ## What may be published
#
# Coefficients that all schools share are computed from noisy releases alone. Their standard
# errors know of the noise. The truth is 3 marks for an hour, and half a mark for each earlier
# one.

# %%
for one in run.summary().to_json()["coefficients"]:
    if one["estimate"] is not None:
        print(f"{one['name']:10} {one['estimate']:7.2f} ± {one['error']:.2f}")

# %% [markdown]
# ## What may not
#
# Scores are computed from pupils' rows without noise. They are for your eyes.

# %%
scores = run.metrics
print(scores["label"])
for name, baseline in {"with others": scores, **scores["baselines"]}.items():
    overall = baseline["overall"]
    print(f"{name:12} share of the variance that is left: {overall['nmse_pooled']:.3f}")

# %% [markdown]
# ## Use it
#
# Each school's rows are predicted by its own model.

# %%
new = {"school": ["school-0", "school-1"], "hours": [6.0, 6.0], "earlier": [50.0, 50.0]}
print(run.predict(new))

# %% [markdown]
# The same from the folder, in another program. A school that did not take part is predicted by
# what is public, and better if it has a few rows of its own.

# %%
saved = tacit.SavedModels.load("runs/schools")
newcomer = {"school": ["elsewhere"], "hours": [6.0], "earlier": [50.0]}
print("knowing nothing of it:", saved.predict(newcomer))
known = {name: table[name][:12] for name in names} | {"school": ["elsewhere"] * 12}
print("from twelve rows of its own:", saved.predict(newcomer, join=known))

# %% [markdown]
# `run.report("report.html")` writes all of it for people. Next: [four hospitals](hospitals.md),
# which are too few to hide.
