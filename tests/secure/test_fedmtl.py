"""FedMTL on shares gives every client the model that it would get in the clear."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tacit
from tacit import exchange
from tacit.engine.secure_exchange import SecureExchange
from tacit.errors import TacitError
from tacit.methods import FedMTL
from tacit.secure.jobs.fedmtl import SLACK
from tacit.secure.jobs.job import InProcess
from tacit.secure.net.links import PartyError
from tacit.secure.protocol.weights import SAY
from tests.exchange.federations import headed
from tests.secure.parties import SETTINGS
from tests.secure.rounds import Round, apart


def _decided(similarity: np.ndarray, least: float) -> bool:
    """Whether no pair is so near the threshold that rounding decides."""
    return bool((np.abs(similarity - least) > 3 * SLACK).all())


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    clients=st.integers(2, 7),
    lengths=st.lists(st.integers(2, 9), min_size=1, max_size=4),
    threshold=st.sampled_from([0.0, 0.3, 0.7, 0.95]),
    min_peers=st.integers(1, 3),
    bits=st.sampled_from([32, 64]),
    setting=st.sampled_from(SETTINGS),
)
def test_models_equal_those_of_the_plain_curator(
    seed: int, clients: int, lengths: list[int], threshold: float, min_peers: int, bits: int,
    setting: tuple[str, int],
) -> None:  # fmt: skip
    method = FedMTL(threshold=threshold, last_threshold=threshold, min_peers=min_peers)
    given_round = Round.random(seed, clients, lengths, columns=37)
    plain, similarity = given_round.plain(method)
    assume(_decided(similarity.numpy(), threshold) or threshold == 0)
    trust, servers = setting
    job = given_round.job(method, trust=trust, servers=servers, bits=bits)
    outcome = InProcess().run(job, given_round.secrets(method))
    assert apart(given_round.models(outcome.answers), plain) < 1e-3


@pytest.mark.parametrize("choices", [("everyone", "own"), ("everyone", "similar"), ("own", "own")])
def test_variants(choices: tuple[str, str]) -> None:
    method = FedMTL(threshold=0.5, shared=choices[0], heads=choices[1])  # pyright: ignore
    some = Round.random(3, 6, [5, 4, 6], columns=50)
    plain, _ = some.plain(method)
    outcome = InProcess().run(some.job(method), some.secrets(method))
    assert apart(some.models(outcome.answers), plain) < 1e-4


@pytest.mark.parametrize("trust", ["dealer", "replicated"])
def test_peers_whose_weight_is_next_to_nothing_do_not_count(trust: str) -> None:
    """A client that lets everybody pass is not told the model of the one that it is like."""
    rng = np.random.default_rng(0)
    like, odd = np.eye(6)[0], np.eye(6)[1]
    layers = np.array([like, like + 0.05 * odd, 1e-3 * like + odd])
    vectors = np.concatenate([rng.normal(size=(3, 4)), layers], axis=1) * 0.1
    round = Round(vectors, np.ones((3, 1), bool), np.array([100, 100, 100]), [6], 4)
    honest = FedMTL(threshold=0.5, last_threshold=0.5)
    secrets = round.secrets(honest)
    for trick in ("threshold", "rows"):
        cheating = dict(secrets)
        if trick == "threshold":
            cheating["client-0"] = dataclasses.replace(secrets["client-0"], least=0.0)
        else:  # an accomplice that is like both, and has hardly any rows
            alike = {"rows": vectors[2, :4], "layers": {0: 0.1 * like}, "size": 1}
            cheating["client-2"] = dataclasses.replace(secrets["client-2"], **alike)
        answers = InProcess().run(round.job(honest, trust=trust), cheating).answers
        own = vectors[0, :4]
        assert np.abs(answers["client-0"].rows - own).max() < 1e-5, trick
    together = dict(secrets)
    alike = {"rows": vectors[2, :4], "layers": {0: 0.1 * like}, "size": 30}
    together["client-2"] = dataclasses.replace(secrets["client-2"], **alike)
    answers = InProcess().run(round.job(honest, trust=trust), together).answers
    assert np.abs(answers["client-0"].rows - own).max() > 1e-2  # a third of the rows does count
    assert SAY == exchange.SAY


def test_fake_tasks_never_match() -> None:
    """A client's empty slots change nothing, however many there are."""
    some = Round.random(5, 5, [4, 4, 4, 4], columns=10)
    some.holds[:] = False
    some.holds[np.arange(5), [0, 1, 2, 3, 0]] = True
    method = FedMTL(threshold=0.0, last_threshold=0.0, min_peers=1)
    plain, _ = some.plain(method)
    for slots in (1, 2, 4):
        outcome = InProcess().run(some.job(method, slots=slots), some.secrets(method))
        assert apart(some.models(outcome.answers), plain) < 1e-4
    # Layers that are all zero have no direction: nobody is like such a client.
    some.vectors[0, some.parts[1]] = 0.0
    plain, similarity = some.plain(method)
    assert float(similarity[0, 1:].max()) == 0.0
    outcome = InProcess().run(some.job(method), some.secrets(method))
    assert (np.abs(some.models(outcome.answers)[0] - some.vectors[0]) < 1e-8).all()


def test_what_does_not_fit_is_refused_before_it_is_sent() -> None:
    some = Round.random(1, 3, [4, 4], columns=10)
    method = FedMTL()
    for bits, value in ((32, 1.5), (64, 2000.0), (64, np.nan)):
        some.vectors[1, 2] = value
        with pytest.raises(TacitError, match="a parameter of client-1 is"):
            InProcess().run(some.job(method, bits=bits), some.secrets(method))
    some.vectors[1, 2] = 0.0
    with pytest.raises(TacitError, match="but there are 1 slots"):
        some.holds[0] = True
        InProcess().run(some.job(method, slots=1), some.secrets(method))
    some.sizes[2] = 0
    with pytest.raises(TacitError, match="client-2 has 0 rows"):
        InProcess().run(some.job(method), some.secrets(method))
    with pytest.raises(TacitError, match="needs exactly 3 servers"):
        some.job(method, trust="replicated", servers=4)
    with pytest.raises(TacitError, match="too many to be matched"):
        some.job(method, slots=11)


def test_sums_of_weights_are_exact() -> None:
    """Where all models are the same, so are all answers: to the rounding of one number."""
    some = Round.random(2, 6, [5, 5], columns=400)
    some.vectors[:] = some.vectors[0]
    some.holds[:] = True
    method = FedMTL(threshold=0.9)
    for bits, error in ((32, 2.0**-16), (64, 2.0**-32)):
        outcome = InProcess().run(some.job(method, bits=bits), some.secrets(method))
        assert np.abs(some.models(outcome.answers) - some.vectors).max() <= error


SECURE = [
    tacit.Secure(trust="replicated"),
    tacit.Secure(trust="dealer", servers=2, bits=32),
    tacit.Secure(trust="dealer", slots=2),
]


@pytest.mark.parametrize("curator", SECURE)
def test_a_run_ends_with_the_models_of_a_plain_curator(curator: tacit.Secure) -> None:
    federation = headed(8)
    settings = {"rounds": 4, "seed": 0, "personalise": "none", "baselines": False}
    method = FedMTL(lr=0.1, threshold=0.4, statistics="mixed")
    plain = tacit.train(federation, method, **settings)
    secure = tacit.train(federation, method, **settings, curator=curator)
    everyone = torch.arange(8)
    a, b = plain.models(everyone)[0], secure.models(everyone)[0]
    assert apart(b.numpy(), a.numpy()) < 1e-3
    scores = [run.metrics["overall"]["accuracy"] for run in (plain, secure)]
    # There are 47 test labels, and one of them may be on the edge for shares of 32 bits.
    assert abs(scores[0] - scores[1]) <= (1 / 47 + 1e-9 if curator.bits == 32 else 0)
    assert f"trust: {curator.trust}" in str(secure.guarantee)
    assert "protects nothing between clients" in secure.guarantee.protects
    assert not any("heads" in words for words in secure.guarantee.assumptions)
    assert secure.exchange == {"hidden": True, "answers": 32}  # nobody knows more


@pytest.mark.slow
def test_a_run_goes_on_where_it_was(tmp_path) -> None:
    federation, curator = headed(6), tacit.Secure(trust="replicated")
    method = FedMTL(lr=0.1, threshold=0.2)
    whole = tacit.train(federation, method, rounds=4, seed=0, curator=curator, baselines=False)
    real, rounds = SecureExchange.answers, []

    def breaks(self, uploads):
        rounds.append(uploads.round)
        if len(rounds) == 3:
            raise PartyError("server-1", "stopped")
        return real(self, uploads)

    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecureExchange, "answers", breaks)
        patch.setattr("tacit.engine.rounds.SAVE_EVERY_SECONDS", 0.0)
        with pytest.raises(PartyError, match="can be run again"):
            tacit.train(
                federation, method, rounds=4, seed=0, curator=curator, baselines=False, out=out
            )
    again = tacit.train(
        federation, method, rounds=4, seed=0, curator=curator, baselines=False, out=out, resume=True
    )
    everyone = torch.arange(6)
    assert apart(again.models(everyone)[0].numpy(), whole.models(everyone)[0].numpy()) < 1e-3


def test_refusals() -> None:
    federation = headed(4)

    def train(method, **curator):
        tacit.train(federation, method, rounds=1, seed=0, curator=tacit.Secure(**curator))

    for method, curator, words in (
        (tacit.FedAMP(), {"trust": "replicated"}, "curator of FedAMP does not run on shares"),
        (FedMTL(shared="overlap"), {"trust": "replicated"}, "'overlap' is not computed on shares"),
        (FedMTL(), {}, "products on shares need trust"),
        (FedMTL(), {"trust": "replicated", "servers": 4}, "exactly 3"),
        (FedMTL(), {"trust": "dealer", "slots": 1}, "slots=1: a task has 2 heads"),
        (tacit.FedAvg(), {"slots": 2}, "slots are for task layers"),
    ):
        with pytest.raises(TacitError, match=words):
            train(method, **curator)
