"""Frames over TLS, links between processes, and who is not let in."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from tacit.errors import TacitError
from tacit.secure import tls
from tacit.secure.certificates import make_certificates
from tacit.secure.channel import HEADER, MAGIC, NO_JOB
from tacit.secure.job import InProcess
from tacit.secure.links import PartyError
from tacit.secure.local import LocalServers
from tacit.secure.remote import Remote
from tacit.secure.tls import Identity, TlsLinks
from tests.secure.running import (
    CLIENTS,
    SERVE,
    fail,
    local_servers,
    make_job,
    meanwhile,
    secrets_of,
    succeed,
    wait_for_line,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, 2, ["ann"])
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """The same names, by another authority."""
    folder = tmp_path_factory.mktemp("foreign")
    make_certificates(folder, 3, CLIENTS)
    return folder


@pytest.fixture
def connect(folder):
    """`connect(a, b)`: both ends of a connection from a to b."""
    with contextlib.ExitStack() as stack:

        def make(a, b):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            accepted = []

            def accept():
                channel = Identity(folder, b).accept(listener.accept()[0], 2)
                channel.read_json("hello", 2)
                channel.write_json("welcome", {}, 2)
                accepted.append(channel)

            thread = threading.Thread(target=accept)
            thread.start()
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            near = Identity(folder, a).connect(address, b, {}, 2)
            thread.join()
            for channel in (near, accepted[0]):
                stack.callback(channel.close)
            return near, accepted[0]

        yield make


def frame(magic=MAGIC, job=NO_JOB, number=1, label=b"x", length=4, payload=b"1234"):
    return HEADER.pack(magic, job, number, len(label), length) + label + payload


def test_a_frame_arrives_as_it_was_sent(connect):
    near, far = connect("ann", "server-0")
    for size in (0, 1, 1000, 1 << 14, (1 << 14) + 1, 3_000_000):
        sent = np.random.default_rng(0).bytes(size)
        thread = threading.Thread(target=near.write, args=("x", memoryview(sent), 2))
        thread.start()
        found = bytearray(size)
        far.read_into("x", memoryview(found), 2)
        thread.join()
        assert found == sent


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (frame(magic=b"GET "), "sent bytes that are no message where 'x' was expected"),
        (frame(job=b"1" * 16), "sent a message of another job where 'x'"),
        (frame(number=0), "sent message number 0 in place of 1 where 'x'"),
        (frame(number=2), "sent message number 2 in place of 1 where 'x'"),
        (frame(label=b"y"), "sent 'y' of 4 bytes where 'x' of 4 was expected"),
        (frame(label=b"\xff"), "of 4 bytes where 'x' of 4 was expected"),
        (frame(length=5), "sent 'x' of 5 bytes where 'x' of 4 was expected"),
        (frame(length=2**63), f"sent 'x' of {2**63} bytes where 'x' of 4"),
        (frame(label=b"x" * 5000), "sent a label of 5000 bytes where 'x'"),
        (frame(payload=b"12")[:-1], "closed the connection where 'x' was expected"),
        (b"", "closed the connection where 'x' was expected"),
    ],
)
def test_anything_but_the_expected_frame_is_the_senders_fault(connect, sent, sentence):
    near, far = connect("ann", "server-0")
    near.sock.sendall(sent)
    near.cut()
    with pytest.raises(PartyError) as caught:
        far.read_into("x", memoryview(bytearray(4)), 2)
    assert caught.value.party == "ann"
    assert sentence in str(caught.value)


def test_a_huge_length_reserves_no_memory(connect):
    near, far = connect("ann", "server-0")
    near.sock.sendall(frame(length=1 << 40, payload=b""))
    tracemalloc.start()
    with pytest.raises(PartyError, match=f"'x' of {1 << 40} bytes where 'x' of at most"):
        far.read_json("x", 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("text", [b"[1, 2]", b"{", b"\xff", b"[" * 100_000])
def test_json_that_is_none_is_the_senders_fault(connect, text):
    near, far = connect("ann", "server-0")
    near.sock.sendall(frame(length=len(text), payload=text))
    with pytest.raises(PartyError, match="sent a 'x' that is no JSON object"):
        far.read_json("x", 2)


def test_silence_ends_with_the_patience(connect):
    _, far = connect("ann", "server-0")
    begun = time.monotonic()
    with pytest.raises(PartyError, match=r"ann sent nothing for 0\.2 s where 'x' was expected"):
        far.read_into("x", memoryview(bytearray(4)), 0.2)
    assert time.monotonic() - begun < 1


def test_two_servers_that_send_more_than_fits_at_once_do_not_wait_for_each_other(
    connect, monkeypatch
):
    monkeypatch.setattr(tls, "QUEUED", 1 << 20)
    to_1, from_0 = connect("server-0", "server-1")
    to_0, from_1 = connect("server-1", "server-0")
    links = [
        TlsLinks("server-0", {"server-1": to_1}, {"server-1": from_1}, 5, ["server-1"]),
        TlsLinks("server-1", {"server-0": to_0}, {"server-0": from_0}, 5, ["server-0"]),
    ]
    found = {}

    def both(index):
        other = f"server-{1 - index}"
        for number in range(3):  # the queue takes the first, however long it is
            large = np.full(1 << 20, index, np.uint64)
            links[index].send(other, f"large {number}", large)
            found[index] = links[index].receive(other, f"large {number}", large.shape, np.uint64)
        links[index].flush()

    threads = [threading.Thread(target=both, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (found[0] == 1).all() and (found[1] == 0).all()
    for one in links:
        one.close()


def test_a_client_that_reads_slowly_holds_the_others_no_longer_than_the_patience(connect):
    near, far = connect("ann", "server-0")
    links = TlsLinks("server-0", {"ann": far}, {"ann": far}, patience=0.6)
    reading = threading.Event()

    def read_slowly():
        with contextlib.suppress(OSError):
            while not reading.wait(0.05) and near.sock.recv(1 << 16):
                pass

    thread = threading.Thread(target=read_slowly)
    thread.start()
    begun = time.monotonic()
    with pytest.raises(PartyError) as caught:
        for number in range(1000):
            links.send("ann", f"answer {number}", np.zeros(1 << 20, np.uint8))
    assert caught.value.party == "ann"
    assert time.monotonic() - begun < 2
    reading.set()
    links.close()
    thread.join()


def test_a_failed_send_is_told_at_the_next_one_or_at_the_end(connect):
    near, far = connect("server-0", "server-1")
    links = TlsLinks("server-0", {"server-1": near}, {}, 1, ["server-1"])
    far.close()
    with pytest.raises(PartyError, match="server-1 closed the connection before it took 'x'"):
        for _ in range(100):
            links.send("server-1", "x", np.zeros(1 << 16, np.uint8))
            links.flush()
    links.close()


def answering(folder, name):
    """The address of something that shows the certificate of this party."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        with contextlib.suppress(OSError, tls.Refused), listener:
            Identity(folder, name).accept(listener.accept()[0], 2).close()

    threading.Thread(target=accept, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_who_is_connected_to_must_have_the_expected_name(folder):
    with pytest.raises(PartyError, match=r"server-1 is not at .*, but server-0: check"):
        Identity(folder, "ann").connect(answering(folder, "server-0"), "server-1", {}, 2)


def test_a_client_cannot_pose_as_a_server(folder):
    with pytest.raises(PartyError, match="its certificate is that of a client"):
        Identity(folder, "coordinator").connect(answering(folder, "ann"), "ann", {}, 2)


def test_a_server_of_another_authority_is_not_trusted(folder, foreign):
    with pytest.raises(PartyError, match="not signed by this consortium's authority"):
        Identity(folder, "ann").connect(answering(foreign, "server-0"), "server-0", {}, 2)


@pytest.fixture(scope="module")
def servers():
    with local_servers() as servers:
        yield servers


@pytest.fixture(autouse=True)
def survives(request):
    """Whatever a test does to the servers, they go on."""
    yield
    if "servers" in request.fixturenames:
        succeed(request.getfixturevalue("servers"))


def test_processes_give_what_threads_give(servers):
    job = make_job(dealt=True)
    there = servers.remote.run(job, secrets_of(job))
    here = InProcess().run(job, secrets_of(job))
    assert np.array_equal(there.opened, here.opened)
    assert there.sent == here.sent
    told = there.statistics["server-0"]
    assert told["sent_bytes"] == {name: 8000 for name in told["sent_bytes"]}
    assert set(told["sent_bytes"]) == {"server-1", "server-2", *CLIENTS, "coordinator"}
    assert told["sent_messages"] == 6
    assert 0 < told["seconds"] < 5 and 10 << 20 < told["peak_memory"] < 1 << 30
    assert f"job {job.id[:8]} (add): done in" in servers.log("server-0")


def test_large_messages(servers):
    outcome = succeed(servers, words=300_000)
    assert outcome.sent["clients"] == 3 * 3 * 300_000 * 8


def test_answers_may_take_longer_than_the_patience(servers):
    job = make_job(hold="answer", seconds=1.5)
    remote = servers.remote
    remote.patience = 1.0  # of coordinator and clients; servers have more
    assert set(remote.run(job, secrets_of(job)).answers) == set(CLIENTS)


def test_a_job_id_works_once(servers):
    job = make_job()
    servers.remote.run(job, secrets_of(job))
    error = fail(servers.remote, make_job(id=job.id, words=5))
    assert "was here before: every job needs a fresh id" in str(error)


def test_one_job_at_a_time_and_the_running_one_goes_on(servers):
    job = make_job(hold="exchange", seconds=2)
    refused = []

    def second():
        with pytest.raises(PartyError) as caught:
            succeed(servers)
        refused.append(caught.value)

    thread = meanwhile(servers, job, "server-1", second)
    servers.remote.run(job, secrets_of(job))
    thread.join()
    assert f"is busy with another job {job.id[:8]} (add): try later" in str(refused[0])


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"kind": "unknown"}, "jobs of kind 'unknown' are not known: use one of"),
        ({"id": "short"}, "cannot be the id of a job"),
        ({"id": 7}, "cannot be the id of a job"),
        ({"nonsense": 1}, "the job is not understood"),
        ({"servers": 2}, "check --peers"),
    ],
)
def test_jobs_that_cannot_be_done_are_refused(servers, changed, sentence):
    job = make_job()
    channel = coordinator(servers)
    channel.write_json("job", job.to_json() | changed, 2)
    assert sentence in channel.read_json("answer", 5)["refused"]
    channel.close()


def coordinator(servers, name="coordinator"):
    address = servers.addresses.of("server-1")
    identity = Identity(servers.folder, name)
    return identity.connect(address, "server-1", {"role": "job"}, 5)


def test_only_the_coordinator_starts_jobs(servers):
    for name in ("ann", "server-0", "dealer"):
        with pytest.raises(PartyError, match=f"{name} may not start jobs"):
            coordinator(servers, name)


def test_a_coordinator_that_leaves_frees_the_servers_at_once(servers):
    job = make_job()
    channel = coordinator(servers)
    channel.write_json("job", job.to_json(), 2)
    assert channel.read_json("answer", 2) == {}
    channel.write_json("start", {}, 2)
    channel.close()
    begun = time.monotonic()
    succeed(servers)
    assert time.monotonic() - begun < 1.5


def test_who_takes_no_part_is_refused(servers):
    job = make_job()
    channel = coordinator(servers)
    channel.write_json("job", job.to_json() | {"clients": ["ann", "bob"]}, 2)
    assert channel.read_json("answer", 2) == {}
    hello = {"role": "link", "job": job.id}
    address = servers.addresses.of("server-1")
    try:
        with pytest.raises(PartyError, match="refused cem: cem takes no part in this job"):
            Identity(servers.folder, "cem").connect(address, "server-1", hello, 2)
        Identity(servers.folder, "ann").connect(address, "server-1", hello, 2).close()
        with pytest.raises(PartyError, match="ann is connected already"):
            Identity(servers.folder, "ann").connect(address, "server-1", hello, 2)
        other = hello | {"job": "0" * 32}
        with pytest.raises(PartyError, match="bob asks for a job that is not open here"):
            Identity(servers.folder, "bob").connect(address, "server-1", other, 2)
    finally:
        channel.close()


def test_certificates_of_another_authority_are_refused_on_both_sides(servers, foreign):
    with pytest.raises(PartyError, match="not signed by this consortium's authority"):
        Remote(servers.addresses.servers, None, foreign, 3).run(make_job(), {})
    # A client that would trust anybody is not let in either.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(foreign / "ann.pem")
    refused_with(servers, context, "its certificate was not signed by this consortium's authority")


def test_a_connection_without_a_certificate_is_refused(servers):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    refused_with(servers, context, "peer did not return a certificate")


def test_older_tls_is_refused(servers):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(servers.folder / "ann.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    refused_with(servers, context, "unsupported protocol")


def refused_with(servers, context, sentence):
    host, port = servers.addresses.of("server-1").split(":")
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), 2) as plain,
        context.wrap_socket(plain) as sock,
    ):
        assert not sock.recv(1)
    wait_for_line(servers, "server-1", sentence)
    line = next(line for line in servers.log("server-1").splitlines() if sentence in line)
    assert line.startswith("refused 127.0.0.1: ")


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" * 100, b""])
def test_garbage_in_place_of_tls_is_refused(servers, sent):
    host, port = servers.addresses.of("server-1").split(":")
    before = servers.log("server-1").count("refused 127.0.0.1")
    with socket.create_connection((host, int(port)), 2) as sock, contextlib.suppress(OSError):
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1000):
            pass
    wait_for_line(servers, "server-1", "refused 127.0.0.1", before + 1)


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" * 100,
        frame(number=0, label=b"hello", length=1 << 60, payload=b""),
        frame(number=0, label=b"hello", length=2, payload=b"[]"),
        struct.pack("!4s", MAGIC),
    ],
)
def test_garbage_in_place_of_a_greeting_is_refused(servers, sent):
    host, port = servers.addresses.of("server-1").split(":")
    context = Identity(servers.folder, "ann")._outgoing
    before = servers.log("server-1").count("ended the connection with 127.0.0.1: ann")
    with context.wrap_socket(socket.create_connection((host, int(port)), 2)) as sock:
        sock.sendall(sent)
        socket.socket.shutdown(sock, socket.SHUT_WR)
        with contextlib.suppress(OSError):
            assert not sock.recv(1)
    wait_for_line(servers, "server-1", "ended the connection with 127.0.0.1: ann", before + 1)


def test_a_job_for_other_servers_or_clients_without_certificates_is_not_begun(servers):
    with pytest.raises(TacitError, match="for 2 servers, but 3 are given"):
        servers.remote.run(make_job().__class__(servers=2, clients=("ann",)), {})
    with pytest.raises(TacitError, match=r"eve\.pem is missing"):
        servers.remote.run(make_job().__class__(servers=3, clients=("eve",)), {})


def test_a_server_needs_no_torch():
    code = "import serve, sys, tacit.secure.daemon; sys.exit('torch' in sys.modules)"
    folder = SERVE[1].removesuffix("/serve.py")
    assert subprocess.run([sys.executable, "-c", code], cwd=folder).returncode == 0


def test_the_command_starts_and_ends():
    with LocalServers(1, ["ann"]) as servers:
        process = servers.processes["server-0"]
        assert servers.log("server-0") == f"server-0 listens on {servers.addresses.servers[0]}\n"
        process.terminate()
        assert process.wait(5) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--party", "3", "--peers", "a:1,b:2"], "server-3 has no address"),
        (["--party", "x", "--peers", "a:1"], "--party x: give the number"),
        (["--party", "dealer", "--peers", "a:1"], "dealer has no address"),
        (["--party", "0", "--peers", "a"], "'a' is no address: write host:port"),
        (["--party", "0", "--peers", "192.0.2.1:9"], "cannot listen on 192.0.2.1:9"),
        (["--party", "1", "--peers", "a:1,b:70000"], "'b:70000' is no address"),
    ],
)
def test_wrong_options_are_one_sentence(folder, options, sentence):
    told = subprocess.run(
        [*SERVE, *options, "--certificates", str(folder)], capture_output=True, text=True
    )
    assert told.returncode == 2
    assert sentence in told.stderr and "Traceback" not in told.stderr
