"""Key stores and trust stores in every form that Kafka's users have."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from broker_tests.security.tls_support import Authority
from odradek_protocol.security.contexts import client_context, server_context
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.stores import Stores


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path / "tls")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A whole handshake in memory; raises ssl.SSLError if it fails."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = server.wrap_bio(to_server, to_client, server_side=True)
    other = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    left = [other, one]
    while left:
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                continue


def trust(authority: Authority) -> dict[str, str]:
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trusted()),
    }


def parts(path: Path) -> tuple[str, str]:
    """The private key and the certificates of a PEM file."""
    text = path.read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    return text[:at], text[at:]


def as_pkcs12(path: Path, password: str) -> Path:
    key_text, chain_text = parts(path)
    key = serialization.load_pem_private_key(key_text.encode(), None)
    chain = x509.load_pem_x509_certificates(chain_text.encode())
    target = path.with_suffix(".p12")
    target.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"server",
            key,  # type: ignore[arg-type]
            chain[0],
            chain[1:],
            serialization.BestAvailableEncryption(password.encode()),
        )
    )
    return target


def test_pem_file_inline_and_pkcs12(authority: Authority) -> None:
    path = authority.issue("server")
    key, chain = parts(path)
    encrypted = (
        serialization.load_pem_private_key(key.encode(), None)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
        .decode()
    )
    forms: list[dict[str, str]] = [
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)},
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": chain,
        },
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": encrypted.replace("\n", "\\n"),
            "ssl.key.password": "secret",
            "ssl.keystore.certificate.chain": chain,
        },
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(as_pkcs12(path, "secret")),
            "ssl.keystore.password": "secret",
        },
    ]
    client = client_context(trust(authority).get)
    for form in forms:
        shake_hands(server_context(form.get), client)


def test_an_unusable_store_is_named_in_the_error(authority: Authority, tmp_path: Path) -> None:
    path = authority.issue("server")
    other_key, _ = parts(authority.issue("other"))
    _, chain = parts(path)
    jks = tmp_path / "server.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    p12 = as_pkcs12(path, "secret")
    refused: list[tuple[dict[str, str], str]] = [
        ({}, "ssl.keystore.location .or ssl.keystore.key. must be set"),
        ({"ssl.keystore.location": str(jks)}, "keytool -importkeystore"),
        ({"ssl.keystore.location": str(path)}, "for PEM set ssl.keystore.type=PEM"),
        ({"ssl.keystore.location": "/nowhere.p12"}, "cannot be read: No such file"),
        (
            {"ssl.keystore.location": str(p12), "ssl.keystore.password": "wrong"},
            "is ssl.keystore.password right",
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": other_key,
                "ssl.keystore.certificate.chain": chain,
            },
            "do they belong together",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.trusted())},
            "has no private key",
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(path),
                "ssl.enabled.protocols": "TLSv1.1",
            },
            "supported are TLSv1.2, TLSv1.3",
        ),
    ]
    for settings, message in refused:
        with pytest.raises(SecurityError, match=message) as error:
            server_context(settings.get)
        assert "BEGIN" not in str(error.value)


@pytest.mark.java
def test_stores_of_keytool(authority: Authority, tmp_path: Path) -> None:
    """keytool writes PKCS12 unless it is asked for JKS."""
    trusted = tmp_path / "trusted.p12"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-storepass", "secret"]
    files = ["-file", str(authority.trusted()), "-keystore", str(trusted)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    client = client_context(
        {"ssl.truststore.location": str(trusted), "ssl.truststore.password": "secret"}.get
    )
    server = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("s"))}
    shake_hands(server_context(server.get), client)


def test_cipher_suites_have_java_names(authority: Authority) -> None:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("server")),
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,"
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    }
    context = server_context(settings.get)
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in context.get_ciphers()}
    assert {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"} <= names
    settings["ssl.cipher.suites"] = "TLS_AES_256_GCM_SHA384"
    assert server_context(settings.get).minimum_version is ssl.TLSVersion.TLSv1_3


def test_the_fingerprint_follows_the_content_behind_a_link(
    authority: Authority, tmp_path: Path
) -> None:
    """As Secret volumes are updated: the path stays, the link behind it is replaced."""
    link = tmp_path / "current.pem"
    link.symlink_to(authority.issue("one"))
    get = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(link)}.get
    before = Stores.of(get).fingerprint
    assert Stores.of(get).fingerprint == before
    link.unlink()
    link.symlink_to(authority.issue("two"))
    assert Stores.of(get).fingerprint != before
