"""Runs over the real port, with keys and TLS, end in the models of the simulation."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch

import tacit
from tacit.deploy.conduct import conduct
from tacit.deploy.events import StrangerTurnedAway
from tacit.deploy.flower.app import make_client_app, make_server_app
from tacit.deploy.flower.asking import FlowerSilos
from tacit.deploy.flower.limits import Strangers
from tacit.deploy.flower.link import Link
from tacit.deploy.flower.node import Node
from tacit.deploy.keys import load_node_key, load_public, make_keys
from tacit.deploy.terms import terms_of
from tacit.experiment.plan import Plan
from tacit.secure.net.local import free_ports
from tests.conftest import arrays
from tests.deploy.direct import personal, silos_of
from tests.exchange.federations import headed


@contextlib.contextmanager
def connected(silos, terms, folder, leave_after=None):
    """A link, and a node for each silo; one silo works at a time, as torch wants it."""
    make_keys(folder, terms.silos)
    port, turn = free_ports(1)[0], threading.Lock()
    keys = {name: load_public(folder / "coordinator/keys" / f"{name}.pub") for name in terms.silos}
    said: list[StrangerTurnedAway] = []
    link = Link("127.0.0.1", port, keys, folder / "coordinator", Strangers(said.append))
    nodes, threads, last = [], [], {}
    with link.running():
        for silo in silos:

            def answer(context, request, silo=silo):
                with turn:
                    last[silo.name] = request.kind
                    return silo.answer(request)

            place = folder / silo.name
            key = load_node_key(place / "node.key")
            app = make_client_app(answer)
            nodes.append(Node(f"127.0.0.1:{port}", place / "ca.pem", key, app, place))
            if leave_after is not None:

                def after(node=nodes[-1], name=silo.name):
                    if last[name] == leave_after:
                        node.stop.set()

                nodes[-1].after = after
            threads.append(threading.Thread(target=nodes[-1].run))
            threads[-1].start()
        try:
            yield link
        finally:
            for node in nodes:
                node.stop.set()
            for thread in threads:
                thread.join()
    assert not said


def federation_of(name):
    if name == "fedmtl":
        return headed(4)
    x, y, names = arrays(4, 4, "regression", rows=(12, 20))
    kind = {"kind": "regression", "scale": "none", "target_scale": "none"}
    return tacit.data.from_arrays(x, y, names, **kind)


PRIVATE = {"privacy": tacit.Privacy(noise=1.5)}
RUNS = {
    "pmtl": (tacit.PMTL(), {"rounds": 3, "cohort": 0.5, **PRIVATE}),
    "fedavg": (tacit.FedAvg(), {"rounds": 2, "privacy": None}),
    "prior": (tacit.SharedPrior(), {"rounds": 1, **PRIVATE}),
    "fedmtl": (tacit.FedMTL(), {"rounds": 2, "privacy": None}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_over_the_wire_ends_like_the_simulation(name, tmp_path):
    federation, (method, settings) = federation_of(name), RUNS[name]
    given = {"cohort": 1.0, "publishing": None, "seed": 3, "model": "linear"}
    terms = terms_of(federation, Plan(method=method, **(given | settings)))
    silos = silos_of(federation, terms, tmp_path / "silos")
    done = []
    with connected(silos, terms, tmp_path / "keys") as link:

        def rounds(grid, context):
            asked = FlowerSilos(grid, lambda: link.nodes(terms.silos), patience=60)
            done.append(conduct(terms, tmp_path / "coordinator", asked))

        link.run(make_server_app(rounds))
    alike = {"personalise": "none", "baselines": False, "seed": 3}
    run = tacit.train(federation, method, **settings, **alike)
    found = torch.stack([personal(silo) for silo in silos])
    assert torch.allclose(found, run.models(torch.arange(len(federation)))[0], atol=2e-5)
    assert str(done[0].guarantee) == str(run.guarantee)
    assert set(done[0].finished) == set(terms.silos)


def test_the_last_word_of_a_silo_that_has_left_is_heard(tmp_path):
    """Flower's own call forgets the reply of a node that is gone when it looks."""
    federation = federation_of("fedavg")
    given = {"model": "linear", "cohort": 1.0, "publishing": None, "seed": 3, "privacy": None}
    terms = terms_of(federation, Plan(method=tacit.FedAvg(), rounds=1, **given))
    silos = silos_of(federation, terms, tmp_path / "silos")
    done = []
    with connected(silos, terms, tmp_path / "keys", leave_after="finish") as link:

        def rounds(grid, context):
            asked = FlowerSilos(grid, lambda: link.nodes(terms.silos), patience=8, pause=1.0)
            done.append(conduct(terms, tmp_path / "coordinator", asked))

        link.run(make_server_app(rounds))
        assert not link.nodes(terms.silos)
    assert set(done[0].finished) == set(terms.silos)
