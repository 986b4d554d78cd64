"""Steps on bags of words touch only the words that occur, and end where plain steps end."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import vmap

from tacit.local import bags
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.models.linear import zeros
from tacit.models.words import BagOfWords

WORDS, STEPS, ROWS, LENGTH, TASKS = 60, 4, 3, 7, 3


def drawn(kind, outputs, seed=0):
    """Ids of padding, of words, and of words outside the vocabulary; some labels are missing."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(0, WORDS + 3, (TASKS, STEPS, ROWS, LENGTH), generator=rng).float()
    x[0, :, 0] = 0  # a post without words
    if kind == "multilabel":
        y = torch.randint(0, 2, (TASKS, STEPS, ROWS, outputs), generator=rng).float()
        y[:, :, 0, 0] = torch.nan
    elif kind == "binary":
        y = torch.randint(0, 2, (TASKS, STEPS, ROWS), generator=rng).float()
    else:
        y = torch.randint(0, outputs, (TASKS, STEPS, ROWS), generator=rng)
    weight = torch.tensor([0.5, 0.5, 0.0]).expand(TASKS, STEPS, ROWS)
    return Batches(x, y, weight), torch.randn(TASKS, outputs * (WORDS + 1), generator=rng)


@pytest.mark.parametrize("steepest", [None, 0.4])
@pytest.mark.parametrize("shared", [False, True], ids=["own start", "one start for all"])
@pytest.mark.parametrize("pull", [0.0, 0.7])
@pytest.mark.parametrize(("kind", "outputs"), [("multilabel", 5), ("multiclass", 4), ("binary", 1)])
def test_they_end_where_plain_steps_end(kind, outputs, pull, shared, steepest, monkeypatch):
    model = FlatModel(nn.Sequential(BagOfWords(WORDS), zeros(WORDS, outputs)), kind)
    model = model.bounded(steepest)
    batches, w = drawn(kind, outputs)
    towards, start = w.mean(dim=0), w[0]

    def steps(own, batches):
        own = start if shared else own
        return sgd(model, own, model.buffers, batches, 0.3, pull=pull, towards=towards)[0]

    assert bags.applies(model.words, kind, Batches(*(side[0] for side in batches)), 0.3, pull)
    found = vmap(steps)(w, batches)
    monkeypatch.setattr(model, "vocabulary", None)
    plain = vmap(steps)(w, batches)
    assert torch.allclose(found, plain, atol=1e-6)
    assert not torch.allclose(plain, start if shared else w, atol=1e-2)


def test_other_models_settings_and_many_words_take_plain_steps():
    batches = Batches(*(side[0] for side in drawn("binary", 1)[0]))
    assert bags.words_of(nn.Sequential(nn.Flatten(), zeros(4, 1))) is None
    assert bags.words_of(nn.Sequential(BagOfWords(9), zeros(9, 4), nn.ReLU())) is None
    assert not bags.applies(WORDS, "regression", batches, 0.1, 0.0)
    assert not bags.applies(WORDS, "binary", batches, torch.tensor(0.1), 0.0)
    assert not bags.applies(WORDS, "binary", batches, 0.5, 2.0)  # nothing of w is left
    assert not bags.applies(WORDS, "binary", batches, 0.5, 1.9)  # too little to divide by
    assert not bags.applies(20, "binary", batches, 0.1, 0.0)
