"""Models with heads: names and order of parameters, equal starts, the models by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tacit.data.federation import Federation, Kind, Rows
from tacit.data.heads import Heads
from tacit.errors import TacitError
from tacit.local.flat import FlatModel, build
from tacit.models import MODELS, MultiHead, with_heads
from tests.models.test_models import posts

NAMES = ("smile.s/ & co", "hair", "")
OUTPUTS = (5, 2, 5)
IMAGES, PIXELS = (3, 32, 32), (3, 32, 64)


def federation(
    shape: tuple[int, ...],
    kind: Kind = "multilabel",
    outputs: tuple[int, ...] | None = OUTPUTS,
    alone: int = 12,
) -> Federation:
    """Two tasks of two blank rows with these heads, or without any and `alone` outputs."""
    x, offsets = torch.zeros(4, *shape), torch.tensor([0, 2, 4])
    many = alone if outputs is None else sum(outputs)
    if kind == "segmentation":
        y = torch.zeros(4, len(outputs or (1,)), *shape[1:], dtype=torch.int8)
    elif kind == "multiclass":
        y = torch.zeros(4, dtype=torch.int64)
    else:
        y = torch.zeros(4, many) if kind == "multilabel" else torch.zeros(4)
    heads = None
    if outputs is not None:
        heads = Heads(NAMES[: len(outputs)], outputs, torch.ones(2, len(outputs)).bool())
    rows = Rows(x, y, offsets)
    return Federation(["a", "b"], kind, many, rows, rows, rows, heads=heads)


def names_of(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters()]


def test_outputs_of_heads_lie_side_by_side_in_their_order():
    body, heads = nn.Linear(4, 3), {name: nn.Linear(3, n) for name, n in zip(NAMES, OUTPUTS)}
    model = MultiHead(body, heads)
    assert model.names == NAMES
    x = torch.randn(6, 4)
    expected = torch.cat([layer(body(x)) for layer in heads.values()], dim=1)
    assert torch.equal(model(x), expected)
    images = MultiHead(nn.Identity(), {"a": nn.Conv2d(3, 2, 1), "b": nn.Conv2d(3, 4, 1)})
    assert images(torch.zeros(5, 3, 7, 8)).shape == (5, 6, 7, 8)


def test_the_shared_parameters_lead_and_heads_follow_by_number():
    heads = {name: nn.Linear(3, n) for name, n in zip(NAMES, OUTPUTS)}
    flat = FlatModel(MultiHead(nn.Linear(4, 3), heads), "multilabel")
    assert flat.layers == [("body", 0), ("heads.0", 15), ("heads.1", 35), ("heads.2", 43)]
    assert flat.size == 15 + 20 + 8 + 20


def test_what_cannot_be_a_model_with_heads_is_refused():
    layer = nn.Linear(2, 2)
    with pytest.raises(TacitError, match="at least one layer"):
        MultiHead(nn.Identity(), {})
    with pytest.raises(TacitError, match="head 'hair' is 5, but a torch"):
        MultiHead(nn.Identity(), {"smile": layer, "hair": 5})  # type: ignore[dict-item]
    with pytest.raises(TacitError, match="the body is None"):
        MultiHead(None, {"smile": layer})  # type: ignore[arg-type]
    with pytest.raises(TacitError, match="one and the same layer"):
        MultiHead(nn.Identity(), {"smile": layer, "hair": layer})


def test_heads_of_one_size_start_from_the_same_values_but_share_none():
    made = with_heads(nn.Identity(), lambda n: nn.Linear(7, n), federation((7,)))
    first, _, third = made.heads
    assert [head.out_features for head in made.heads] == [5, 2, 5]
    assert torch.equal(first.weight, third.weight) and torch.equal(first.bias, third.bias)
    assert first.weight.abs().max() > 0.01
    cosine = torch.cosine_similarity(first.weight.flatten(), third.weight.flatten(), dim=0)
    assert cosine > 1 - 1e-6
    with torch.no_grad():
        first.weight.zero_()
    assert third.weight.abs().max() > 0.01


def test_without_heads_there_is_one_for_all():
    made = with_heads(
        nn.Identity(), lambda n: nn.Linear(7, n), federation((7,), "multiclass", None, alone=4)
    )
    assert made.names == ("all",) and made(torch.zeros(2, 7)).shape == (2, 4)


SHAPES = {
    "linear": (6,),
    "linear-no-intercept": (6,),
    "mlp": (6,),
    "cnn": IMAGES,
    "celeba-cnn": IMAGES,
    "lenet": IMAGES,
    "mobilenet": IMAGES,
}


@pytest.mark.parametrize("name", SHAPES)
def test_models_by_name_get_the_federations_heads(name):
    given = federation(SHAPES[name])
    flat = build(MODELS[name], given, seed=0)
    module = flat.module(flat.start, flat.buffers)
    assert isinstance(module, MultiHead)
    assert module.names == NAMES
    assert [next(head.parameters()).shape[0] for head in module.heads] == list(OUTPUTS)
    assert torch.equal(module.heads[0].weight, module.heads[2].weight)
    # Runs for several tasks at once, with the shapes that the federation wants.
    flat.check(given.train.x[:2], given.train.y[:2], given.outputs)
    # The same network as without heads, up to its last layer.
    plain = [p.shape for p in MODELS[name](federation(SHAPES[name], outputs=None)).parameters()]
    shared = [p.shape for p in module.body.parameters()]
    assert plain[: len(shared)] == shared
    assert len(plain) - len(shared) == len(list(module.heads[0].parameters()))


def test_a_bag_of_words_has_heads_too():
    words = posts(tags=4)
    tags = words.labels
    groups = {"a": tags[:2], "b": tags[2:4]}
    headed = words.with_heads(groups, {name: ["a"] for name in words.names})
    model = MODELS["bag"](headed)
    assert isinstance(model, MultiHead) and names_of(model.body) == []
    assert all((parameter == 0).all() for parameter in model.parameters())
    x, _ = headed.train.of(0)
    with torch.no_grad():
        model.heads[1].weight.normal_()
        plain = nn.Linear(25, 2)
        plain.load_state_dict(model.heads[1].state_dict())
        torch.testing.assert_close(model(x)[:, 2:], plain(model.body(x)))
        assert (model(x)[:, :2] == 0).all() and model(x)[:, 2:].abs().max() > 0


def test_linear_heads_start_at_zero_on_rows_and_on_images():
    for shape in ((6,), IMAGES):
        for name in ("linear", "linear-no-intercept"):
            model = MODELS[name](federation(shape))
            assert names_of(model.body) == []
            assert all((parameter == 0).all() for parameter in model.parameters())
            assert (len(names_of(model)) == 6) == (name == "linear")
            assert model(torch.ones(2, *shape)).shape == (2, 12)


def test_without_heads_models_are_named_as_ever():
    """Saved models are read by these names."""
    rows, images = ((shape, "multiclass", None) for shape in ((6,), IMAGES))
    convolutions = [f"{k}.{part}" for k in (0, 3, 7) for part in ("weight", "bias")]
    norms = [f"{k}.{part}" for k in (0, 1, 4, 5, 8, 9, 12, 13, 17) for part in ("weight", "bias")]
    assert names_of(MODELS["linear"](federation(*rows))) == ["weight", "bias"]
    assert names_of(MODELS["linear"](federation(*images))) == ["1.weight", "1.bias"]
    assert names_of(MODELS["linear-no-intercept"](federation(*rows))) == ["weight"]
    hidden = ["1.weight", "1.bias", "3.weight", "3.bias"]
    assert names_of(MODELS["mlp"](federation(*rows))) == hidden
    assert names_of(MODELS["cnn"](federation(*images))) == convolutions
    assert names_of(MODELS["celeba-cnn"](federation(*images))) == norms
    assert names_of(MODELS["bag"](posts())) == ["1.weight", "1.bias"]


def test_segnet_has_a_head_for_each_question_about_pixels():
    given = federation(PIXELS, "segmentation", (3, 3))
    model = MODELS["segnet"](given)
    assert model.names == NAMES[:2]
    sizes = [sum(p.numel() for p in part.parameters()) for part in (model.body, *model.heads)]
    assert sizes == [24_943_296, 37_123, 37_123]
    for one, other in zip(model.heads[0].parameters(), model.heads[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_models_refuse_targets_they_cannot_predict():
    pixels = federation((3, 32, 32), "segmentation", (3, 3))
    for name in [*SHAPES, "bag"]:
        with pytest.raises(TacitError, match=f"model '{name}' predicts labels.*use model 'segnet'"):
            MODELS[name](pixels)
    with pytest.raises(TacitError, match="classes of pixels, but the target is multilabel"):
        MODELS["segnet"](federation(IMAGES))
    with pytest.raises(TacitError, match="sides divisible by 32"):
        MODELS["segnet"](federation((3, 40, 32), "segmentation", (3, 3)))
    for name in ("lenet", "mobilenet"):
        with pytest.raises(TacitError, match=f"'{name}' needs .*images of at least 16 x 16"):
            MODELS[name](federation((6,)))
    with pytest.raises(TacitError, match="square"):
        MODELS["lenet"](federation(PIXELS))
    assert MODELS["mobilenet"](federation(PIXELS)).eval()(torch.zeros(1, *PIXELS)).shape == (1, 12)


def test_heads_learn_what_only_their_holders_know():
    """Two tasks with different heads, one body: both heads come to predict."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(2, 200, 6))).float()
    y = torch.stack([x[..., 0] > 0, x[..., 1] > 0], dim=2).float()
    y[0, :, 1], y[1, :, 0] = torch.nan, torch.nan
    flat = build(MODELS["mlp"], federation((6,), outputs=(1, 1)), seed=0)
    w = flat.start
    weight = torch.full((200,), 1 / 200)
    for _ in range(150):
        for task in range(2):
            w = w - 0.5 * flat.gradient(w, flat.buffers, x[task], y[task], weight)[0]
    new = torch.from_numpy(rng.normal(size=(500, 6))).float()
    said = flat.predict(w, flat.buffers, new) > 0
    assert ((said == (new[:, :2] > 0)).float().mean(dim=0) > 0.9).all()
