"""Silos with real keys who send what they like over the real port, and what a silo is sent."""

from __future__ import annotations

import contextlib
import hashlib
import time

import httpx
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.proto.message_pb2 import ObjectTree

from tacit.deploy.flower.records import pack
from tacit.deploy.keys import make_keys
from tacit.deploy.messages import Reply
from tests.deploy.flower.port import Attacker, Port, refused, reply_to, works


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with Port(tmp_path_factory.mktemp("port")).open() as made:
        yield made


@pytest.fixture(autouse=True)
def closed(port):
    yield
    port.clients.close()


@pytest.fixture
def a(port):
    """Silo a, who is up to something; it leaves in the end, and nobody remembers."""
    attacker = Attacker(port, "a")
    port.blamed.clear()
    yield attacker
    with contextlib.suppress(httpx.HTTPError):
        attacker.client.DeactivateNode(DeactivateNodeRequest(node_id=attacker.node.node_id))


def test_a_reply_in_the_name_of_another_silo_is_refused_and_blamed(port, a):
    _, wait = port.asking()
    asked = a.heard()
    other = next(node for node, name in port.link._names.items() if name == "b")
    reply = reply_to(asked, Reply(nonce="x").to_bytes())
    assert refused(lambda: a.push(reply, source=other)) == 400
    assert port.blamed == {"a": "speaks for another silo"}
    a.push(reply_to(asked, b"still here"))
    assert wait()[0].state == "failed"


def identity(number) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def test_a_message_of_thousands_of_parts_is_refused_and_blamed(port, a):
    _, wait = port.asking()
    reply = reply_to(a.heard(), b"small")
    objects = len(port.link.state.object_store)
    many = [ObjectTree(object_id=identity(k)) for k in range(5000)]
    tree = ObjectTree(object_id=reply.object_id, children=many)
    assert refused(lambda: a.push(reply, tree=tree)) == 400
    deep = ObjectTree(object_id=identity("deep"))
    for k in range(60):
        deep = ObjectTree(object_id=identity(f"deep {k}"), children=[deep])
    tree = ObjectTree(object_id=reply.object_id, children=[deep])
    assert refused(lambda: a.push(reply, tree=tree)) == 400
    assert "more than 8 parts" in port.blamed["a"]
    assert len(port.link.state.object_store) == objects
    a.push(reply)
    wait()


def test_parts_of_another_message_than_the_named_are_refused(port, a):
    """Otherwise few small trees, each made of the one before, would unfold into billions."""
    _, wait = port.asking()
    reply = reply_to(a.heard(), b"small")
    inner = identity("leaf")
    for level in range(4):
        tree = ObjectTree(
            object_id=identity(level), children=[ObjectTree(object_id=inner) for _ in range(6)]
        )
        assert refused(lambda tree=tree: a.push(reply, tree=tree)) == 400
        inner = tree.object_id
    assert port.blamed == {"a": "does not hold the reply that it names"}
    a.push(reply)
    wait()


def test_a_second_reply_to_the_same_request_is_refused(port, a):
    requests, wait = port.asking(patience=2.0)
    asked = a.heard()
    reply = reply_to(asked, Reply(nonce=requests[0].nonce).to_bytes())
    a.push(reply, upload=False)
    tree = ObjectTree(object_id=reply.object_id, children=[ObjectTree(object_id=identity("new"))])
    objects = len(port.link.state.object_store)
    assert refused(lambda: a.push(reply)) == 400
    assert refused(lambda: a.push(reply, tree=tree)) == 400
    assert refused(lambda: a.push(reply_to(asked, b"another"))) == 400
    assert len(port.link.state.object_store) == objects and port.blamed == {}
    assert [line for line in port.said if "second reply" in line] == [
        "turned away a second reply to one request from a (said once)"
    ]
    assert wait() == {}


def test_a_reply_that_never_arrives_whole_delays_nobody(port, a):
    requests, wait = port.asking((0, 1), patience=3.0)
    a.push(reply_to(a.heard(), b"never"), upload=False)
    when = []

    def answer(context, request):
        when.append(time.monotonic())
        return Reply(nonce=request.nonce)

    with port.honest("b", answer):
        replies = wait()
    assert set(replies) == {1} and replies[1].nonce == requests[1].nonce
    assert when  # it was heard within the others' time


def test_pulling_waits_for_no_parts(port, a):
    _, wait = port.asking(patience=1.0)
    asked = a.heard()
    a.push(reply_to(asked, b"never"), upload=False)
    began = time.monotonic()
    assert list(port.grid.pull_messages([asked.metadata.message_id])) == []
    assert time.monotonic() - began < 0.5
    assert wait() == {}


HOSTILE = {
    "no message": b"",
    "garbage": b"garbage" * 99,
    "nested without end": b"[" * 10**5,
    "another kind of record": RecordDict({"tacit": ConfigRecord({"tacit": 5})}),
    "another name": RecordDict({"other": ConfigRecord({"tacit": b"x"})}),
    "more records": RecordDict({"tacit": ConfigRecord({"tacit": b"x", "more": b"y"})}),
    "nothing": RecordDict(),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_content_that_is_no_reply_is_heard_as_a_broken_one(what, port, a):
    _, wait = port.asking()
    a.push(reply_to(a.heard(), HOSTILE[what]))
    heard = wait()[0]
    assert (heard.nonce, heard.state) == ("", "failed")  # which excludes whoever sent it


def test_parts_that_flower_cannot_put_together_are_heard_as_a_broken_reply(port, a):
    _, wait = port.asking()
    a.push(reply_to(a.heard(), b"small"), root=RecordDict({"x": ConfigRecord({"y": 1})}))
    heard = wait()[0]
    assert (heard.nonce, heard.state, heard.reason) == ("", "failed", "without content")


def test_a_silo_sends_nothing_to_whom_its_authority_does_not_know(port, tmp_path):
    make_keys(tmp_path / "others", ["a"])
    lines: list[str] = []
    with port.honest("a", say=lines.append, authority=tmp_path / "others" / "ca.pem"):
        until = time.monotonic() + 5
        while not lines and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.7)  # it tries again, and says nothing more
        assert 0 not in port.link.nodes(("a", "b"))
    assert lines == [
        f"no connection to {port.address}: its certificate is not signed by our ca.pem, or is for "
        "another name; trying again"
    ]


def test_a_silo_whose_key_is_not_registered_is_told_so(port, tmp_path):
    make_keys(port.folder, ["c"])
    lines: list[str] = []
    with port.honest("c", say=lines.append):
        until = time.monotonic() + 5
        while not lines and time.monotonic() < until:
            time.sleep(0.02)
    assert lines[0].endswith("this silo's key is not registered there; trying again")


def test_a_silo_survives_what_is_no_request(port):
    lines: list[str] = []
    with port.honest("b", say=lines.append):
        until = time.monotonic() + 5
        while 1 not in port.link.nodes(("a", "b")) and time.monotonic() < until:
            time.sleep(0.02)
        node = port.link.nodes(("a", "b"))[1].node
        wrong = [
            Message(pack(b"garbage"), node, "query", ttl=60.0),
            Message(pack(b"[" * 10**5), node, "train", ttl=60.0),
            Message(RecordDict(), node, "train", ttl=60.0),
        ]
        numbers = port.grid.push_messages(wrong)
        heard = {}
        while len(heard) < 2 and time.monotonic() < until + 5:
            for message in port.grid.pull_messages(numbers):
                heard[message.metadata.reply_to_message_id] = message
            time.sleep(0.05)
        requests, wait = port.asking((1,))
        assert wait()[1].nonce == requests[1].nonce
    for message in heard.values():
        content = next(iter(message.content.values()))["tacit"]
        assert Reply.from_bytes(content).state == "refused"
    assert "sent something that is not a request (ValueError)" in " ".join(lines)


def test_after_all_that_an_honest_silo_is_heard(port):
    assert works(port)
