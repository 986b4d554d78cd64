"""Examples of the reference: what stands between tasks and the billboard."""

# %%
from collections import Counter
from pathlib import Path

import torch

from tacit import privacy
from tacit.randomness import Randomness

# %% noise_for
everyone = privacy.Everyone()
noise = privacy.noise_for(1.0, 1e-4, everyone, 100, "add-remove")  # for ε = 1 over 100 releases

# %% spent, Spent, Release
release = privacy.Release(everyone, noise_multiplier=noise)
cost = privacy.spent({release: 100}, 1e-4, "add-remove")
cost.epsilon <= 1.0, cost.accountant

# %% Sampler, sampler_for, Poisson, Everyone, InTurn
privacy.sampler_for("poisson", 0.5, tasks=200) == privacy.Poisson(rate=0.5)
privacy.InTurn(size=20, of=200)  # cohorts of an exact size, along a public order
isinstance(privacy.Everyone(), privacy.Sampler)

# %% Ledger
ledger = privacy.Ledger.at(Path("ledger.jsonl"))
ledger.book(0, release, repeatable=False)  # returns when it is on disk
ledger.releases()  # Counter({Release(…): 1})

# %% Channel
channel = privacy.Channel(
    everyone, tasks=3, randomness=Randomness.of(None), clip=1.0, release=release
)
collected = channel.open(0, rounds=1)
collected.add(torch.randn(3, 2))  # two numbers from each of three tasks: clipped and summed
collected.publishable(2)  # booked, noised, divided by a constant

# %% BudgetSpent
issubclass(
    privacy.BudgetSpent, Exception
)  # the next release would pass ε: the run ends with what it has

# %% Privacy, Guarantee, guarantee
asked = privacy.Privacy(epsilon=1.0, delta=1e-4)
promised = privacy.guarantee(
    Counter({release: 100}),
    channel="billboard",
    privacy=asked,
    tasks=200,
    sampler=everyone,
    clip=1.0,
    seeded=False,
)
isinstance(promised, privacy.Guarantee)
print(promised)

# %% Repeated, Booked
tuning = privacy.Repeated(
    frozenset({(release, 100)}), mean=5.0
)  # five runs on average, the best is kept
privacy.spent({tuning: 1}, 1e-4, "add-remove").epsilon > cost.epsilon
booked: privacy.Booked = tuning  # what a ledger may hold

# %% Prepaid
privacy.Prepaid(noise=noise, delta=1e-4)  # of a run inside a tuning, which has booked it already

# %% NOT_COVERED
privacy.NOT_COVERED  # what stands beside everything that was computed without noise
