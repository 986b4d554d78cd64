"""Gradients that are never multiplied out: those of the long way, bounded, and nobody else's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tacit
from tacit.engine.persons import Persons
from tacit.engine.simulate import Simulation
from tacit.experiment.auto import choose
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of, sampler_of
from tacit.local.chain import Chain
from tacit.local.flat import FlatModel
from tacit.privacy.accounting import Release
from tacit.privacy.channel import Channel
from tacit.privacy.factors import ALONE, Factors, Layer
from tacit.privacy.grid import Grid
from tacit.privacy.sampling import Everyone
from tacit.privacy.subtotal import subtotal
from tacit.randomness import Randomness

PERSONS, COLUMNS = 300, 5
ONE_STEP = tacit.FedAvg(lr=0.5, local_steps=1, batch=None, clip=0.2)


def table(kind: str = "binary", most: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """Persons of two tasks with one to `most` rows each; the first is loud."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(PERSONS), rng.integers(1, most + 1, PERSONS))
    x = rng.normal(size=(len(person), COLUMNS))
    x[person == 0] *= 1e4
    score = x[:, 0] + rng.normal(size=len(person))
    y = {
        "binary": score > 0,
        "regression": score,
        "multiclass": np.digitize(score, [-1.0, 1.0]),
    }[kind]
    return {"x": x, "y": y.astype(float), "task": person % 2, "person": person}


def some_of(rows: dict[str, np.ndarray], kept: np.ndarray) -> dict[str, np.ndarray]:
    return {name: value[kept] for name, value in rows.items()}


def simulated(
    rows: dict[str, np.ndarray],
    method: Any = ONE_STEP,
    kind: Any = "binary",
    model: Any = "mlp",
    share: int = 1,
    cohort: float = 1.0,
    noise: float = 1.0,
) -> Simulation:
    known: dict[str, Any] = {"target_scale": (0.0, 1.0)} if kind == "regression" else {}
    federation = tacit.data.from_arrays(
        rows["x"],
        rows["y"],
        rows["task"],
        kind=kind,
        persons=rows["person"],
        scale="none",
        validation=0.0,
        test=0.0,
        **known,
    )
    privacy = tacit.Privacy(noise=noise, unit="person", persons=PERSONS, at_most=share)
    plan = Plan(method=method, model=model, privacy=privacy, seed=0, cohort=cohort)
    plan = choose(federation, plan).plan
    made = model_of(plan.model, federation, 1)
    sampler, device = sampler_of(plan, len(federation)), torch.device("cpu")
    found = simulation_of(plan, federation, made, sampler, Randomness.of(0), device)
    assert isinstance(found, Simulation)
    return found


def asked(simulation: Simulation) -> Persons:
    found = simulation.rounds.strategy.asked
    assert isinstance(found, Persons)
    return found


def sums(simulation: Simulation, *, long_way: bool = False) -> Tensor:
    """What is released before noise, in steps of the grid; by gradients unless told otherwise."""
    persons, course = asked(simulation), simulation.course
    assert persons._gradients is not None
    if long_way:
        persons._gradients = None
    collection = course.channel.open(0, course.length, "")
    for sent in persons.ask(course.start, torch.arange(2)):
        assert sent.bounded != long_way
        sent.add_to(collection)
    return collection._Collection__sum  # type: ignore[attr-defined]


def clips(simulation: Simulation, total: Tensor) -> Tensor:
    grid = simulation.channel.grid_at(0)
    assert grid is not None
    return total.double() / grid.steps


@pytest.mark.parametrize(
    ("kind", "model", "most", "method", "share"),
    [
        ("binary", "mlp", 1, ONE_STEP, 1),
        ("multiclass", "mlp", 4, tacit.Ditto(lr=0.5, local_steps=1, batch=20, clip=0.2), 1),
        ("regression", "linear-no-intercept", 7, tacit.FedProx(lr=0.1, local_steps=1), 3),
        ("binary", "linear", 3, tacit.FedAvg(local_steps=1, clip=0.02, clip_quantile=0.5), 1),
    ],
    ids=["one row", "ditto", "fedprox", "adaptive clip"],
)
def test_the_long_way_ends_in_the_same_sum(kind, model, most, method, share):
    made = simulated(table(kind, most), method, kind, model, share)
    short, long = (clips(made, sums(made, long_way=way)) for way in (False, True))
    assert torch.linalg.vector_norm(short - long) < 2e-3 * torch.linalg.vector_norm(long)
    assert float(torch.linalg.vector_norm(long)) > 10 / share  # there is something to compare


@pytest.mark.parametrize("most", [1, 6])
def test_what_a_person_adds_does_not_depend_on_who_else_is_there(most):
    """In steps of the grid, so to the last bit: others may be there, or not, in any order."""
    rows = table(most=most)
    first = rows["person"] % 3 == 0
    whole = sums(simulated(rows))
    parts = [sums(simulated(some_of(rows, kept))) for kept in (first, ~first)]
    assert whole.dtype == torch.int64 and torch.equal(whole, parts[0] + parts[1])
    order = np.random.default_rng(1).permutation(len(rows["x"]))
    if most == 1:
        assert torch.equal(whole, sums(simulated(some_of(rows, order))))


@pytest.mark.parametrize("most", [1, 6])
def test_nobody_moves_the_sum_by_more_than_a_clip_and_the_loud_do(most):
    rows = table("regression", most)
    made = simulated(rows, kind="regression")
    whole = sums(made)
    for gone, loud in ((0, True), (7, False)):
        fewer = simulated(some_of(rows, rows["person"] != gone), kind="regression")
        length = float(torch.linalg.vector_norm(clips(made, whole - sums(fewer))))
        assert 0 < length <= 1
        assert not loud or length > 0.997


def test_silos_sum_what_the_simulation_sums():
    """Silos work for those who are not drawn too, and sum task by task."""
    rows = table(most=3)
    made = simulated(rows, cohort=0.5)
    silos, channel = simulated(rows, cohort=0.5), made.channel
    persons, board, grid = (
        Persons(silos.tasks, all_work=True),
        made.course.start,
        channel.grid_at(0),
    )
    assert grid is not None
    found = []
    for task in range(2):
        sent = persons.contribute(board, made.course.public(board), torch.tensor([task]), grid)
        each = ((some.vectors, some.tasks, some.count) for some in sent)
        found.append(subtotal(channel, str(task), 0, made.course.size_at(0), grid, each))
    assert torch.equal(found[0] + found[1], sums(made)) and silos.channel.dropped == 0


# --- who goes the long way ---


@dataclass(frozen=True, kw_only=True)
class Backwards(tacit.FedAvg):
    """Says nothing about what it sends."""

    def client(self, model, board, state, batches):
        state, sent = super().client(model, board, state, batches)
        return state, -sent


def test_only_a_single_plain_step_goes_the_short_way():
    rows = table()
    several = tacit.FedAvg(lr=0.5, local_steps=2)
    steep = tacit.FedAvg(lr=0.5, local_steps=1, steepest=1.0)
    pmtl = tacit.PMTL(lr=0.5, local_steps=1)
    for method in (several, steep, pmtl, Backwards(lr=0.5, local_steps=1, clip=0.2)):
        assert asked(simulated(rows, method))._gradients is None
    coarse = simulated(rows, noise=1e4)  # noise so large that the grid is coarse
    persons, course = asked(coarse), coarse.course
    assert not any(s.bounded for s in persons.ask(course.start, torch.arange(2)))


def test_persons_with_many_rows_go_the_long_way():
    rows = table(most=3)
    rows["person"][:80] = 0
    rows["task"][:80] = 0
    made = simulated(rows)
    course = made.course
    sent = list(asked(made).ask(course.start, torch.arange(2)))
    assert [some.count for some in sent if not some.bounded] == [1]
    assert any(some.bounded for some in sent)


class Centred(nn.Linear):
    """Mixes rows: of one person that is its own business, of many it would not be."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input - input.mean(dim=0))


def hooked() -> nn.Module:
    layer = nn.Linear(5, 1)
    layer.register_forward_pre_hook(lambda module, args: (args[0] - args[0].mean(dim=0),))
    return layer


def tied() -> nn.Module:
    one, other = nn.Linear(5, 5), nn.Linear(5, 5)
    other.weight = one.weight
    return nn.Sequential(one, other)


def frozen() -> nn.Module:
    network = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 1))
    network[0].requires_grad_(False)
    return network


@pytest.mark.parametrize(
    "module",
    [
        Centred(5, 1),
        hooked(),
        tied(),
        frozen(),
        nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)),
        nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5), nn.Linear(5, 1)),
        nn.Sequential(nn.Linear(5, 5), nn.Softmax(dim=0), nn.Linear(5, 1)),
        nn.Sequential(nn.Linear(5, 5), nn.ReLU(inplace=True), nn.Linear(5, 1)),
        nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)),
        nn.utils.parametrizations.weight_norm(nn.Linear(5, 1)),
    ],
)
def test_models_with_anything_else_in_them_are_no_chains(module):
    assert Chain.of(FlatModel(module, "binary"), (5,)) is None


def test_a_chain_knows_rows_of_its_own_shape_only():
    plain = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1, bias=False))
    assert Chain.of(FlatModel(plain, "binary"), (5,)) is not None
    assert Chain.of(FlatModel(plain, "binary"), (3, 5)) is None
    flat = nn.Sequential(nn.Flatten(), nn.Linear(15, 1))
    assert Chain.of(FlatModel(flat, "binary"), (3, 5)) is not None


# --- the bound itself ---


def channel_of(clip: float, share: int = 1, quantile: float | None = None) -> Channel:
    release, none = Release(Everyone(), 1.0), Randomness.of(0)
    return Channel(Everyone(), 4, none, clip, release, share=share, quantile=quantile)


def factors_of(
    seed: int, shape: tuple[int, int], sizes: tuple[float, float], bias: bool
) -> Factors:
    """Two layers with inputs and errors of these sizes, spread over many magnitudes."""
    draw = torch.Generator().manual_seed(seed)
    wide = ((6, 4), (4, 1))

    def one(columns: int, size: float) -> Tensor:
        spread = torch.randn(*shape, 1, generator=draw) * 2
        return torch.randn(*shape, columns, generator=draw) * spread.exp() * size

    layers = (Layer(one(a, sizes[0]), one(e, sizes[1]), bias) for a, e in wide)
    return Factors(tuple(layers))


def only(factors: Factors, persons: list[int]) -> Factors:
    layers = (Layer(s.inputs[persons], s.errors[persons], s.bias) for s in factors.layers)
    return Factors(tuple(layers))


def length_in_steps(total: Tensor) -> float:
    """Exact until the last step: integers of Python have no end."""
    return float(sum(int(value) ** 2 for value in total)) ** 0.5


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    rows=st.sampled_from([1, 2, 8, 64]),
    sizes=st.sampled_from([(1.0, 1.0), (1e-30, 1e-12), (1e15, 1e-25), (1e25, 1e10), (1.0, 0.0)]),
    clip=st.sampled_from([1e-6, 1.0, 1e6]),
    share=st.sampled_from([1, 3]),
    fraction=st.sampled_from([28, 30]),
    bias=st.booleans(),
    cancelling=st.booleans(),
)
@example(0, 64, (1.0, 1.0), 1e-6, 1, 28, True, True)
@example(0, 2, (1e25, 1e10), 1.0, 1, 30, True, True)
@example(0, 1, (1e-30, 1e-12), 1e-6, 1, 30, False, False)
@example(1, 1, (1e25, 1e10), 1e-6, 3, 30, False, False)
@example(0, 1, (3e18, 1e-16), 1.0, 1, 30, True, False)  # the squares of some are too large
def test_no_vector_is_longer_than_its_part_of_a_clip(
    seed, rows, sizes, clip, share, fraction, bias, cancelling
):
    factors, grid = factors_of(seed, (3, rows), sizes, bias), Grid(64, fraction)
    if cancelling and rows > 1:  # the second half takes back what the first half says
        half = rows // 2
        for layer in factors.layers:
            layer.inputs[:, half:] = layer.inputs[:, :half]
            layer.errors[:, half:] = -layer.errors[:, :half] * (1 + 1e-6)
    whole, dropped = factors.summed(channel_of(clip, share), grid, 3)
    alone = []
    for person in range(3):
        total, _ = only(factors, [person]).summed(channel_of(clip, share), grid, 1)
        assert length_in_steps(total) <= grid.steps / share
        alone.append(total)
    assert dropped == 0 and torch.equal(
        whole, torch.stack(alone).sum(dim=0)
    )  # exact, and nobody else's


@pytest.mark.parametrize("rows", [1, 2, 16])
def test_vectors_are_gradients_within_the_clip_and_as_long_as_they_may_be(rows):
    factors, grid = factors_of(3, (1, rows), (1.0, 1.0), True), Grid(64, 30)
    gradient = torch.cat(
        [
            part.flatten()
            for layer in factors.layers
            for part in (layer.errors[0].mT @ layer.inputs[0], layer.errors[0].sum(dim=0))
        ]
    ).double()
    length = float(torch.linalg.vector_norm(gradient))
    for clip in (100 * length, length / 100):
        total, _ = factors.summed(channel_of(clip), grid, 1)
        expected = gradient / max(length, clip)
        found = total.double() / grid.steps
        assert torch.linalg.vector_norm(found - expected) < 2e-3 * torch.linalg.vector_norm(
            expected
        )
    assert float(torch.linalg.vector_norm(found)) > 0.998


def test_rows_that_cancel_far_beyond_the_clip_stay_exact():
    """A person whose rows say opposite things, each millions of clips long, is cut to fit sums."""
    errors = torch.tensor([[[1e6], [-1e6 + 1]]])
    layer, grid = Layer(torch.ones(1, 2, 1), errors, False), Grid(64, 30)
    total, _ = Factors((layer,)).summed(channel_of(1.0), grid, 1)
    assert abs(int(total)) <= grid.steps * (ALONE / 1e6 + 2**-10)  # and not a whole clip


def test_the_bit_about_the_clip_is_told():
    factors, grid = factors_of(2, (4, 1), (1.0, 1.0), True), Grid(64, 30)
    squares = [((s.inputs**2).sum(2) + 1) * (s.errors**2).sum(2) for s in factors.layers]
    lengths = (squares[0] + squares[1]).sqrt().flatten().sort().values
    clip = float(lengths[2:].mean())
    adaptive = channel_of(clip, quantile=0.5)
    plain, _ = factors.summed(channel_of(clip), grid, 4)
    total, _ = factors.summed(adaptive, grid, 4)
    found, bits = adaptive.place.apart(total.double() / grid.steps)
    assert torch.allclose(found, plain.double() / grid.steps, atol=5e-3)
    assert bits == pytest.approx(1.0)  # three within the clip, one not
    for person in range(4):
        assert length_in_steps(only(factors, [person]).summed(adaptive, grid, 1)[0]) <= grid.steps


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("side", ["inputs", "errors"])
def test_what_is_not_finite_counts_as_nothing_and_is_counted(bad, side):
    factors, grid, channel = factors_of(2, (4, 2), (1.0, 1.0), True), Grid(64, 30), channel_of(1.0)
    expected, _ = only(factors, [0, 3]).summed(channel, grid, 2)
    getattr(factors.layers[1], side)[1:3, 0, 0] = bad
    total, dropped = factors.summed(channel, grid, 4)
    assert torch.equal(total, expected) and dropped == 2
    total, dropped = factors.summed(channel, grid, 2)  # the others only fill a chunk
    assert torch.equal(total, only(factors, [0]).summed(channel, grid, 1)[0]) and dropped == 1


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_who_counts_as_nothing_tells_no_bit_either(bad):
    """Whoever was not drawn at a silo said in every round that it was within the clip."""
    factors, grid = factors_of(2, (4, 2), (1.0, 1.0), True), Grid(64, 30)
    factors.layers[1].errors[1:3] = bad
    adaptive = channel_of(1e9, quantile=0.5)
    total, dropped = factors.summed(adaptive, grid, 4)
    expected, _ = only(factors, [0, 3]).summed(adaptive, grid, 2)
    assert torch.equal(total, expected) and dropped == 2
    assert adaptive.place.apart(total.double() / grid.steps)[1] == pytest.approx(1.0)


def test_a_part_of_a_clip_below_rounding_is_nothing():
    """A bound below zero was squared: such a vector was six times as long as it may be."""
    share = 1_000_000
    draw = torch.Generator().manual_seed(0)
    sides = (torch.randn(1, 64, 4096, generator=draw) for _ in range(2))
    total, _ = Factors((Layer(*sides, True),)).summed(channel_of(1.0, share), Grid(64, 28), 1)
    assert length_in_steps(total) <= 2**28 / share


def test_what_the_proof_does_not_know_is_refused():
    wide = Layer(torch.ones(1, 1, 5000), torch.ones(1, 1, 1), True)
    with pytest.raises(ValueError, match="too large"):
        Factors((wide,)).summed(channel_of(1.0), Grid(64, 30), 1)
    with pytest.raises(ValueError, match="too large"):
        factors_of(0, (1, 1), (1.0, 1.0), True).summed(channel_of(1.0), Grid(32, 20), 1)


def test_somebody_too_large_for_single_precision_changes_nobody_else():
    factors = factors_of(5, (8000, 1), (1.0, 1.0), True)
    grid, channel = Grid(64, 30), channel_of(1.0)
    factors.layers[0].inputs[0] = 1e25
    whole, dropped = factors.summed(channel, grid, 8000)
    large, _ = only(factors, [0]).summed(channel, grid, 1)
    others, _ = only(factors, [*range(1, 8000)]).summed(channel, grid, 7999)
    assert dropped == 0 and torch.equal(whole, large + others)
