"""Sums on shares are exact, hide what they should, and carry the noise that was promised."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import TacitError
from tacit.privacy.grid import LONGEST, LOUDEST, TAILS, Grid
from tacit.randomness import Randomness
from tacit.secure.jobs.curator import SecureSum
from tacit.secure.jobs.job import COORDINATOR, InProcess, server_name
from tacit.secure.jobs.kinds import JOBS, job_from_json
from tacit.secure.jobs.summing import SeededSum, SumJob
from tacit.secure.net.links import PartyError

SILENT = 1e-9
"""Noise that rounds to nothing, where a test wants to see the sum itself."""


def job(clients=3, **more) -> SumJob:
    names = tuple(f"c{k}" for k in range(clients))
    public = {"servers": 3, "size": 4, "bits": 32, "bound": 1000, "noise": SILENT}
    return SumJob(clients=names, **(public | more))


def opened(one: SumJob, rows: np.ndarray, where=None) -> np.ndarray:
    secrets = dict(zip(one.clients, rows, strict=True))
    return one.combine((where or InProcess()).run(one, secrets).opened)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 4), st.sampled_from([32, 64]), st.integers(1, 40), st.integers(1, 9),
    st.integers(0, 2**32),
)  # fmt: skip
def test_the_opened_sum_is_the_sum(servers, bits, size, clients, seed):
    bound = (2 ** (bits - 1) - 1) // clients
    rows = np.random.default_rng(seed).integers(-bound, bound, (clients, size), endpoint=True)
    one = job(clients, servers=servers, bits=bits, size=size, bound=bound)
    assert np.array_equal(opened(one, rows), rows.sum(axis=0))


def test_threads_and_turns_give_the_same_sum():
    rows = np.arange(-6, 6).reshape(3, 4)
    assert np.array_equal(opened(job(), rows), opened(job(), rows, InProcess()))


def test_a_job_survives_the_journey_to_a_server_but_a_seeded_one_does_not_leave():
    one = job()
    assert job_from_json(one.to_json(), JOBS) == one
    public = {key: value for key, value in vars(one).items() if key != "id"}
    seeded = SeededSum(**public, randomness=Randomness.of(0), round=0)
    with pytest.raises(TacitError, match="draw their own noise"):
        seeded.to_json()
    with pytest.raises(TacitError, match="not understood"):
        job_from_json(one.to_json() | {"round": 0, "randomness": {"seed": 0}}, JOBS)


def test_the_room_for_rounding_is_a_millionth_of_a_clip_and_no_more():
    """Ten million times what a billion numbers need, and far below any noise."""
    found = Grid(64, 30).integers(np.array([3.0, 4.0]))
    assert np.linalg.norm(found) / 2**30 == pytest.approx(1 - 2.0**-20, rel=1e-8)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30),
    st.sampled_from([Grid(32, 16), Grid(32, 20), Grid(64, 30)]),
    st.booleans(),
)
def test_rounding_never_makes_a_vector_longer_than_a_clip(values, grid, unit):
    vector = np.array(values)
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.linalg.norm(vector)
        vector = vector / length if unit and 0 < length < math.inf else vector
        found = grid.integers(vector)
    assert sum(int(v) ** 2 for v in found) <= grid.steps**2  # exact: integers of any size
    if np.isfinite(length) and np.linalg.norm(vector) <= LONGEST:
        assert (np.abs(found) <= np.abs(vector) * grid.steps).all()
        assert (np.abs(found - vector * grid.steps) < 1).all()


@pytest.mark.parametrize("value", [1001, -1001, np.iinfo(np.int64).min])
def test_overflow_is_refused_before_anything_is_sent(value):
    rows, seen = np.zeros((3, 4), np.int64), {}
    rows[0, 2] = value
    with pytest.raises(TacitError, match="bound the contribution first"):
        opened(job(), rows, InProcess(watch=seen.update))
    assert not any(links.sent_messages for links in seen.values())


def test_wrong_vectors_and_impossible_jobs_are_refused():
    with pytest.raises(TacitError, match="must hand in 4 integers"):
        opened(job(), np.zeros((3, 4)))
    with pytest.raises(TacitError, match="must hand in 4 integers"):
        opened(job(), np.zeros((3, 5), np.int64))
    for noise in (0.0, -1.0, math.nan, math.inf, LOUDEST, LOUDEST / TAILS):
        with pytest.raises(TacitError, match="with noise only"):
            job(noise=noise)
    with pytest.raises(TacitError, match="do not fit into 32 bits"):
        job(bound=2**30)
    job(clients=2, bound=2**30 - 1)  # just fits
    with pytest.raises(TacitError, match="do not fit into 32 bits"):
        job(clients=2, bound=2**30)
    for wrong in ({"servers": 1}, {"size": 0}, {"bits": 16}, {"bound": 0}):
        with pytest.raises(TacitError, match="two servers"):
            job(**wrong)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("servers", [2, 3, 5])
def test_an_opened_sum_has_the_noise_of_all_servers(servers, bits):
    """A twentieth too little of it, or one server that adds none, fails."""
    noise, size = 50.0, 40_000
    one = job(servers=servers, bits=bits, size=size, noise=noise)
    found = opened(one, np.full((3, size), 7)) - 21
    assert found.std() == pytest.approx(math.sqrt(servers) * noise, rel=0.02)
    assert abs(found.mean()) < 6 * math.sqrt(servers) * noise / math.sqrt(size)
    fitted = stats.kstest(found + np.random.default_rng(0).uniform(-0.5, 0.5, size), "norm",
                          (0, math.sqrt(servers) * noise))  # fmt: skip
    assert fitted.pvalue > 1e-6


def test_each_server_adds_its_own_noise_to_its_own_share():
    """Two runs on the same shares: without the other servers, one noise alone is seen."""
    noise, size = 50.0, 40_000
    public = {"size": size, "noise": noise, "clients": ("a",), "servers": 3, "bits": 32}
    one = SeededSum(**public, bound=1, randomness=Randomness.of(3), round=2)
    drawn = [one.normal(index) for index in range(3)]
    for index in range(3):
        assert (drawn[index] * noise).std() == pytest.approx(noise, rel=0.02)
        assert abs(np.corrcoef(drawn[index], drawn[index - 1])[0, 1]) < 0.03
    again = SeededSum(**public, bound=1, randomness=Randomness.of(3), round=3)
    assert abs(np.corrcoef(drawn[0], again.normal(0))[0, 1]) < 0.03
    expected = sum(np.rint(some * noise) for some in drawn)
    assert np.array_equal(opened(one, np.zeros((1, size), np.int64)), expected)


def uniform(raw: bytes) -> float:
    counts = np.bincount(np.frombuffer(raw, np.uint8), minlength=256)
    return float(stats.chisquare(counts).pvalue)


@pytest.mark.parametrize("value", [0, 1000])
def test_every_proper_part_of_the_shares_is_uniform(value):
    """What each server is sent, what it sends on, and the sum of all but one of those."""
    size, seen = 30_000, {}

    def listen(links):
        for one in links.values():
            one.view = []
        seen.update(links)

    outcome = InProcess(watch=listen).run(
        job(size=size), dict.fromkeys(("c0", "c1", "c2"), np.full(size, value))
    )
    shares = outcome.opened
    for index in range(3):
        assert uniform(shares[index].tobytes()) > 1e-6
        assert uniform((shares[index] + shares[index - 1]).tobytes()) > 1e-6
    for sender, label, raw in seen[server_name(0)].view:
        assert (sender[0], label) == ("c", "share")
        assert uniform(raw) > 1e-6
    words = [np.frombuffer(raw, np.uint32) for _, _, raw in seen[server_name(0)].view]
    assert uniform((words[0] - words[1]).tobytes()) > 1e-6  # no two clients share a mask
    assert [label for _, label, _ in seen[COORDINATOR].view] == ["noisy share"] * 3


def cohort_views(members: dict[int, np.ndarray]) -> tuple[list, dict[str, list]]:
    """Sizes and counts of all messages, and what each server was sent."""
    seen = {}

    def listen(links):
        for one in links.values():
            one.view = []
        seen.update(links)

    names = tuple(f"c{k}" for k in range(6))
    curator = SecureSum(InProcess(watch=listen), 3, names, Randomness())
    curator.seal(members, 2000, 1.0, 0)
    sent = [(name, dict(one.sent_messages), dict(one.sent_bytes)) for name, one in seen.items()]
    return sent, {server_name(i): seen[server_name(i)].view for i in range(3)}


def test_servers_cannot_tell_who_is_in_the_cohort():
    """Same messages of the same sizes, and uniform content, whoever takes part."""
    vector = np.full(2000, 20_000, dtype=np.int64)
    nobody, few, all_of_them = (
        cohort_views(dict.fromkeys(cohort, vector)) for cohort in ((), (1, 4), range(6))
    )
    assert nobody[0] == few[0] == all_of_them[0]
    for _, views in (nobody, few, all_of_them):
        assert shapes(views) == shapes(nobody[1])
        # Server 0 lacks the other servers' seeds; they have nothing but seeds.
        assert uniform(b"".join(raw for _, _, raw in views[server_name(0)])) > 1e-6
        seeds = [raw for index in (1, 2) for _, _, raw in views[server_name(index)]]
        assert len(set(seeds)) == 12


def shapes(views: dict[str, list]) -> dict[str, list]:
    return {
        name: [(sender, label, len(raw)) for sender, label, raw in view]
        for name, view in views.items()
    }


def test_a_lost_message_names_the_party_that_lost_it(monkeypatch):
    monkeypatch.setattr(SumJob, "serve", lambda self, links, index: None)
    with pytest.raises(PartyError, match="server-0 stopped before it sent 'noisy share'"):
        opened(job(), np.zeros((3, 4), np.int64))


@pytest.mark.parametrize(
    ("tasks", "noise", "expected"),
    [
        (316, 9.0, Grid(32, 20)),
        (2000, 9.0, Grid(32, 19)),
        (30_000, 9.0, Grid(32, 16)),
        (40_000, 9.0, Grid(64, 30)),
        (10, 1e6, Grid(64, 16)),
    ],
)
def test_the_grid_is_as_fine_as_the_ring_allows(tasks, noise, expected):
    grid = Grid.of(tasks, 3, noise)
    assert grid == expected
    whole = (tasks + TAILS * math.sqrt(3) * noise) * grid.steps
    assert whole < 2 ** (grid.bits - 1)
    assert TAILS * noise * grid.steps < LOUDEST


def test_noise_beyond_all_rings_is_refused():
    with pytest.raises(TacitError, match="do not fit into sums of 64 bits"):
        Grid.of(10, 3, 1e12)


def test_servers_need_no_pytorch():
    """It takes seconds to import, and a round waits for the slowest server."""
    code = (
        "import tacit.secure.net.daemon, tacit.secure.jobs.kinds, sys; "
        "sys.exit('torch' in sys.modules and 7)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
