"""What parties of a run across silos know each other by.

    coordinator/server.pem, server.key    whom silos connect to: a certificate, and its key
    coordinator/keys/<silo>.pub           who may connect: the public key of each silo
    <silo>/node.key, node.pub             a silo's own pair of keys
    */ca.pem                              who signed the coordinator's certificate
    ca.pem, ca.key                        signs for the coordinator; the key stays where it is

A trial is one call of `make_keys`. In earnest each silo calls `make_node_key` for itself and hands
out `node.pub` only: a private key that somebody else has made is not private.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tacit.errors import TacitError
from tacit.files import make_folder, replace
from tacit.secure.jobs.job import COORDINATOR, check_name
from tacit.secure.net.certificates import authority_of, issue, write_secret

HERE = ("localhost", "127.0.0.1")
"""Where the coordinator can always be reached from its own machine."""

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


def make_keys(folder: Path, silos: Sequence[str], hosts: Sequence[str] = ()) -> list[Path]:
    """Make what is missing for a coordinator at these hosts and for these silos.

    Returns the files that were added; what exists is kept.
    """
    for silo in silos:
        check_name(silo)
    wanted = dict.fromkeys((*HERE, *hosts))  # in order, each once
    addresses = [_address(host) for host in wanted]
    before = set(folder.rglob("*"))
    make_folder(folder)
    authority, signer = authority_of(folder)
    trusted = (folder / "ca.pem").read_bytes()
    coordinator = folder / COORDINATOR
    make_folder(coordinator / "keys")
    _put(coordinator / "ca.pem", trusted)
    certificate, key = coordinator / "server.pem", coordinator / "server.key"
    if certificate.exists() and key.exists():
        _check_addresses(certificate, addresses)
    elif certificate.exists() or key.exists():
        raise TacitError(
            f"{coordinator} has only one of server.pem and server.key: remove it, and both are "
            "made again"
        )
    else:
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH]
        made, secret = issue(COORDINATOR, addresses, purposes, authority, signer)
        write_secret(key, secret)
        replace(certificate, made)
    for silo in silos:
        make_node_key(folder / silo)
        _put(folder / silo / "ca.pem", trusted)
        _put(coordinator / "keys" / f"{silo}.pub", (folder / silo / "node.pub").read_bytes())
    return sorted(path for path in set(folder.rglob("*")) - before if path.is_file())


def make_node_key(folder: Path) -> Path:
    """A silo's pair of keys, unless it is there; returns the public one, to be handed out."""
    make_folder(folder)
    private, public = folder / "node.key", folder / "node.pub"
    if not private.exists():
        if public.exists():
            raise TacitError(
                f"{public} is there without its {private.name}: put that back, or remove the file "
                "to make a new pair"
            )
        made = ec.generate_private_key(ec.SECP384R1())
        form = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        write_secret(private, made.private_bytes(serialization.Encoding.PEM, *form))
    key = load_node_key(private).public_key()
    written = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _put(public, written + b"\n")
    return public


def load_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A silo's private key."""
    content = _read(path)
    try:
        found = serialization.load_ssh_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise TacitError(
            f"{path} is not an elliptic-curve key in OpenSSH's format without a password: give the "
            "silo's node.key"
        )
    return found


def load_public(path: Path) -> bytes:
    """A silo's public key, in the bytes that Flower compares: PEM, not OpenSSH."""
    content = _read(path)
    try:
        found = serialization.load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, ec.EllipticCurvePublicKey):
        raise TacitError(
            f"{path} is not a public elliptic-curve key in OpenSSH's format: ask the silo for its "
            "node.pub"
        )
    return found.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TacitError(
            f"{path} cannot be read: {error.strerror}; give the path of a key"
        ) from error


def _put(path: Path, content: bytes) -> None:
    """Write the file, or check that it already has this content."""
    if not path.exists():
        replace(path, content)
    elif path.read_bytes() != content:
        raise TacitError(
            f"{path} belongs to other keys than those beside it: remove it to have it made again, "
            "or give an empty folder"
        )


def _address(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOST.fullmatch(host):
        raise TacitError(
            f"{host!r} is not an address of a host: write a name such as fl.example.org, or an IP "
            "address, without a port"
        )
    return x509.DNSName(host)


def _check_addresses(certificate: Path, wanted: Sequence[x509.GeneralName]) -> None:
    """A certificate that was made for other hosts would only fail later, at the silos."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        has = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        has = ()
    for address in wanted:
        if address not in has:
            raise TacitError(
                f"{certificate} is not for host {address.value}: remove it and server.key, and "
                "both are made again"
            )
