# %% [markdown]
# # Different questions, on secret shares
#
# Six clinics see similar patients but ask different questions: three predict a fever, two a
# relapse, one both. FedMTL mixes the models of clients whose task layers are alike. It promises
# nothing *between* clients; on secret shares no *server* learns anything.

# %%
import numpy as np

import tacit

draw = np.random.default_rng(4)
asks = {
    "a": ["fever"],
    "b": ["fever"],
    "c": ["fever"],
    "d": ["relapse"],
    "e": ["relapse"],
    "f": ["fever", "relapse"],
}
x = draw.normal(size=(6 * 80, 8)).astype("float32")
clinic = np.repeat(list(asks), 80)
truth = draw.normal(size=(8, 2))
y = (x @ truth + draw.normal(size=(480, 2)) > 0).astype(float)
for k, name in enumerate(("fever", "relapse")):
    y[[name not in asks[one] for one in clinic], k] = np.nan  # it was never asked there
answers = tacit.data.from_arrays(x, y, clinic, kind="multilabel", labels=("fever", "relapse"))
clients = answers.with_heads({"fever": ["fever"], "relapse": ["relapse"]})
{name: clients.heads.of(k) for k, name in enumerate(clients.names)}

# %% [markdown]
# A label that a client never asked for is `NaN`; tacit reads off these which heads a client works
# on.
#
# ## In the clear

# %%
method = tacit.FedMTL(lr=0.2, min_peers=1)
settings = dict(model="mlp", rounds=8, seed=0, baselines=False, personalise="none")
clear = tacit.train(clients, method, **settings)
print(clear.guarantee)

# %% [markdown]
# ## On shares
#
# Three servers, none of which sees a model. Here they are simulated in this process, and the
# guarantee says so.

# %%
shares = tacit.train(clients, method, curator=tacit.Secure(trust="replicated"), **settings)
print(shares.guarantee)

# %% [markdown]
# Clients end with the same models, up to the rounding of shares:

# %%
for name in clients.names:
    one, other = clear.personal(name), shares.personal(name)
    apart = max((a - b).abs().max().item() for a, b in zip(one.parameters(), other.parameters()))
    print(name, f"{apart:.5f}")

# %% [markdown]
# Who sees what, message by message, is in the [threat model](../threat-model.md). What answers
# give away to clients is in [the
# exchange](../exchange.md#what-it-protects-nothing-between-clients).
