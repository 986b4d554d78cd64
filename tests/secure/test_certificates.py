"""What the folder of a consortium holds, and what it does not let in."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import TacitError
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.tls import Identity

PARTIES = ["server-0", "server-1", "dealer", "coordinator", "ann", "b-o_b.2"]


def certificate(folder, name):
    return x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_every_party_gets_a_certificate_in_its_name_signed_by_the_authority(tmp_path):
    assert make_certificates(tmp_path, 2, ["ann", "b-o_b.2"], days=30) == PARTIES
    authority = certificate(tmp_path, "ca")
    for name in PARTIES:
        made = certificate(tmp_path, name)
        made.verify_directly_issued_by(authority)
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [name]
        assert made.subject.rfc4514_string() == f"CN={name}"
        left = made.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=29) < left <= timedelta(days=30)
        assert mode(tmp_path / f"{name}.pem") == 0o600
    assert mode(tmp_path / "ca.key") == 0o600
    assert b"PRIVATE" not in (tmp_path / "ca.pem").read_bytes()


def test_parties_are_added_later_by_the_same_authority_and_kept(tmp_path):
    make_certificates(tmp_path, 2, ["ann"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert make_certificates(tmp_path, 3, ["ann", "bob"]) == ["server-2", "bob"]
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())
    certificate(tmp_path, "bob").verify_directly_issued_by(certificate(tmp_path, "ca"))


@pytest.mark.parametrize("name", ["", "a b", "../x", "é", "-a", "a" * 65, "a/b", "a\n"])
def test_names_that_are_no_names_are_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(TacitError, match="cannot be the name of a client"):
        make_certificates(tmp_path / "new", 2, ["ann", name])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["ca", "dealer", "coordinator", "server-0", "server-9"])
def test_a_client_cannot_have_the_name_of_another_party(tmp_path, name):
    with pytest.raises(TacitError, match="means another party"):
        make_certificates(tmp_path, 2, [name])


def test_a_folder_without_its_authority_is_not_made_worse(tmp_path):
    make_certificates(tmp_path, 2, ["ann"])
    (tmp_path / "ca.key").unlink()
    with pytest.raises(TacitError, match=r"not both ca\.pem and ca\.key"):
        make_certificates(tmp_path, 3, ["bob"])
    (tmp_path / "ca.key").write_text("nothing")
    with pytest.raises(TacitError, match="is damaged"):
        make_certificates(tmp_path, 3, ["bob"])


def test_numbers_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(TacitError, match="0 servers"):
        make_certificates(tmp_path, 0, [])
    with pytest.raises(TacitError, match="0 days"):
        make_certificates(tmp_path, 1, [], days=0)


def test_missing_and_damaged_files_are_named(tmp_path):
    make_certificates(tmp_path, 2, [])
    with pytest.raises(TacitError, match=r"ann\.pem is missing: make it with"):
        Identity(tmp_path, "ann")
    (tmp_path / "ann.pem").write_text("nothing")
    with pytest.raises(TacitError, match=r"certificates of ann in .* cannot be read"):
        Identity(tmp_path, "ann")


def test_the_command_says_what_it_added(tmp_path):
    words = ["certificates", str(tmp_path), "--servers", "2", "--clients", "ann,bob"]
    first, second = (CliRunner().invoke(app, words) for _ in range(2))
    assert "added server-0, server-1, dealer, coordinator, ann, bob" in first.stdout
    assert "nothing was missing" in second.stdout
