"""OpenSSL accepts the certificates, and they have the names and usages they were issued for."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from odradek_operator.security.pki import (
    CLOCK_SKEW_S,
    InvalidCertificateError,
    KeyPair,
    Subject,
    Usage,
    belongs,
    days,
    from_der,
    issue,
    new_ca,
    read,
)
from odradek_testkit.bundles import read_bundle

NOW = 1_800_000_000.0
BROKER = Subject("broker", "odradek.dev", dns=("localhost", "main-0.main"), ips=("127.0.0.1",))


def test_a_ca_signs_a_certificate_with_names_and_dates() -> None:
    ca = new_ca("main cluster CA 1", NOW, days(100))
    pair = issue(ca, BROKER, Usage.SERVER_AND_CLIENT, NOW, days(30))
    authority, found = read(ca.certificate_pem), read(pair.certificate_pem)
    assert authority.is_ca
    assert not found.is_ca
    assert found.issuer_key_id == authority.key_id == authority.issuer_key_id
    assert found.dns == {"localhost", "main-0.main"}
    assert found.ips == {"127.0.0.1"}
    assert (found.not_before, found.not_after) == (NOW - CLOCK_SKEW_S, NOW + days(30))
    assert found.distinguished_name == "CN=broker,O=odradek.dev"
    assert belongs(pair)
    assert belongs(ca)
    assert not belongs(KeyPair(pair.certificate_pem, ca.key_pem))


def test_a_certificate_never_outlives_its_ca() -> None:
    ca = new_ca("ca", NOW, days(10))
    pair = issue(ca, Subject("late"), Usage.CLIENT, NOW + days(4), days(30))
    assert read(pair.certificate_pem).not_after == NOW + days(10)


def test_a_bundle_is_read_in_its_order() -> None:
    old, new = new_ca("old", NOW, days(10)), new_ca("new", NOW, days(10))
    bundle = old.certificate_pem + new.certificate_pem
    assert [c.common_name for _, c in read_bundle(bundle)] == ["old", "new"]
    assert b"".join(pem for pem, _ in read_bundle(bundle)) == bundle


def test_errors_and_representations_contain_no_key() -> None:
    ca = new_ca("ca", NOW, days(10))
    assert "PRIVATE" not in repr(ca)
    with pytest.raises(InvalidCertificateError, match="not a certificate"):
        read(b"nothing")
    with pytest.raises(InvalidCertificateError, match="private key is not in PEM") as failure:
        issue(KeyPair(ca.certificate_pem, b"secret"), BROKER, Usage.SERVER, NOW, days(1))
    assert "secret" not in str(failure.value)
    with pytest.raises(ValueError, match="longer than 64 characters"):
        new_ca("x" * 65, NOW, days(1))


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_tls_accepts_both_sides(tmp_path: Path, name: str) -> None:
    """A handshake in memory with certificates required on both sides."""
    now = time.time()
    ca = new_ca("ca", now, days(10))
    served = _handshake(
        tmp_path, name, ca, issue(ca, BROKER, Usage.SERVER_AND_CLIENT, now, days(1)), ca
    )
    assert served == "broker"


def test_tls_refuses_a_certificate_of_another_ca_an_expired_one_and_the_wrong_usage(
    tmp_path: Path,
) -> None:
    now = time.time()
    ca, other = new_ca("ca", now, days(10)), new_ca("ca", now, days(10))
    cases = {
        "certificate verify failed": issue(other, BROKER, Usage.SERVER, now, days(1)),
        "certificate has expired": issue(ca, BROKER, Usage.SERVER, now - days(2), days(1)),
        "unsuitable certificate purpose": issue(ca, BROKER, Usage.CLIENT, now, days(1)),
    }
    for message, pair in cases.items():
        with pytest.raises(ssl.SSLError, match=message):
            _handshake(tmp_path, "localhost", ca, pair, ca)


def _handshake(
    directory: Path, name: str, trusted: KeyPair, served: KeyPair, clients: KeyPair
) -> str:
    """Returns the common name that the server presented."""
    now = time.time()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(cadata=clients.certificate_pem.decode())
    server.load_cert_chain(_store(directory / "server.pem", served))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=trusted.certificate_pem.decode())
    own = issue(clients, Subject("alice"), Usage.CLIENT, now, days(1))
    client.load_cert_chain(_store(directory / "client.pem", own))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    der = ours.getpeercert(binary_form=True)
    assert der is not None
    return from_der(der).common_name


def _store(path: Path, pair: KeyPair) -> Path:
    path.write_bytes(pair.key_pem + pair.certificate_pem)
    return path
