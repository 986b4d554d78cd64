# %% [markdown]
# # Four hospitals, and patients as the unit
#
# Among four parties nobody can hide: whatever noise hides one hospital also hides what all of
# them have in common. Their patients are hundreds. So the promise is made one level down, for
# every patient.

# %%
import numpy as np

import tacit

draw = np.random.default_rng(2)
rows = []
for hospital in ("north", "east", "south", "west"):
    level = 0.6 * draw.normal()
    for number in range(70):
        age, pressure, weight, sugar = draw.normal((60, 140, 80, 5), (10, 20, 15, 1))
        odds = level + 0.08 * (age - 60) + 0.04 * (pressure - 140) + 0.7 * (sugar - 5)
        ill = int(draw.random() < 1 / (1 + np.exp(-odds)))
        rows.append((hospital, f"{hospital}-{number}", age, pressure, weight, sugar, ill))
names = ("hospital", "patient", "age", "pressure", "weight", "sugar", "ill")
table = {name: list(column) for name, column in zip(names, zip(*rows))}

# %% [markdown]
# ## Whole hospitals: too few
#
# First as it should not be done. The verdict says what is wrong.

# %%
by_hospital = tacit.data.from_table(table, task="hospital", target="ill", drop=["patient"])
run = tacit.train(by_hospital, privacy=tacit.Privacy(epsilon=1.0), out="runs/hospitals")
print(run.verdict.sentences[0])

# %% [markdown]
# ## Every patient
#
# Three things change. `person` names the column that says who a row is of; it is used for nothing
# else. `scale` gives public constants for the columns (about where they lie, and how far they
# spread), because a hospital's own mean would be made of its patients. And `persons` is *about*
# how many patients there are, as everybody may know.

# %%
patients = tacit.data.from_table(
    table,
    task="hospital",
    target="ill",
    person="patient",
    scale={"age": (60, 12), "pressure": (140, 20), "weight": (80, 15), "sugar": (5, 1)},
)
hidden = tacit.Privacy(epsilon=1.0, unit="person", persons=280)
run = tacit.train(patients, privacy=hidden, out="runs/patients")
print(run.guarantee)

# %% [markdown]
# The same ε, for another unit: the noise is as wide as *one patient* can move a sum, not one
# hospital. That a hospital took part, and what its patients are like on the whole, may show; that
# a certain patient is among them may not.

# %%
alone = run.metrics["baselines"]["local"]["overall"]["loss"]
print(f"log loss {run.metrics['overall']['loss']:.3f}, alone {alone:.3f}")
print("noise in clips:", round(run.guarantee.noise_multiplier, 2), "over about 280 patients")

# %% [markdown]
# Over four tasks no interval says much, so look at the losses themselves, and at the noise: it is
# spread over 280 patients.
#
# ## Trusting nobody
#
# By default whoever sums adds the noise, and sees each hospital's bounded sum before. With
# `noise_by="task"` each hospital adds all of the noise itself. The sum of four then has twice the
# noise.

# %%
careful = tacit.Privacy(epsilon=1.0, unit="person", persons=280, noise_by="task")
run = tacit.train(patients, privacy=careful, out="runs/careful")
print(run.guarantee.trusts)

# %% [markdown]
# On real sites the same stands in the consortium's file: [many
# machines](../deploy.md#persons-as-the-unit). [Which unit do you
# need](../privacy.md#which-unit-do-you-need) has the rest.
