"""The models by name: shapes, and the bag of words against dense logistic regression."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from tacit import PMTL, SavedModels, train
from tacit.data import from_arrays
from tacit.data.split import SplitRule
from tacit.data.words import Sizes, Texts, tag_federation, word_ids
from tacit.errors import TacitError
from tacit.local.flat import FlatModel
from tacit.models import MODELS, BagOfWords, celeba_cnn


def posts(tasks=6, rows=10, words=30, known=25, tags=4, length=7, longest=9, seed=0):
    """Made-up posts: a tag is there when its own word is."""
    rng = np.random.default_rng(seed)
    texts = Texts([], [], [])
    for task in range(tasks):
        for _ in range(rows):
            text = [
                f"w{number:02}" for number in rng.integers(0, words, rng.integers(0, longest + 1))
            ]
            tagged = [f"t{number}" for number in range(tags) if f"w{number:02}" in text]
            texts.add(f"u{task}", text, tagged)
    return tag_federation(texts, Sizes(known, tags, length=length), SplitRule(), "made up")


def dense(ids: torch.Tensor, words: int) -> torch.Tensor:
    """The bag of words the slow way: shares of all words of the text, known or not."""
    bags = torch.zeros(len(ids), words)
    for row, own in enumerate(ids.long().tolist()):
        there = [number for number in own if number > 0]
        for number in there:
            if number <= words:
                bags[row, number - 1] += 1 / len(there)
    return bags


@settings(max_examples=40, deadline=None)
@given(
    words=st.integers(1, 12), length=st.integers(1, 9), rows=st.integers(1, 6),
    outputs=st.integers(1, 4), seed=st.integers(0, 999),
)  # fmt: skip
def test_bag_is_dense_logistic_regression(words, length, rows, outputs, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, words + 2, (rows, length), generator=generator)
    sparse = nn.Sequential(BagOfWords(words), nn.Linear(words, outputs))
    plain = sparse[1]
    bags = dense(ids, words)
    y = torch.randint(0, 2, (rows, outputs), generator=generator).float()
    for x in (ids, ids.float()):
        parameters = dict(plain.named_parameters())
        named = {f"1.{name}": value for name, value in parameters.items()}
        out, expected = functional_call(sparse, named, (x,)), plain(bags)
        torch.testing.assert_close(out, expected, atol=1e-6, rtol=0)
        loss = nn.functional.binary_cross_entropy_with_logits
        ours = torch.autograd.grad(loss(out, y), list(parameters.values()))
        theirs = torch.autograd.grad(loss(expected, y), list(parameters.values()))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_bag_under_the_engine_is_dense_logistic_regression():
    federation = posts()
    assert federation.words == 25
    sparse = FlatModel(MODELS["bag"](federation), federation.kind)
    plain = FlatModel(nn.Linear(25, federation.outputs), federation.kind)
    assert sparse.size == plain.size and (sparse.start == 0).all()
    x, y = federation.train.of(0)
    weight = torch.full((len(x),), 1 / len(x))
    w = torch.randn(sparse.size, generator=torch.Generator().manual_seed(1))
    ours = sparse.gradient(w, sparse.buffers, x, y, weight)[0]
    theirs = plain.gradient(w, plain.buffers, dense(x, 25), y, weight)[0]
    assert theirs.abs().max() > 1e-3
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_training_on_words_beats_saying_no_and_predicts_from_its_folder(tmp_path):
    federation = posts(tasks=12, rows=40, words=10, known=10, longest=3)
    method = PMTL(lr=20.0, local_steps=5, batch=None, pull=0.01)
    run = train(
        federation, method, model="bag", rounds=25, seed=0, baselines=False, personalise="none",
        out=tmp_path / "run",
    )  # fmt: skip
    assert run.measured.overall["f1"] > 0.7
    saved = SavedModels.load(tmp_path / "run")
    rows = word_ids([["w00", "w09"], ["w09"]], saved.federation.features, 7)
    tag = saved.federation.labels.index("t0")
    said = saved.predict(rows, ["u0", "u0"])
    assert said[0, tag] > 0.5 > said[1, tag]


def test_models_refuse_rows_they_cannot_read():
    words = posts()
    for name in ("linear", "mlp"):
        with pytest.raises(TacitError, match="use model 'bag'"):
            MODELS[name](words)
    numbers = from_arrays(
        np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) / 3, [0, 1] * 10
    )
    assert numbers.words is None
    with pytest.raises(TacitError, match="needs rows of word ids"):
        MODELS["bag"](numbers)
    for name in ("cnn", "celeba-cnn"):
        with pytest.raises(TacitError, match=f"'{name}' needs square images"):
            MODELS[name](numbers)


def test_a_row_as_long_as_the_vocabulary_is_still_words():
    texts = Texts(["a", "b"] * 6, [["x", "y"], ["z"]] * 6, [["p"], ["q"]] * 6)
    made = tag_federation(texts, Sizes(3, 2, length=3), SplitRule(), "made up")
    assert made.words == 3 and made.input_shape == (4,)


def test_celeba_cnn_is_the_network_of_leaf():
    network = celeba_cnn()
    convolutions = [layer for layer in network if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(3, 32)] + [(32, 32)] * 3
    assert network(torch.zeros(2, 3, 84, 84)).shape == (2, 1)
    sizes = [math.prod(p.shape) for layer in convolutions for p in layer.parameters()]
    assert sum(sizes) == 3 * 9 * 32 + 3 * 32 * 9 * 32 + 4 * 32
    assert network[-1].in_features == 32 * 5 * 5
    assert not list(network.buffers())  # nothing of a task's rows is kept beside the parameters


def test_celeba_cnn_learns_by_name():
    rng = np.random.default_rng(0)
    y = np.arange(48) % 2
    x = rng.random((48, 3, 16, 16)).astype(np.float32) * 0.2
    x[:, 0, :8] += y[:, None, None]  # brighter above: normalising an image does not hide it
    made = from_arrays(x, y, np.repeat([0, 1], 24), kind="binary")
    method = PMTL(lr=0.1, local_steps=4, batch=8)
    run = train(
        made, method, model="celeba-cnn", rounds=4, seed=0, baselines=False, personalise="none"
    )
    assert run.measured.overall["accuracy"] > 0.9
