"""Examples of the reference: models by name, and how they are made."""

# %%
import numpy as np
import torch
from torch import nn

import tacit
from tacit import models

draw = np.random.default_rng(0)
names = np.repeat(["a", "b", "c"], 10)
table = tacit.data.from_arrays(draw.normal(size=(30, 4)), draw.normal(size=30), names)
images = tacit.data.from_arrays(
    draw.normal(size=(30, 1, 28, 28)), np.tile(np.arange(10), 3), names, kind="multiclass"
)

# %% MODELS
sorted(models.MODELS)  # what `model="mlp"` and `--model mlp` may name

# %% linear, mlp
models.linear(table)  # Linear(in_features=4, out_features=1)
models.mlp(table)

# %% additive, AdditiveModel
shapes = models.additive(table)
isinstance(shapes, models.AdditiveModel), shapes(torch.zeros(2, 4)).shape

# %% cnn, femnist_cnn
models.cnn(images)(torch.zeros(2, 1, 28, 28)).shape  # torch.Size([2, 10])
models.femnist_cnn(size=28, classes=62)

# %% faces, celeba_cnn
models.faces(images)
models.celeba_cnn(size=84)(torch.zeros(1, 3, 84, 84)).shape

# %% lenet, mobilenet, MultiHead
network = models.lenet(images)
isinstance(network, models.MultiHead), network(torch.zeros(2, 1, 28, 28)).shape
models.mobilenet(images)

# %% segnet
scenes = tacit.data.from_masks(
    draw.normal(size=(6, 3, 32, 32)), np.zeros((6, 32, 32), int), ["a", "b"] * 3, classes=["x", "y"]
)
models.segnet(scenes)

# %% bag, BagOfWords
models.BagOfWords(100)(torch.tensor([[1, 5, 5, 0]])).shape  # shares of 100 words
notes = {"who": ["a", "b"] * 6, "note": ["good day", "bad day"] * 6, "mood": ["up", "down"] * 6}
with open("notes.csv", "w") as file:
    file.write("who,note,mood\n" + "".join(f"{a},{b},{c}\n" for a, b, c in zip(*notes.values())))
text = tacit.data.load(
    "text", path="notes.csv", task="who", text="note", target="mood", separator=None
)
models.bag(text)

# %% with_heads
body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
models.with_heads(body, lambda outputs: nn.Linear(8, outputs), table)
