"""Frames over TLS, and links on top of them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import tracemalloc

import numpy as np
import pytest

from tacit.secure.net import tls
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.links import PartyError
from tacit.secure.net.tls import Identity, TlsLinks
from tests.secure.running import raw_frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, 2, ["ann"])
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """The same names, by another authority."""
    folder = tmp_path_factory.mktemp("foreign")
    make_certificates(folder, 2, ["ann"])
    return folder


def receiving(identity, plain):
    return identity.accept(identity.begin(plain), 2)


@pytest.fixture
def connect(folder):
    """`connect(a, b)`: both ends of a connection from a to b."""
    with contextlib.ExitStack() as stack:

        def make(a, b):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            accepted = []

            def accept():
                channel = receiving(Identity(folder, b), listener.accept()[0])
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
        (raw_frame(magic=b"GET "), "sent bytes that are not a message where 'x' was expected"),
        (raw_frame(job=b"1" * 16), "sent a message of another job where 'x'"),
        (raw_frame(number=0), "sent message number 0 in place of 1 where 'x'"),
        (raw_frame(number=2), "sent message number 2 in place of 1 where 'x'"),
        (raw_frame(label=b"y"), "sent 'y' of 4 bytes where 'x' of 4 was expected"),
        (raw_frame(label=b"\xff"), "of 4 bytes where 'x' of 4 was expected"),
        (raw_frame(length=5), "sent 'x' of 5 bytes where 'x' of 4 was expected"),
        (raw_frame(length=2**63), f"sent 'x' of {2**63} bytes where 'x' of 4"),
        (raw_frame(label=b"x" * 5000), "sent a label of 5000 bytes where 'x'"),
        (raw_frame(payload=b"12")[:-1], "closed the connection where 'x' was expected"),
        (b"", "closed the connection where 'x' was expected"),
    ],
)
def test_anything_but_the_expected_frame_is_the_senders_fault(connect, sent, sentence):
    near, far = connect("ann", "server-0")
    near.sock.write((sent,), None)
    near.cut()
    with pytest.raises(PartyError) as caught:
        far.read_into("x", memoryview(bytearray(4)), 2)
    assert caught.value.party == "ann"
    assert sentence in str(caught.value)


def test_a_huge_length_reserves_no_memory(connect):
    near, far = connect("ann", "server-0")
    near.sock.write((raw_frame(length=1 << 40, payload=b""),), None)
    tracemalloc.start()
    with pytest.raises(PartyError, match=f"'x' of {1 << 40} bytes where 'x' of at most"):
        far.read_json("x", 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("text", [b"[1, 2]", b"{", b"\xff", b"[" * 100_000])
def test_json_that_is_none_is_the_senders_fault(connect, text):
    near, far = connect("ann", "server-0")
    near.sock.write((raw_frame(length=len(text), payload=text),), None)
    with pytest.raises(PartyError, match="sent a 'x' that is not a JSON object"):
        far.read_json("x", 2)


def test_silence_ends_with_the_patience(connect):
    _, far = connect("ann", "server-0")
    begun = time.monotonic()
    with pytest.raises(PartyError, match=r"ann sent nothing for 0\.2 s where 'x' was expected"):
        far.read_into("x", memoryview(bytearray(4)), 0.2)
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize("begun", [0, 3, 44])
def test_who_trickles_is_as_late_as_who_is_silent(connect, begun):
    """Before the head, inside it, and inside the payload."""
    near, far = connect("ann", "server-0")
    frame = raw_frame(length=1000, payload=bytes(1000))
    over = threading.Event()

    def trickle():
        near.sock.write((frame[:begun],), None)
        for byte in frame[begun:]:
            with contextlib.suppress(OSError):
                near.sock.write((bytes([byte]),), None)
            if over.wait(0.1):
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    began = time.monotonic()
    with pytest.raises(PartyError, match=r"ann sent too little for 0\.4 s where 'x' was expected"):
        far.read_into("x", memoryview(bytearray(1000)), 0.4)
    over.set()
    thread.join()
    assert time.monotonic() - began < 2


def test_who_reads_a_little_at_a_time_is_late_as_well(connect):
    near, far = connect("ann", "server-0")
    # The kernel keeps little, so that the receiver is waited for.
    near.sock.plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
    far.sock.plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
    over = threading.Event()

    def read():
        while not over.wait(0.05):
            near.sock.plain.recv(1 << 14)

    thread = threading.Thread(target=read)
    thread.start()
    began = time.monotonic()
    with pytest.raises(PartyError, match=r"ann did not take 'answer' within 0\.4 s"):
        far.write("answer", memoryview(bytes(1 << 20)), 0.4)
    over.set()
    thread.join()
    assert time.monotonic() - began < 5


def test_a_client_cannot_keep_a_server_waiting_by_signs_of_life(connect):
    near, far = connect("ann", "server-0")
    near.write_sign_of_life()
    with pytest.raises(PartyError, match="ann sent '' of 0 bytes where 'x' of 4 was expected"):
        far.read_into("x", memoryview(bytearray(4)), 2)


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


def test_a_client_that_stops_reading_is_waited_for_as_long_as_the_patience(connect):
    near, far = connect("ann", "server-0")
    links = TlsLinks("server-0", {"ann": far}, {"ann": far}, patience=0.4)
    begun = time.monotonic()
    with pytest.raises(PartyError, match=r"ann did not take 'answer' within 0\.4 s"):
        links.send("ann", "answer", np.zeros(60 << 20, np.uint8))
    assert time.monotonic() - begun < 3
    links.close()
    near.close()


def test_a_slow_client_of_one_server_does_not_make_the_others_lose_patience(connect):
    """They hear signs of life from the server that they wait for, as long as it gets on itself."""
    client, upload = connect("ann", "server-0")
    to_1, from_0 = connect("server-0", "server-1")
    from_0.signs_of_life = True
    busy = TlsLinks("server-0", {"server-1": to_1}, {"ann": upload}, 0.4, ["server-1"])
    waiting = TlsLinks("server-1", {}, {"server-0": from_0}, 0.4)

    def serve():
        for number in range(6):
            busy.receive("ann", f"row {number}", (4,))
        busy.send("server-1", "product", b"done")
        with pytest.raises(PartyError, match="ann sent nothing for"):
            busy.receive("ann", "more", (4,))

    def upload_slowly():
        for number in range(6):
            time.sleep(0.25)
            client.write(f"row {number}", memoryview(b"abcd"), 1)

    threads = [threading.Thread(target=target) for target in (serve, upload_slowly)]
    for thread in threads:
        thread.start()
    found = waiting.receive("server-0", "product", (4,))  # after 1.5 s, with a patience of 0.4
    assert found.tobytes() == b"done"
    with pytest.raises(PartyError, match=r"server-0 sent nothing for 0\.4 s"):
        waiting.receive("server-0", "more", (4,))  # now it is stuck, and says nothing any more
    for thread in threads:
        thread.join()
    busy.close()
    waiting.close()
    client.close()


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
        with contextlib.suppress(OSError, tls.NotAdmitted), listener:
            receiving(Identity(folder, name), listener.accept()[0]).close()

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
