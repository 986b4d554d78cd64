"""A task's own model outside of tacit: exported, in ONNX Runtime, with a frozen body."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental import proxy_tensor

import tacit
from tacit import PMTL, TacitError
from tacit.data.tabular import as_table
from tacit.experiment.personal import PersonalModel
from tacit.local.trees import Forests
from tacit.models import MODELS
from tests.conftest import described

READ = {"multiclass": lambda out: out.softmax(dim=1)}


@pytest.fixture(autouse=True)
def described_tensors(monkeypatch):
    """Export reads what the other tests leave out."""
    monkeypatch.setattr(proxy_tensor, "extract_val", described)


def gappy(kind: str):
    """Raw rows far from zero; tables have gaps."""
    random = np.random.default_rng(0)
    x = (1e3 + 50 * random.normal(size=(160, 3))).astype(np.float32)
    score = (x[:, 0] - 1e3) / 50 + np.sin((x[:, 1] - 1e3) / 20)
    y = {
        "regression": 200 + 30 * score,
        "multiclass": np.digitize(score, [-0.5, 0.5]),
    }[kind]
    x[::7, 2] = np.nan
    table = {f"x{k}": x[:, k] for k in range(3)} | {"y": y, "site": np.repeat(["a", "b"], 80)}
    federation = tacit.data.from_table(table, task="site", target="y", kind=kind)
    rows, _ = federation.schema.matrix(as_table(table))
    assert np.isnan(rows).any()
    return federation, rows[80:].astype(np.float32)


@pytest.mark.slow
def test_an_exported_model_says_what_predict_says():
    federation, x = gappy("regression")
    run = tacit.train(federation, seed=0, baselines=False, rounds=5, personalise="none")
    model, wanted = run.personal("b"), run.predict(x, ["b"] * 80)
    program = model.exported().module()
    for rows in (x, x[:1], np.tile(x, (60, 1))):  # one row, and more than go through at once
        many = np.tile(wanted, len(rows) // 80 or 1)[: len(rows)]
        for said in (model, program):
            assert np.allclose(said(torch.from_numpy(rows)).detach(), many, rtol=1e-5)


def test_steps_down_a_tree_are_as_many_as_its_depth():
    """A tree with a leaf at depth 1 and two at depth 2: all rows get where walking gets them."""
    made = Forests(
        1,
        torch.tensor([0]),
        torch.tensor([0, -1, 1, -1, -1]),
        torch.zeros(5).double(),
        torch.tensor([1, 0, 3, 0, 0]),
        torch.arange(5.0).unsqueeze(1),
    )
    x = torch.tensor([[-1.0, 0.0], [1.0, -1.0], [1.0, 1.0]])
    task = torch.zeros(3, dtype=torch.int64)
    assert made.depth == 2
    assert torch.equal(made.each(x, task, made.depth), made.each(x, task))
    assert made.each(x, task).flatten().tolist() == [1.0, 3.0, 4.0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "multiclass"])
def test_onnx_runtime_says_what_predict_says(kind, tmp_path):
    """With everything that a task combines: scaling, gaps, linear models, trees."""
    import onnxruntime

    federation, x = gappy(kind)
    run = tacit.train(federation, seed=0, baselines=False, out=tmp_path / "run")
    model = tacit.load(tmp_path / "run").personal("b")
    assert model.combined is not None and len(model.combined.forests)
    path = model.to_onnx(tmp_path / "deep" / "b.onnx")
    session = onnxruntime.InferenceSession(str(path))
    wanted = run.predict(x, ["b"] * 80)
    for rows in (x, x[:1]):
        out = torch.from_numpy(session.run(None, {"rows": rows})[0])
        said = READ.get(kind, lambda out: out)(out)
        assert np.allclose(said, wanted[: len(rows)], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "additive", "bag", "cnn", "lenet"])
def test_models_by_name_can_be_exported(name):
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 3))
    if name in ("cnn", "lenet"):
        x = random.random((40, 1, 28, 28))
    elif name == "bag":
        x = random.integers(0, 9, (40, 5))
    x, y, names = x.astype(np.float32), random.integers(0, 2, 40), np.arange(40) % 4
    federation = tacit.data.from_arrays(x, y, names, scale="none", kind="binary")
    if name == "bag":
        federation = dataclasses.replace(federation, features=tuple("abcdefgh"))
    model = PersonalModel(MODELS[name](federation), federation, 0)
    rows = torch.from_numpy(x[:7])
    assert torch.allclose(model.exported().module()(rows), model(rows), atol=1e-5)


class Specialised(nn.Module):
    """Its shapes are those of the rows that it saw first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x).reshape(len(x))


def test_what_cannot_be_exported_is_refused_in_a_sentence(make_federation, tmp_path, monkeypatch):
    run = tacit.train(
        make_federation(),
        PMTL(batch=None),
        model=Specialised(),
        rounds=1,
        seed=0,
        baselines=False,
        personalise="none",
    )
    with pytest.raises(TacitError, match=r"Specialised cannot be exported .* run\.predict"):
        run.personal("task-0").exported()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TacitError, match=r"pip install 'tacit\[onnx\]'"):
        run.personal("task-0").to_onnx(tmp_path / "m.onnx")


class Adapter(nn.Module):
    """A frozen linear layer and a change of it of rank r, as in LoRA (Hu et al., ICLR 2022)."""

    def __init__(self, body: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.body = body.requires_grad_(False)
        self.down = nn.Parameter(0.3 * torch.randn(rank, body.in_features))
        self.up = nn.Parameter(torch.zeros(body.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x @ self.down.T @ self.up.T


class Attention(nn.Module):
    """One block of a transformer on four tokens, as pretrained ones are made."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Linear(2, width).requires_grad_(False)
        self.places = nn.Parameter(torch.randn(4, width), requires_grad=False)
        self.register_buffer("ids", torch.arange(4))
        self.norm = nn.LayerNorm(width).requires_grad_(False)
        self.qkv, self.out = Adapter(nn.Linear(width, 3 * width)), Adapter(nn.Linear(width, width))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.embed(x.unflatten(1, (4, 2))) + self.places[self.ids]
        q, k, v = (
            s.unflatten(-1, (2, -1)).transpose(1, 2)
            for s in self.qkv(self.norm(seen)).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        seen = seen + self.out(mixed.transpose(1, 2).flatten(2))
        return self.head(seen.mean(dim=1))


def adapted(federation, **settings):
    torch.manual_seed(0)
    module = Attention()
    usual = {"seed": 0, "baselines": False, "personalise": "none", "rounds": 6}
    method = PMTL(lr=0.1, batch=None, clip=0.5)
    return module, tacit.train(federation, method, model=module, **usual | settings)


def test_only_adapters_travel_and_the_frozen_body_stays(make_federation, tmp_path):
    federation = make_federation(features=8)
    privacy = tacit.Privacy(noise=1.0)
    module, run = adapted(federation, privacy=privacy, out=tmp_path / "run")
    small = sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert small == 2 * (8 + 24) + 2 * (8 + 8) + 9
    # All that is on the billboard is as long as what is learned, and so is what was noised.
    assert {v.numel() for v in run.simulation.board.tensors.values()} == {small}
    one, two = (run.personal(name).inner for name in ("task-0", "task-1"))
    for name, value in module.named_parameters():
        mine, other = one.get_parameter(name), two.get_parameter(name)
        assert torch.equal(mine, value) == (not value.requires_grad), name
        assert torch.equal(mine, other) == (not value.requires_grad), name
    assert any("frozen parameters are taken to be public" in a for a in run.guarantee.assumptions)
    again = tacit.load(tmp_path / "run", model=module)
    x = federation.test.of(0)[0].numpy()
    assert np.allclose(again.predict(x, ["task-0"] * len(x)), run.predict(x, ["task-0"] * len(x)))
    rows = torch.from_numpy(x)
    program = again.personal("task-0").exported().module()
    assert torch.allclose(program(rows), run.personal("task-0")(rows), atol=1e-5)


def test_another_body_than_that_of_the_run_is_refused(make_federation, tmp_path):
    federation = make_federation(features=8)
    adapted(federation, rounds=1, out=tmp_path / "run")
    with pytest.raises(TacitError, match="frozen parameters are not those of the run"):
        tacit.load(tmp_path / "run", model=Attention()).personal("task-0")
    with pytest.raises(TacitError, match="a model of its own"):
        tacit.load(tmp_path / "run").personal("task-0")
