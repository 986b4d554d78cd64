"""The coordinator's real port, attacked by strangers, and by keys that claim too much."""

from __future__ import annotations

import contextlib
import re

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.node_pb2 import Node as NodeId
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from tests.deploy.flower.port import Port, refused, works


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with Port(tmp_path_factory.mktemp("port")).open() as made:
        assert works(made)
        yield made


@pytest.fixture(autouse=True)
def closed(port):
    yield
    port.clients.close()


def activate(key) -> ActivateNodeRequest:
    return ActivateNodeRequest(
        public_key=public_key_to_bytes(key.public_key()), heartbeat_interval=30
    )


def stranger():
    return ec.generate_private_key(ec.SECP384R1())


def test_a_key_that_is_not_registered_gets_nothing(port):
    key = stranger()
    client = port.client(key)
    assert 400 <= refused(client.ActivateNode, activate(key)) < 500
    for node in port.link._names:
        asked = PullMessagesRequest(node=NodeId(node_id=node))
        assert refused(client.PullMessages, asked) == 401


def test_a_registered_key_without_its_signature_gets_nothing(port):
    registered = port.key("a")
    client = port.client(stranger(), shown=registered)
    assert refused(client.ActivateNode, activate(registered)) == 401


def test_one_silo_cannot_speak_as_another(port):
    client = port.client(port.key("b"))
    assert refused(client.ActivateNode, activate(port.key("a"))) == 401
    for node, name in port.link._names.items():
        if name == "a":
            asked = PullMessagesRequest(node=NodeId(node_id=node))
            assert refused(client.PullMessages, asked) == 401
            leaving = DeactivateNodeRequest(node_id=node)
            assert refused(client.DeactivateNode, leaving) == 401


def test_nobody_registers_through_the_port(port):
    key = stranger()
    asked = RegisterNodeFleetRequest(public_key=public_key_to_bytes(key.public_key()))
    assert 400 <= refused(port.client(key).RegisterNode, asked) < 500
    node = next(node for node, name in port.link._names.items() if name == "a")
    asked = UnregisterNodeFleetRequest(node_id=node)
    assert 400 <= refused(port.client(port.key("a")).UnregisterNode, asked) < 500
    assert len(port.link.state.get_node_info()) == 2


@pytest.fixture(scope="module")
def plain(port):
    with httpx.Client(base_url=f"https://{port.address}", verify=port.trusting) as client:
        yield client


PATHS = (
    "/", "/docs", "/openapi.json", "/v1/control/start-run", "/v1/control/list-nodes",
    "/v1/control/register-node", "/v1/runtime/push-messages", "/v1/runtime/create-task",
    "/v1/runtime/pull-task-input", "/v1/fleetx", "/V1/FLEET/activate-node", "/../v1/control",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_flowers_other_interfaces_are_not_there(path, port, plain):
    for method in ("GET", "POST"):
        assert plain.request(method, path).status_code == 404


@pytest.mark.parametrize(
    "path", ["push-messages", "x/push-messages", "push-messages/", "activate-node", "nothing"]
)
def test_strangers_can_blame_nobody(path, port, plain):
    port.blamed.clear()
    for method in ("GET", "POST", "PUT"):
        response = plain.request(method, f"/v1/fleet/{path}", content=b"garbage")
        assert response.status_code >= 300
    headers = {"content-type": "application/x-protobuf"}
    assert plain.post(f"/v1/fleet/{path}", content=b"\xff" * 99, headers=headers).status_code >= 300
    assert port.blamed == {}


def until_closed(raw) -> bytes:
    """All that the port says before it hangs up."""
    said = b""
    while piece := raw.recv(1000):
        said += piece
    return said


def memory() -> float:
    """What this process holds, in MB."""
    with open("/proc/self/status", encoding="utf-8") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


def test_a_body_that_is_declared_too_large_is_not_read(port):
    with port.raw() as raw:
        raw.sendall(
            b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\n"
            b"Content-Length: 2147483648\r\nContent-Type: application/protobuf\r\n\r\n"
        )
        assert b" 413 " in until_closed(raw)
    assert any("a message of more than 6 MB from 127.0.0.1" in line for line in port.said)


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"x", b"+5", b"9" * 5000])
def test_a_length_that_is_none_is_turned_away(length, port):
    with port.raw() as raw:
        raw.sendall(
            b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: "
            + length + b"\r\n\r\n"
        )  # fmt: skip
        assert b" 4" in raw.recv(100)[:13]
    assert works(port)


def test_a_body_without_end_is_cut_off(port):
    """What is still on its way then is thrown away; TLS allows for that, and uvicorn does it."""
    before, signed = memory(), port.signature("a")
    piece = b"%x\r\n" % (1 << 20) + bytes(1 << 20) + b"\r\n"
    with port.raw() as raw:
        raw.sendall(
            b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\n"
            b"Transfer-Encoding: chunked\r\nContent-Type: application/protobuf\r\n"
            + signed + b"\r\n"
        )  # fmt: skip
        with contextlib.suppress(OSError):
            for _ in range(200):
                raw.sendall(piece)
        assert memory() - before < 60
        assert b" 413 " in until_closed(raw)
    assert any("a message without end" in line for line in port.said)
    assert works(port)


def test_plain_http_gets_no_answer(port):
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://{port.address}/v1/fleet/activate-node")
    assert works(port)


def test_after_all_that_an_honest_silo_is_heard_and_each_attack_was_said_once(port, plain):
    assert works(port)
    for _ in range(3):
        plain.get("/elsewhere")
    assert len(port.said) == len(set(port.said))
    assert sum("a request that no silo makes from 127.0.0.1" in line for line in port.said) == 1
