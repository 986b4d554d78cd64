"""Examples of the reference: one run of every method, and what a method is made of."""

# %%
import numpy as np

import tacit
from tacit import methods

draw = np.random.default_rng(0)
task = np.repeat([f"t{k}" for k in range(12)], 12)
x = draw.normal(size=(144, 3))
tasks = tacit.data.from_arrays(x, x.sum(axis=1) + draw.normal(size=144), task)
short = dict(seed=0, baselines=False, personalise="none")
private = dict(privacy=tacit.Privacy(epsilon=8.0), **short)

# %% METHODS, AUTO
sorted(methods.METHODS)  # names for `method="…"` and `--method`
tacit.train(tasks, methods.AUTO, **private).config["method"]  # what was chosen

# %% PMTL
tacit.train(tasks, tacit.PMTL(pull=1.0, clip=0.5), rounds=3, **private)

# %% Ditto
tacit.train(tasks, tacit.Ditto(clip=0.5), rounds=3, **private)

# %% PFedMe
tacit.train(tasks, tacit.PFedMe(clip=0.5), rounds=3, **private)

# %% PPSGD
tacit.train(tasks, tacit.PPSGD(clip=0.5), rounds=3, **private)

# %% FedRep
tacit.train(tasks, tacit.FedRep(clip=0.5), model="mlp", rounds=3, **private)

# %% FedAvg
tacit.train(tasks, tacit.FedAvg(clip=0.5), rounds=3, **private)

# %% FedProx
tacit.train(tasks, tacit.FedProx(clip=0.5), rounds=3, **private)

# %% Mixed
tacit.train(tasks, tacit.Mixed(), **private)

# %% SharedPrior
tacit.train(tasks, tacit.SharedPrior(), **private)

# %% SharedShapes
tacit.train(tasks, tacit.SharedShapes(), model="additive", **private)

# %% MPMTL
tacit.train(tasks, tacit.MPMTL(), rounds=2, **private)

# %% Clusters
tacit.train(tasks, tacit.Clusters(groups=2, clip=0.5), rounds=3, **private)

# %% ClusterPriors
tacit.train(tasks, tacit.ClusterPriors(groups=2), **private)

# %% RelatedPMTL
coast = {f"t{k}": "coast" if k < 6 else "inland" for k in range(12)}  # public
tacit.train(tasks.clustered(coast), tacit.RelatedPMTL(clip=0.5), rounds=3, **private)

# %% Local
tacit.train(tasks, tacit.Local(), rounds=3, **short)

# %% NaiveDP
tacit.train(tasks, tacit.NaiveDP(clip=0.5), rounds=3, **private)  # a warning, not a method to use

# %% FedMTL
tacit.train(tasks, tacit.FedMTL(), model="mlp", rounds=2, **short)

# %% FedAMP
tacit.train(tasks, tacit.FedAMP(), rounds=2, **short)

# %% FedFomo
tacit.train(tasks, tacit.FedFomo(), rounds=2, **short)

# %% MOCHA
tacit.train(tasks, tacit.MOCHA(), rounds=2, **short)

# %% Publishing
tacit.Publishing(rule="adam", lr=0.01)

# %% Method, OnBillboard, TrainedMethod, BillboardMethod, RelatedMethod
issubclass(tacit.PMTL, methods.BillboardMethod)  # gradient steps, and a promise
issubclass(tacit.Mixed, methods.OnBillboard)  # a promise, solved exactly
issubclass(tacit.Local, methods.TrainedMethod) and issubclass(tacit.Local, methods.Method)
issubclass(tacit.RelatedPMTL, methods.RelatedMethod)  # several sums

# %% ExchangeMethod, MixingMethod
issubclass(tacit.FedMTL, methods.ExchangeMethod)  # a curator, and no promise between clients
issubclass(tacit.FedAMP, methods.MixingMethod)

# %% Board, State
import torch

board = methods.Board({"model": torch.zeros(3)})
board["model"], board.round  # public tensors by name, and rounds published so far
state: methods.State = {"own": torch.zeros(3)}  # what a task keeps: tensors by name
