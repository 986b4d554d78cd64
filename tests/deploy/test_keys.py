"""What a run's parties know each other by: files, modes, and a real handshake."""

from __future__ import annotations

import socket
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tacit.deploy.keys import load_node_key, load_public, make_keys, make_node_key
from tacit.errors import TacitError

SILOS = ["ann", "b-o_b.2"]
SECRET = ["ca.key", "coordinator/server.key", "ann/node.key", "b-o_b.2/node.key"]
PUBLIC = [
    "ca.pem", "coordinator/ca.pem", "coordinator/server.pem", "coordinator/keys/ann.pub",
    "coordinator/keys/b-o_b.2.pub", "ann/ca.pem", "ann/node.pub", "b-o_b.2/ca.pem",
    "b-o_b.2/node.pub",
]  # fmt: skip


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "new"
    made = make_keys(folder, SILOS, ["fl.example.org", "10.0.0.7", "::1"])
    return folder, made


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_one_call_makes_all_that_a_trial_needs(keys):
    folder, made = keys
    assert made == sorted(folder / name for name in [*SECRET, *PUBLIC])
    assert set(contents(folder)) == set(made)
    for name in SECRET:
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    for name in PUBLIC:
        assert b"PRIVATE" not in (folder / name).read_bytes()
    trusted = (folder / "ca.pem").read_bytes()
    for party in ["coordinator", *SILOS]:
        assert (folder / party / "ca.pem").read_bytes() == trusted
    for silo in SILOS:
        assert stat.S_IMODE((folder / silo).stat().st_mode) == 0o700


def test_a_second_call_keeps_everything_and_a_new_silo_is_added(tmp_path):
    make_keys(tmp_path, ["ann"])
    before = contents(tmp_path)
    assert make_keys(tmp_path, ["ann"]) == []
    added = make_keys(tmp_path, ["ann", "bob"])
    names = ["bob/ca.pem", "bob/node.key", "bob/node.pub", "coordinator/keys/bob.pub"]
    assert added == [tmp_path / name for name in names]
    after = contents(tmp_path)
    assert {path: after[path] for path in before} == before


def test_the_public_key_is_in_flowers_bytes_and_belongs_to_the_private_one(keys):
    folder, _ = keys
    known = load_public(folder / "coordinator" / "keys" / "ann.pub")
    private = load_node_key(folder / "ann" / "node.key")
    assert known == private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert known != load_public(folder / "b-o_b.2" / "node.pub")
    public = serialization.load_pem_public_key(known)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert isinstance(public.curve, ec.SECP384R1)
    signature = private.sign(b"it is me", ec.ECDSA(hashes.SHA256()))
    public.verify(signature, b"it is me", ec.ECDSA(hashes.SHA256()))


def test_flower_itself_finds_the_same_bytes(keys):
    asymmetric = pytest.importorskip("flwr.supercore.primitives.asymmetric")
    folder, _ = keys
    private = load_node_key(folder / "ann" / "node.key")
    assert load_public(folder / "ann" / "node.pub") == asymmetric.public_key_to_bytes(
        private.public_key()
    )


def test_a_silo_makes_its_own_pair_and_a_lost_public_half_comes_back(tmp_path):
    public = make_node_key(tmp_path / "mine")
    assert public == tmp_path / "mine" / "node.pub"
    assert sorted(path.name for path in public.parent.iterdir()) == ["node.key", "node.pub"]
    was = public.read_bytes()
    public.unlink()
    assert make_node_key(tmp_path / "mine").read_bytes() == was
    (tmp_path / "mine" / "node.key").unlink()
    with pytest.raises(TacitError, match=r"node\.pub is there without its node\.key"):
        make_node_key(tmp_path / "mine")


def test_the_server_certificate_is_for_its_hosts_and_for_serving_only(keys):
    folder, _ = keys
    found = x509.load_pem_x509_certificate((folder / "coordinator/server.pem").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "fl.example.org"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [
        "127.0.0.1", "10.0.0.7", "::1",
    ]  # fmt: skip
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]


def greet(folder, authority, name) -> bytes:
    """What a client that trusts this authority hears from the coordinator under this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "coordinator/server.pem", folder / "coordinator/server.key")
    trusting = ssl.create_default_context(cafile=authority)

    def answer(listening):
        connection, _ = listening.accept()
        with connection:
            try:
                with context.wrap_socket(connection, server_side=True) as secured:
                    secured.sendall(b"hello")
            except OSError:
                pass  # the client hung up, which it says itself

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(answer, listening)
        try:
            with (
                socket.create_connection(listening.getsockname(), timeout=5) as plain,
                trusting.wrap_socket(plain, server_hostname=name) as secured,
            ):
                return secured.recv(5)
        finally:
            serving.result(timeout=5)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "fl.example.org", "10.0.0.7", "::1"])
def test_silos_that_trust_the_authority_reach_the_coordinator(keys, name):
    folder, _ = keys
    assert greet(folder, folder / "ann" / "ca.pem", name) == b"hello"


def test_another_name_and_another_authority_are_refused(keys, tmp_path):
    folder, _ = keys
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        greet(folder, folder / "ann" / "ca.pem", "other.example.org")
    make_keys(tmp_path, ["ann"])
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(folder, tmp_path / "ann" / "ca.pem", "localhost")


@pytest.mark.parametrize("host", ["", "a b", "example.org:9092", "https://x", "-a.org", "é.org"])
def test_what_is_no_host_is_refused_before_anything_is_written(tmp_path, host):
    with pytest.raises(TacitError, match="not an address of a host"):
        make_keys(tmp_path / "new", ["ann"], [host])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("silo", ["../x", "coordinator", "ca", ""])
def test_a_silo_needs_a_name_of_its_own(tmp_path, silo):
    with pytest.raises(TacitError, match="cannot be the name"):
        make_keys(tmp_path / "new", ["ann", silo])
    assert not (tmp_path / "new").exists()


def test_what_does_not_fit_together_is_said(tmp_path):
    make_keys(tmp_path, ["ann"])
    with pytest.raises(TacitError, match=r"server\.pem is not for host fl\.example\.org: remove"):
        make_keys(tmp_path, ["ann"], ["fl.example.org"])
    (tmp_path / "coordinator/keys/ann.pub").write_bytes(b"another")
    with pytest.raises(TacitError, match=r"ann\.pub belongs to other keys"):
        make_keys(tmp_path, ["ann"])
    (tmp_path / "coordinator/server.key").unlink()
    with pytest.raises(TacitError, match=r"only one of server\.pem and server\.key"):
        make_keys(tmp_path, ["ann"])


def test_files_that_are_no_keys_are_named(keys, tmp_path):
    folder, _ = keys
    (tmp_path / "junk").write_text("nothing")
    for load in (load_node_key, load_public):
        with pytest.raises(TacitError, match="junk is not "):
            load(tmp_path / "junk")
        with pytest.raises(TacitError, match="absent cannot be read: No such file"):
            load(tmp_path / "absent")
    with pytest.raises(TacitError, match=r"ask the silo for its node\.pub"):
        load_public(folder / "ann" / "node.key")
