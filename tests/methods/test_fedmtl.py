"""FedMTL against its equations, written once more with plain loops (`tests.exchange.literal`)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tacit
from tacit import FedMTL, TacitError
from tacit.engine import course
from tacit.exchange import mixed, similarity
from tacit.methods.fedmtl import VARIANTS
from tests.exchange import literal
from tests.exchange.federations import headed

clients_drawn = {
    "seed": st.integers(0, 100_000),
    "n": st.integers(1, 6),
    "lengths": st.lists(st.integers(1, 4), min_size=1, max_size=5),
    "spread": st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    "zeros": st.sampled_from([0.0, 0.3]),
}


def compare(method: FedMTL, name: str, clients, lengths, threshold: float, *, when=(0, 1)) -> None:
    """Every number of every answer, and that heads which a client does not hold stay."""
    uploads = literal.uploads_of(clients, lengths, round=when[0], rounds=when[1], rest=2)
    answer = method.answer(uploads, {})
    assert answer.memory == {} and answer.similarity is not None
    assert (answer.similarity.diagonal() == 1).all()
    assert torch.allclose(answer.weights.sum(dim=-1), torch.ones(()).double(), atol=1e-12)
    found = mixed(answer.weights, uploads, torch.arange(len(clients)))[:, 0]
    assert found.isfinite().all()
    wanted = literal.personal_models(clients, name, threshold, method.min_peers)
    for i, personal in enumerate(wanted):
        parts = [found[i, part].tolist() for part in uploads.parts]
        assert parts[0] == pytest.approx(personal["shared"], abs=1e-6)
        for k, part in enumerate(parts[1:-1]):
            layer = personal["heads"].get(f"T{k}", [7.0] * lengths[k])
            assert part == pytest.approx(layer, abs=1e-6)
        assert parts[-1] == pytest.approx([0.5, 0.5])


def clear(clients, threshold: float) -> bool:
    """Whether rounding cannot decide on which side of the threshold a pair is."""
    apart = [abs(s - threshold) for row in literal.similarities(clients) for s in row]
    return all(d > 1e-5 or d < 1e-9 for d in apart)


@settings(max_examples=400, deadline=None)
@given(
    threshold=st.sampled_from([0.0, 0.5, 0.75, 0.9, 1.0]),
    peers=st.integers(1, 3),
    **clients_drawn,
)
def test_answers_equal_the_equations(seed, n, lengths, spread, zeros, threshold, peers):
    clients = literal.random_clients(seed, n, lengths, spread, zeros)
    assume(clear(clients, threshold))
    method = FedMTL(threshold=threshold, last_threshold=threshold, min_peers=peers)
    compare(method, "FedMTL", clients, lengths, threshold)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=40, deadline=None)
@given(peers=st.integers(1, 2), **clients_drawn)
def test_variants_equal_the_words_of_the_paper(name, seed, n, lengths, spread, zeros, peers):
    clients = literal.random_clients(seed, n, lengths, spread, zeros)
    threshold = {"Z": 0.8, "T": 0.6}.get(name, 0.0)
    assume(clear(clients, threshold))
    fixed = {"threshold": 0.6, "last_threshold": 0.6} if name == "T" else {}
    method = FedMTL(**(VARIANTS[name] | fixed), min_peers=peers)
    compare(method, name, clients, lengths, threshold)


@pytest.mark.parametrize("name", ["FedMTL", *VARIANTS])
def test_a_lone_client_keeps_its_model(name):
    clients = literal.random_clients(1, 1, [3, 2], 0.5)
    for peers in (1, 2):
        method = FedMTL(**VARIANTS.get(name, {}), min_peers=peers)
        uploads = literal.uploads_of(clients, [3, 2])
        found = mixed(method.answer(uploads, {}).weights, uploads, torch.arange(1))
        assert torch.equal(found[:, 0], uploads.vectors)


def test_equal_clients_pass_a_threshold_of_one_and_turned_ones_do_not():
    layer = np.random.default_rng(0).normal(size=7)
    turned = layer + 0.2 * np.random.default_rng(1).normal(size=7)
    clients = [
        {"shared": [float(k), 0.0, 0.0], "heads": {"T0": (scale * values).tolist()}, "size": 1}
        for k, (scale, values) in enumerate([(1, layer), (3, layer), (0.1, layer), (1, turned)])
    ]
    method = FedMTL(threshold=1.0, last_threshold=1.0)
    for dtype in (torch.float32, torch.float64):
        uploads = literal.uploads_of(clients, [7], dtype=dtype)
        found = mixed(method.answer(uploads, {}).weights, uploads, torch.arange(4))[:, 0, 0]
        assert found.tolist() == pytest.approx([1.0, 1.0, 1.0, 3.0], abs=1e-5)


def test_sizes_weigh():
    """Three alike clients with 1, 2 and 7 rows: the mean of 0, 1, 2 by rows is 1.6."""
    clients = [
        {"shared": [float(k)] * 3, "heads": {"T0": [1.0, float(k)]}, "size": size}
        for k, size in enumerate([1, 2, 7])
    ]
    uploads = literal.uploads_of(clients, [2])
    method = FedMTL(**VARIANTS["G"])
    found = mixed(method.answer(uploads, {}).weights, uploads, torch.arange(3))[:, 0]
    assert torch.allclose(found[:, :3], torch.full((3, 3), 1.6).double())
    assert torch.allclose(found[:, 3:], torch.tensor([1.0, 1.6]).double())


def test_the_threshold_rises_evenly_from_the_first_round_to_the_last():
    """In a table of all cosines from 0 to 1, whoever passes tells where the threshold is."""
    angles = np.linspace(0, math.pi / 2, 400)
    clients = [
        {"shared": [0.0] * 3, "heads": {"T0": [math.cos(a), math.sin(a)]}, "size": 1}
        for a in angles
    ]
    method, rounds = FedMTL(threshold=0.3, last_threshold=0.7), 5
    for round, expected in enumerate([0.3, 0.4, 0.5, 0.6, 0.7]):
        uploads = literal.uploads_of(clients, [2], round=round, rounds=rounds)
        weights = method.answer(uploads, {}).weights[0, 0, 0]
        passed = similarity(uploads.heads, uploads.holds)[0][weights > 0]
        assert float(passed.min()) == pytest.approx(expected, abs=4e-3)
        assert float(passed.min()) >= expected - 1e-6
    only = literal.uploads_of(clients, [2], round=0, rounds=1)
    weights = method.answer(only, {}).weights[0, 0, 0]
    passed = similarity(only.heads, only.holds)[0][weights > 0]
    assert float(passed.min()) == pytest.approx(0.3, abs=4e-3)


@settings(max_examples=40, deadline=None)
@given(round=st.integers(0, 4), **clients_drawn)
def test_answers_equal_the_equations_in_every_round(seed, n, lengths, spread, zeros, round):
    clients = literal.random_clients(seed, n, lengths, spread, zeros)
    threshold = 0.5 + round / 4 * 0.4
    assume(clear(clients, threshold))
    method = FedMTL(threshold=0.5, last_threshold=0.9, min_peers=1)
    compare(method, "FedMTL", clients, lengths, threshold, when=(round, 5))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"threshold": -0.1}, "threshold must be"),
        ({"threshold": 0.9, "last_threshold": 0.8}, "last_threshold must be from `threshold`"),
        ({"last_threshold": 1.1}, "last_threshold must be"),
        ({"shared": "some"}, "shared must be one of similar, everyone, overlap, equal, own"),
        ({"heads": "some"}, "heads must be one of"),
        ({"statistics": "none"}, "statistics must be own or mixed"),
        ({"min_peers": 0}, "min_peers must be at least 1"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(TacitError, match=words):
        FedMTL(**settings)


def quick(federation, method, **settings):
    plain = {"rounds": 3, "seed": 0, "baselines": False, "personalise": "none", "model": "mlp"}
    return tacit.train(federation, method, **(plain | settings))


def personal(run) -> torch.Tensor:
    return run.simulation.personal(torch.arange(len(run.federation)))[0]


@pytest.fixture(scope="module")
def federation():
    return headed()


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """Tracing pays in long runs only; that it changes nothing is tested elsewhere."""
    monkeypatch.setattr(course, "TRACED_GRADIENTS", 0)


@pytest.mark.parametrize("name", ["FedMTL", "G", "J"])
def test_two_rounds_of_training_equal_autograd_and_the_equations(federation, name):
    """The whole way: SGD with torch's autograd, then the paper's sums over dictionaries."""
    settings = {"min_peers": 1, "threshold": 0.5, "last_threshold": 0.9, **VARIANTS.get(name, {})}
    method = FedMTL(lr=0.2, local_steps=3, batch=None, **settings)
    run = quick(federation, method, rounds=2)
    model, heads = run.simulation.model, federation.heads
    module = model.module(model.start, model.buffers).train()
    states = [model.start.clone() for _ in range(len(federation))]
    for round in range(2):
        clients = []
        for k, state in enumerate(states):
            torch.nn.utils.vector_to_parameters(state.clone(), module.parameters())
            x, y = federation.train.of(k)
            known = ~y.isnan()
            for _ in range(3):
                module.zero_grad()
                out = module(x)[known]
                torch.nn.functional.binary_cross_entropy_with_logits(out, y[known]).backward()
                with torch.no_grad():
                    for p in module.parameters():
                        p -= 0.2 * p.grad
            states[k] = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
            layers = [states[k][part].tolist() for part in model.parts]
            held = [f"T{h}" for h, name in enumerate(heads.names) if name in heads.of(k)]
            named = {f"T{h}": layer for h, layer in enumerate(layers[1:])}
            clients.append(
                {"shared": layers[0], "heads": {t: named[t] for t in held}, "size": len(x)}
            )
        threshold = [0.5, 0.9][round]
        assert clear(clients, threshold)
        for k, answer in enumerate(literal.personal_models(clients, name, threshold)):
            after = states[k].clone()
            after[model.parts[0]] = torch.tensor(answer["shared"])
            for task, layer in answer["heads"].items():
                after[model.parts[1 + int(task[1:])]] = torch.tensor(layer)
            states[k] = after
    assert torch.allclose(personal(run), torch.stack(states), atol=1e-5)


def test_heads_that_a_task_does_not_hold_stay_as_everybody_began(federation):
    for method in (FedMTL(threshold=0.0, min_peers=1), FedMTL(**VARIANTS["G"])):
        run = quick(federation, method)
        model, found = run.simulation.model, personal(run)
        for k in range(len(federation)):
            for head, part in enumerate(model.parts[1:]):
                same = torch.equal(found[k, part], model.start[part])
                assert same != bool(federation.heads.holds[k, head])


def test_identical_clients_stay_what_they_train_alone():
    """Mixing equal models is the identity: FedMTL with everyone is one task's own descent."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(12, 4)).astype(np.float32)
    y = x.sum(axis=1) + generator.normal(size=12)
    tasks = 4
    federation = tacit.data.from_arrays(
        np.tile(x, (tasks, 1)), np.tile(y, tasks), np.repeat(np.arange(tasks), 12),
        scale="none", target_scale="none", validation=0.0, test=0.0,
    )  # fmt: skip
    settings = {"lr": 0.1, "local_steps": 2, "batch": None}
    alone = quick(federation, tacit.Local(**settings), model="linear")
    for method in (
        FedMTL(**settings),
        FedMTL(**settings, **VARIANTS["G"]),
        tacit.FedAMP(**settings, pull=0.0),
    ):
        found = personal(quick(federation, method, model="linear"))
        assert torch.allclose(found, personal(alone), atol=1e-6)


def test_identical_clients_make_federated_averaging_one_clients_descent():
    generator = np.random.default_rng(4)
    x = generator.normal(size=(10, 4)).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(np.float32)
    federation = tacit.data.from_arrays(
        np.tile(x, (3, 1)), np.tile(y, 3), np.repeat(["a", "b", "c"], 10),
        kind="binary", scale="none", validation=0.0, test=0.0,
    )  # fmt: skip
    run = quick(federation, tacit.FedAvg(lr=0.3, local_steps=2, batch=None), model="linear")
    weight, bias = torch.zeros(4, requires_grad=True), torch.zeros((), requires_grad=True)
    for _ in range(3 * 2):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            torch.from_numpy(x) @ weight + bias, torch.from_numpy(y)
        )
        slopes = torch.autograd.grad(loss, [weight, bias])
        with torch.no_grad():
            weight -= 0.3 * slopes[0]
            bias -= 0.3 * slopes[1]
    expected = torch.cat([weight, bias.reshape(1)]).detach()
    assert torch.allclose(run.simulation.board["model"], expected, atol=1e-6)


def test_statistics_stay_with_the_client_or_are_mixed(make_federation):
    """Batch statistics after one round: each its own, or the mean by rows of what was uploaded."""
    federation = make_federation(tasks=4)
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)
    )
    settings = {"model": module, "rounds": 1}
    everyone = {**VARIANTS["G"], "batch": None}

    def buffers(statistics: str):
        run = quick(federation, FedMTL(statistics=statistics, **everyone), **settings)
        return run.simulation.personal(torch.arange(4))[1]

    own, together = buffers("own"), buffers("mixed")
    sizes = federation.train.counts.float()
    mean = (own * sizes.unsqueeze(1)).sum(dim=0) / sizes.sum()
    assert len({tuple(row.tolist()) for row in own}) == 4
    assert torch.allclose(together, mean.expand(4, -1), atol=1e-5)


def test_batches_are_those_of_training_alone(federation):
    """A client that mixes with nobody is a client alone, batch by batch."""
    settings = {"lr": 0.1, "local_steps": 2, "batch": 4}
    kept = FedMTL(**settings, shared="own", heads="own")
    assert torch.allclose(
        personal(quick(federation, kept)), personal(quick(federation, tacit.Local(**settings)))
    )
