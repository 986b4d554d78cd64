# %% [markdown]
# # Writers and a network
#
# scikit-learn has 1797 small images of digits. We deal them to sixty made-up writers, so that
# each has about thirty, and each sees some digits more often than others. Writers share a small
# network under ε; each keeps the part that is its own.

# %%
import numpy as np
from sklearn.datasets import load_digits

import tacit

images, digits = load_digits(return_X_y=True)
draw = np.random.default_rng(3)
favourite = draw.integers(10, size=60)  # whose digits a writer sees more of
weight = 1 + 3 * (digits[:, None] == favourite)
writer = [f"writer-{draw.choice(60, p=one / one.sum())}" for one in weight]
federation = tacit.data.from_arrays(
    images / 16, digits, writer, kind="multiclass", scale="none", min_rows=10
)
len(federation)

# %% [markdown]
# ## A network of your own
#
# Any `torch.nn.Module` will do. The fewer numbers are shared, the less noise there is on the
# whole: this one has 64 inputs, 16 hidden units and ten outputs.

# %%
from torch import nn

network = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

# %% [markdown]
# ## Train it together
#
# `PMTL` keeps a model for every writer and pulls it towards a private mean. `clip_quantile` lets
# the clip follow the median length of what writers send, inside the same ε. Then comes each
# writer's [last step](../methods.md#the-last-step), on its own rows and for free.

# %%
method = tacit.PMTL(pull=0.5, clip=0.5, clip_quantile=0.5, local_steps=5, lr=0.2)
run = tacit.train(
    federation,
    method,
    model=network,
    privacy=tacit.Privacy(epsilon=8.0),
    rounds=30,
    out="runs/writers",
)
print(run.guarantee)

# %%
print(run.verdict.sentences[0])
for name, one in {"with others": run.metrics, **run.metrics["baselines"]}.items():
    print(f"{name:12} accuracy {one['overall']['accuracy']:.1%}")

# %% [markdown]
# ε = 8 is much, and sixty writers are few: `tacit.forecast` would have said so for a linear
# model. With 539 real writers ε = 0.5 is enough ([figures](../ways.md#what-the-demo-prints)).
# What decides is the number of writers, not that of images.
#
# ## A writer's own network
#
# It stays with its writer. It takes raw rows, and is an ordinary module.

# %%
own = run.personal(federation.names[0])
type(own).__name__, sum(one.numel() for one in own.parameters())
