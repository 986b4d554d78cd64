"""What servers see tells them nothing: neither what is in messages, nor how many and how long.

Everything that a coalition is sent must look uniform, whatever the secrets are, and the same tests
must find a protocol that forgets its masks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tacit.methods import FedMTL
from tacit.secure.jobs.job import InProcess
from tacit.secure.net.links import Links
from tacit.secure.protocol.additive import Additive
from tacit.secure.ring.stream import Stream
from tests.secure.rounds import Round

METHOD = FedMTL(threshold=0.5, min_peers=1)
RUNS = 12
TRUST = pytest.mark.parametrize(
    ("trust", "servers", "colluding"), [("dealer", 3, 2), ("dealer", 2, 1), ("replicated", 3, 1)]
)


def _views(some: Round, **settings: Any) -> dict[str, list[tuple[str, str, bytes]]]:
    """What each server is sent in a round."""
    heard: dict[str, Links] = {}

    def listen(links: Mapping[str, Links]) -> None:
        for one in links.values():
            one.view = []
        heard.update(links)

    InProcess(watch=listen).run(some.job(METHOD, **settings), some.secrets(METHOD))
    return {name: heard[name].view or [] for name in heard if name.startswith(("server", "dealer"))}


def _one_client_different() -> tuple[Round, Round]:
    """The same round but for everything about client 1."""
    one = Round.random(0, 3, [3, 3], columns=12)
    one.holds[1] = [True, False]
    one.vectors[1] = 0.0
    one.sizes[1] = 1
    other = Round.random(0, 3, [3, 3], columns=12)
    other.holds[1] = True
    other.vectors[1] = 0.9
    other.sizes[1] = 2900
    return one, other


def _histograms(some: Round, coalition: tuple[str, ...], **settings: Any) -> dict[str, np.ndarray]:
    """How often each byte value occurs in messages of a kind, over several runs."""
    found: dict[str, np.ndarray] = {}
    for _ in range(RUNS):
        views = _views(some, **settings)
        # What one party sends to several of them counts once.
        sent = {message for name in coalition for message in views[name]}
        for sender, label, content in sent:
            if sender not in coalition:
                counts = np.bincount(np.frombuffer(content, np.uint8), minlength=256)
                kind = f"{sender} {label}"
                found[kind] = found.get(kind, np.zeros(256, int)) + counts
    return found


def _suspicious(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The smallest p-value: of bytes being uniform, and of both inputs looking the same."""
    values = []
    for kind, counts in one.items():
        # Bytes by their four upper bits, so that few messages are enough.
        a, b = counts.reshape(16, 16).sum(axis=1), other[kind].reshape(16, 16).sum(axis=1)
        values += [stats.chisquare(a).pvalue, stats.chisquare(b).pvalue]
        values.append(stats.chi2_contingency(np.stack([a, b]) + 1).pvalue)
    return float(np.min(values)) * len(values)


@TRUST
def test_views_look_uniform_and_the_same(trust: str, servers: int, colluding: int) -> None:
    one, other = _one_client_different()
    names = [f"server-{i}" for i in range(servers)]
    coalitions = list(combinations(names, colluding))
    if trust == "dealer":
        coalitions.append(("dealer",))
    for coalition in coalitions:
        seen = [_histograms(some, coalition, trust=trust, servers=servers) for some in (one, other)]
        assert _suspicious(*seen) > 1e-6, coalition


@TRUST
def test_a_protocol_without_masks_is_found(
    trust: str, servers: int, colluding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above has teeth."""
    monkeypatch.setattr(Stream, "fill", lambda self, out: _blank(out))
    one, other = _one_client_different()
    coalition = tuple(f"server-{i}" for i in range(colluding))
    seen = [_histograms(some, coalition, trust=trust, servers=servers) for some in (one, other)]
    assert _suspicious(*seen) < 1e-20


def _blank(out: np.ndarray) -> np.ndarray:
    out[...] = 0
    return out


@TRUST
def test_all_that_clients_are_sent_is_hidden_from_the_dealer(
    trust: str, servers: int, colluding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a client and the dealer (or server 2) together would learn more than its answer."""
    hidden: set[bytes] = set()
    views: list[list[tuple[str, str, bytes]]] = []
    hide = Additive.hide

    def spied(self: Additive, part: np.ndarray) -> None:
        before = part.copy()
        hide(self, part)
        assert (part != before).mean() > 0.99
        hidden.update(row.tobytes() for row in (part if part.ndim == 2 else part.swapaxes(0, 1)))

    def listen(links: Mapping[str, Links]) -> None:
        for name, one in links.items():
            if name.startswith("client"):
                one.view = []
                views.append(one.view)

    monkeypatch.setattr(Additive, "hide", spied)
    some = Round.random(0, 3, [3, 3], columns=12)
    InProcess(watch=listen).run(
        some.job(METHOD, trust=trust, servers=servers), some.secrets(METHOD)
    )
    sent = [content for view in views for _, _, content in view]
    answering = servers if trust == "dealer" else 2
    assert len(sent) == 2 * answering * len(some.names)
    assert set(sent) <= hidden
    assert len(set(sent)) == len(sent)


@TRUST
def test_messages_are_the_same_in_number_and_length(
    trust: str, servers: int, colluding: int
) -> None:
    shapes = []
    for seed, noise in ((0, 0.0), (1, 1.0), (2, 5.0)):
        some = Round.random(seed, 4, [3, 5], columns=20)
        some.vectors += noise * 0.1 * np.sign(some.vectors)
        some.vectors = some.vectors.clip(-0.9, 0.9)
        views = _views(some, trust=trust, servers=servers, bits=32)
        shapes.append(
            {
                name: Counter((sender, label, len(content)) for sender, label, content in view)
                for name, view in views.items()
            }
        )
    assert shapes[0] == shapes[1] == shapes[2]


def test_shares_of_a_secret_are_uniform() -> None:
    """Any P − 1 shares: every byte, and the same for two secrets."""
    from tacit.secure.ring.sharing import hide, mask, reconstruct
    from tacit.secure.ring.stream import fresh_seed

    for dtype in (np.uint32, np.uint64):
        counts = []
        for secret in (np.zeros(4096, dtype), np.arange(4096, dtype=dtype) * dtype(12345)):
            seeds = [fresh_seed(), fresh_seed()]
            tensor = hide(secret, seeds)
            masks = [mask(seed, secret.shape, dtype) for seed in seeds]
            assert (reconstruct([tensor, *masks]) == secret).all()
            for left_out in range(3):  # what the others have together is not the secret either
                known = [s for i, s in enumerate([tensor, *masks]) if i != left_out]
                seen = np.concatenate([*known, known[0] + known[1]]).view(np.uint8)
                bytes_seen = np.bincount(seen, minlength=256)
                assert stats.chisquare(bytes_seen).pvalue > 1e-6
                counts.append(bytes_seen)
        assert stats.chi2_contingency(np.stack([counts[0], counts[3]])).pvalue > 1e-6
