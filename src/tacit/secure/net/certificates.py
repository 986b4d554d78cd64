"""Certificates of a consortium: one small authority, and one certificate with its key per party.

    ca.pem         whom everybody trusts                       (goes to every party)
    <name>.pem     a party's certificate and key in one file   (goes to this party only)
    ca.key         signs further parties                       (stays with whoever made the folder)

A party is known by the name in its certificate, wherever it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.errors import TacitError
from tacit.secure.jobs.job import COORDINATOR, DEALER, check_name, server_name

DAYS = 365
AUTHORITY_DAYS = 3650
"""The authority lives longer than what it signs, so that parties can be added later."""


def make_certificates(
    folder: Path, servers: int, clients: Iterable[str], days: int = DAYS
) -> list[str]:
    """Make what is missing in this folder; returns the names of the parties that were added."""
    if servers < 1:
        raise TacitError(f"{servers} servers: at least 1 is needed")
    if days < 1:
        raise TacitError(f"certificates for {days} days: at least 1 is needed")
    clients = list(clients)
    for name in clients:
        check_name(name)
    hosts = [*map(server_name, range(servers)), DEALER]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, key = authority_of(folder, days)
    added = []
    for name in [*hosts, COORDINATOR, *clients]:
        path = folder / f"{name}.pem"
        if not path.exists():
            write_secret(path, _party(name, name in hosts, authority, key, days))
            added.append(name)
    return added


def authority_of(
    folder: Path, days: int = DAYS
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority of this folder and its key; made where the folder has none."""
    certificate, secret = folder / "ca.pem", folder / "ca.key"
    if certificate.exists() and secret.exists():
        try:
            key = serialization.load_pem_private_key(secret.read_bytes(), password=None)
            found = x509.load_pem_x509_certificate(certificate.read_bytes())
        except ValueError:
            found = key = None
        if found is None or not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TacitError(f"{secret} or {certificate} is damaged: give an empty folder")
        return found, key
    if any(folder.glob("*.pem")) or secret.exists():
        raise TacitError(
            f"{folder} has certificates but not both ca.pem and ca.key: "
            "give the folder they were made in, or an empty one"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("tacit consortium")
    made = (
        _unsigned(name, name, key.public_key(), key, max(days, AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_secret(secret, _key_bytes(key))
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return made, key


def _party(
    name: str,
    host: bool,
    authority: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
) -> bytes:
    # Nobody may take a client's certificate and pose as somebody to connect to.
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH] + [ExtendedKeyUsageOID.SERVER_AUTH] * host
    return b"".join(issue(name, [x509.DNSName(name)], purposes, authority, signer, days))


def issue(
    name: str,
    addresses: Sequence[x509.GeneralName],
    purposes: Sequence[x509.ObjectIdentifier],
    authority: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    days: int = DAYS,
) -> tuple[bytes, bytes]:
    """A certificate that the authority signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _unsigned(_name(name), authority.subject, key.public_key(), signer, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _key_bytes(key)


def _unsigned(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of parties differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(signed_by, critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    encrypting = dict.fromkeys(("key_encipherment", "data_encipherment", "key_agreement"), False)
    others = dict.fromkeys(("content_commitment", "encipher_only", "decipher_only"), False)
    signing = {"key_cert_sign": authority, "crl_sign": authority}
    return x509.KeyUsage(digital_signature=not authority, **signing, **encrypting, **others)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_secret(path: Path, content: bytes) -> None:
    """Readable for its owner only, from the first byte on."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
