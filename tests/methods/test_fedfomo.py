"""FedFomo: what a model is worth to its receiver, and who is sent again."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import FedFomo, TacitError
from tacit.engine import course
from tacit.exchange import Uploads, mixed, reveals
from tacit.methods.fedfomo import first_order


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """Tracing pays in long runs only; that it changes nothing is tested elsewhere."""
    monkeypatch.setattr(course, "TRACED_GRADIENTS", 0)


def worths(before, models, own_loss: float, losses: list[float]) -> list[float]:
    """Equation 5 with plain loops: what each model gains per distance; sum one, or all zero."""
    found = []
    for model, loss in zip(models, losses, strict=True):
        apart = math.sqrt(sum((a - b) ** 2 for a, b in zip(model, before, strict=True)))
        found.append(max((own_loss - loss) / apart, 0.0) if apart > 0 else 0.0)
    total = sum(found)
    return [value / total if total > 0 else 0.0 for value in found]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), m=st.integers(1, 6), same=st.booleans())
def test_weights_equal_plain_loops(seed, m, same):
    generator = np.random.default_rng(seed)
    before, models = generator.normal(size=3), generator.normal(size=(m, 3))
    losses, own = generator.random(m), np.float64(generator.random())
    if same:
        models[0] = before
    found = first_order(*map(torch.tensor, (before, losses, own, models)))
    assert found.tolist() == pytest.approx(worths(before, models, own, losses.tolist()), abs=1e-9)
    assert found.isfinite().all() and (found >= 0).all()
    worse = torch.from_numpy(losses >= own)
    assert (found[worse] == 0).all()
    useful = [k for k in range(m) if losses[k] < own and (models[k] != before).any()]
    assert float(found.sum()) == pytest.approx(1.0 if useful else 0.0)


def test_of_two_equally_good_models_the_nearer_one_counts_more():
    models = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    found = first_order(torch.zeros(2), torch.tensor([0.5, 0.5]), torch.tensor(1.0), models)
    assert found.tolist() == pytest.approx([0.75, 0.25])


def uploads(
    vectors: torch.Tensor,
    liked: torch.Tensor,
    holds: torch.Tensor | None = None,
    *,
    round: int = 0,
    rounds: int = 1,
    tasks: torch.Tensor | None = None,
) -> Uploads:
    """Models of two shared numbers and heads of one number each, a one, and what was liked."""
    n, size = vectors.shape
    heads = [slice(k, k + 1) for k in range(2, size)]
    held = torch.ones(n, len(heads), dtype=torch.bool) if holds is None else holds
    parts = [slice(0, 2), *heads, slice(size, size + 1 + liked.shape[1])]
    whole = torch.cat([vectors, torch.ones_like(vectors[:, :1]), liked.to(vectors.dtype)], dim=1)
    here = torch.arange(n) if tasks is None else tasks
    return Uploads(here, whole, torch.ones(n).long(), held, parts, round, rounds)


def sent(weights: torch.Tensor) -> list[list[int]]:
    """Whose shared layers each client is sent; a copy is one whole upload."""
    assert ((weights[:, 0] == 0) | (weights[:, 0] == 1)).all()
    assert (weights[:, 0].sum(dim=-1) == 1).all()
    return weights[:, 0].argmax(dim=-1).T.tolist()


@pytest.mark.parametrize("explore", [0.0, 0.5, 1.0])
def test_everybody_is_sent_different_others(explore):
    method = FedFomo(peers=3, explore=explore)
    vectors = torch.arange(28.0).reshape(7, 4)
    for round in range(4):
        given = uploads(vectors, torch.zeros(7, 3), round=round, rounds=4)
        answer = method.answer(given, method.memory(7))
        for i, others in enumerate(sent(answer.weights)):
            assert len(set(others)) == 3 and i not in others
            assert answer.memory["sent"][i].tolist() == others
        found = mixed(answer.weights, given, torch.arange(7))
        chosen = answer.memory["sent"].long()
        assert torch.equal(found[:, :, :4], vectors[chosen])
        assert reveals(answer.weights).sum(dim=1).tolist() == [3] * 7  # nothing hides them


def test_whom_a_client_is_sent_changes_with_the_round():
    method, vectors = FedFomo(peers=2), torch.zeros(8, 3)
    answers = [
        method.answer(uploads(vectors, torch.zeros(8, 2), round=r, rounds=3), method.memory(8))
        for r in range(3)
    ]
    seen = [sent(answer.weights) for answer in answers]
    assert seen[0] != seen[1] and seen[1] != seen[2]


def test_a_client_that_helped_is_sent_again():
    """The curator adds up what receivers thought of what they were sent, and sends the best.

    Chance finds the favourites in the first rounds; in the last it decides nothing any more.
    """
    method, vectors, n = FedFomo(peers=2, explore=1.0), torch.zeros(6, 3), 6
    memory, liking, before = method.memory(n), np.zeros((n, n)), None
    generator = np.random.default_rng(0)
    favourite = [(i + 2) % n for i in range(n)]
    thought = np.zeros((n, 2))
    for round in range(30):
        given = uploads(vectors, torch.from_numpy(thought), round=round, rounds=30)
        if before is not None:
            for i in range(n):
                for copy, j in enumerate(before[i]):
                    liking[i, j] += thought[i, copy]
        answer = method.answer(given, memory)
        memory = answer.memory
        assert np.allclose(memory["liking"].numpy(), liking, atol=1e-5)
        before = sent(answer.weights)
        thought = np.array(
            [[0.6 * (j == favourite[i]) + 0.01 * generator.random() for j in before[i]]
             for i in range(n)]
        )  # fmt: skip
    assert before is not None and all(favourite[i] == before[i][0] for i in range(n))


def test_chance_decides_less_and_less():
    """ε-greedy: with peers=4 and explore=½, two of four are drawn in the first round, none last."""
    method, n = FedFomo(peers=4, explore=0.5), 30
    liking = torch.zeros(n, n)
    best = [[(i + k) % n for k in range(1, 5)] for i in range(n)]
    for i, row in enumerate(best):
        liking[i, row] = 1.0
    for round, chance in ((0, 2), (5, 1), (10, 0)):
        given = uploads(torch.zeros(n, 3), torch.zeros(n, 4), round=round, rounds=11)
        memory = {"liking": liking, "sent": torch.full((n, 4), -1.0)}
        found = sent(method.answer(given, memory).weights)
        liked = [len(set(row) & set(wanted)) for row, wanted in zip(found, best, strict=True)]
        assert min(liked) >= 4 - chance
        assert np.mean(liked) < 4.2 - 0.8 * chance


def test_the_memory_is_about_tasks_not_about_places_in_a_cohort():
    """Tasks 5, 2 and 7 of nine are here; what they think goes to whom they were sent before."""
    method, tasks = FedFomo(peers=2, explore=0.0), torch.tensor([5, 2, 7])
    memory = method.memory(9)
    memory["sent"][5] = torch.tensor([2.0, 8.0])
    memory["sent"][7] = torch.tensor([0.0, 5.0])
    thought = torch.tensor([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
    answer = method.answer(uploads(torch.zeros(3, 3), thought, tasks=tasks), memory)
    wanted = torch.zeros(9, 9)
    wanted[5, 2], wanted[5, 8], wanted[7, 0] = 0.25, 0.75, 1.0
    assert torch.equal(answer.memory["liking"], wanted)
    assert answer.memory["sent"][5].tolist() == [2.0, 7.0]
    assert set(answer.memory["sent"][2].tolist()) == {5.0, 7.0}
    assert answer.memory["sent"][0].tolist() == [-1.0, -1.0]
    assert torch.equal(memory["liking"], torch.zeros(9, 9))  # the old one is not written to


def test_a_head_that_the_other_does_not_hold_is_the_receivers_own():
    vectors = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    holds = torch.tensor([[True, True], [True, False], [True, True]])
    method = FedFomo(peers=2, explore=0.0)
    given = uploads(vectors, torch.zeros(3, 2), holds)
    answer = method.answer(given, method.memory(3))
    found = mixed(answer.weights, given, torch.arange(3))
    for i in (0, 2):
        for copy, j in enumerate(answer.memory["sent"][i].long().tolist()):
            wanted = vectors[j].clone()
            if not holds[j, 1]:
                wanted[3] = vectors[i, 3]
            assert torch.equal(found[i, copy, :4], wanted)


def test_a_head_that_the_receiver_does_not_hold_is_its_own():
    """It would move what the client does not work on, and count in the distances."""
    vectors = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    holds = torch.tensor([[True, True], [True, False], [True, True]])
    method = FedFomo(peers=2)
    given = uploads(vectors, torch.zeros(3, 2), holds)
    found = mixed(method.answer(given, method.memory(3)).weights, given, torch.arange(3))
    assert torch.equal(found[1, :, 3], vectors[1, 3].expand(2))
    assert not (found[1, :, :3] == vectors[1, :3]).any()


def test_a_client_that_helped_a_little_goes_before_one_that_never_did():
    """Also where somebody else was helped a thousand times as much."""
    method, n = FedFomo(peers=1, explore=0.0), 12
    liking = torch.zeros(n, n)
    liking[0, 1] = 20.0
    for i in range(1, n):
        liking[i, (i + 3) % n] = 0.02
    memory = {"liking": liking, "sent": torch.full((n, 1), -1.0)}
    for round in range(5):
        given = uploads(torch.zeros(n, 3), torch.zeros(n, 1), round=round, rounds=9)
        found = sent(method.answer(given, memory).weights)
        assert found == [[1], *([(i + 3) % n] for i in range(1, n))]


def test_places_that_nobody_fills_are_sent_nothing():
    method, vectors = FedFomo(peers=4), torch.ones(3, 4)
    given = uploads(vectors, torch.zeros(3, 4))
    answer = method.answer(given, method.memory(3))
    assert (answer.weights[2:] == 0).all() and answer.weights.shape[0] == 4
    assert (answer.memory["sent"][:, 2:] == -1).all() and (answer.memory["sent"][:, :2] >= 0).all()
    flags = mixed(answer.weights, given, torch.arange(3))[:, :, 4]
    assert flags.tolist() == [[1.0, 1.0, 0.0, 0.0]] * 3


def test_an_empty_place_does_not_take_away_what_was_thought_of_the_first_task():
    """Clients 1 and 2 were sent task 0 and had a place left that nobody filled."""
    method = FedFomo(peers=3)
    memory = method.memory(3)
    memory["sent"] = torch.tensor([[1.0, 2.0, -1.0], [0.0, 2.0, -1.0], [1.0, 0.0, -1.0]])
    thought = torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.4, 0.0], [0.3, 0.7, 0.0]])
    answer = method.answer(uploads(torch.zeros(3, 3), thought), memory)
    wanted = torch.tensor([[0.0, 0.5, 0.5], [0.6, 0.0, 0.4], [0.7, 0.3, 0.0]])
    assert torch.equal(answer.memory["liking"], wanted)


def quick(federation, method, **given):
    plain = {"seed": 0, "baselines": False, "personalise": "none", "model": "linear"}
    return tacit.train(federation, method, **(plain | given))


def mse(rows, w: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean squared error and its gradient, row by row."""
    x, y = (part.double().numpy() for part in rows)
    loss, slope = 0.0, np.zeros_like(w)
    for row, target in zip(x, y, strict=True):
        row = np.append(row, 1.0)
        error = row @ w - target
        loss += error**2 / len(x)
        slope += 2 * error * row / len(x)
    return loss, slope


def plain_rounds(federation, method: FedFomo, rounds: int) -> np.ndarray:
    """All of FedFomo where everybody is sent everybody else's model."""
    n = len(federation)
    own = np.zeros((n, 5))
    for _ in range(rounds):
        trained = []
        for k in range(n):
            w = own[k].copy()
            for _ in range(method.local_steps):
                w = w - method.lr * mse(federation.train.of(k), w)[1]
            trained.append(w)
        after = []
        for k in range(n):
            rows = federation.validation.of(k)
            models = [trained[j] for j in range(n) if j != k] + [trained[k]]
            losses = [mse(rows, w)[0] for w in models]
            weights = worths(own[k], models, mse(rows, own[k])[0], losses)
            gains = [weight * (w - own[k]) for weight, w in zip(weights, models, strict=True)]
            after.append(own[k] + sum(gains))
        own = np.array(after)
    return own


@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_of_three_clients_equal_plain_loops(make_federation, rounds):
    federation = make_federation(tasks=3)
    method = FedFomo(peers=2, lr=0.05, local_steps=2, batch=None)
    run = quick(federation, method, rounds=rounds)
    found = run.simulation.personal(torch.arange(3))[0]
    assert np.allclose(found.numpy(), plain_rounds(federation, method, rounds), atol=1e-6)


def test_a_client_never_ends_a_round_with_less_than_it_had(make_federation):
    """Losses are convex here, so a mixture of better models is better on the validation rows."""
    federation = make_federation(tasks=6)
    before = None
    for rounds in (1, 2, 4):
        run = quick(federation, FedFomo(peers=3, lr=0.05, batch=None), rounds=rounds)
        now = run.simulation.measure("validation").per_task["loss"]
        assert before is None or (now <= before + 1e-6).all()
        before = now


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"peers": 0}, "peers must be at least 1"),
        ({"explore": -0.1}, "explore must be from 0 to 1"),
        ({"explore": 1.5}, "explore must be from 0 to 1"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(TacitError, match=words):
        FedFomo(**settings)


def test_more_peers_than_there_are_clients_change_nothing(make_federation):
    """Places that nobody fills must not count a client's own training again and again."""
    federation = make_federation(tasks=3)
    method = FedFomo(peers=5, lr=0.05, local_steps=2, batch=None)
    found = quick(federation, method, rounds=3).simulation.personal(torch.arange(3))[0]
    assert np.allclose(found.numpy(), plain_rounds(federation, method, 3), atol=1e-6)


def test_a_candidate_without_a_loss_counts_nothing():
    """A model whose outputs overflow on the receiver's rows is worse than any other."""
    models = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    for bad in (math.nan, math.inf):
        found = first_order(torch.zeros(2), torch.tensor([bad, 0.5]), torch.tensor(1.0), models)
        assert found.tolist() == [0.0, 1.0]
    for own in (math.nan, math.inf):
        found = first_order(torch.zeros(2), torch.tensor([0.5, 0.5]), torch.tensor(own), models)
        assert found.isfinite().all() and float(found.sum()) == pytest.approx(1.0)
