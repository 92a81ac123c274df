"""Key stores and trust stores, as Kafka's users have them, into an `ssl.SSLContext`.

    Stores.of({"ssl.keystore.type": "PEM", "ssl.keystore.location": "server.pem", …}.get)

PEM (a file with the private key and the certificate chain, or both inline) and PKCS12. JKS is a
format of Java alone and is refused with the command that converts it. Everything is read into
memory first: `fingerprint` tells whether the content of a file changed, also behind a symbolic
link (Secret volumes of Kubernetes replace the link).
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from odradek_protocol.security.errors import SecurityError

Get = Callable[[str], str | None]

JKS_MAGIC = b"\xfe\xed\xfe\xed"
DER_SEQUENCE = b"\x30"
STORE_BYTES_MAX = 16 * 1024 * 1024  # the CAs of all browsers have 250 KB
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN ((?:[A-Z]+ )?PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL
)


@dataclass(frozen=True)
class KeyStore:
    """A private key with its certificate chain, the end certificate first; both are PEM texts."""

    key: str = field(repr=False)
    chain: str
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Stores:
    """The certificate that a side of a TLS connection presents, and its CAs; None: not set."""

    keys: KeyStore | None
    trusted: str | None  # PEM certificates
    fingerprint: str

    @classmethod
    def of(cls, get: Get) -> Stores:
        """From settings with Kafka's names. Raises SecurityError."""
        keys, trusted = _key_store(get), _trust_store(get)
        digest = hashlib.sha256()
        if keys is not None:
            digest.update(f"{keys.key}\0{keys.chain}\0{keys.key_password}\0".encode())
        digest.update((trusted or "").encode())
        return cls(keys, trusted, digest.hexdigest())

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises SecurityError, for example if key and certificate do not belong together."""
        if self.keys is not None:
            _load_keys(context, self.keys)
        if self.trusted is None:
            context.load_default_certs(
                ssl.Purpose.SERVER_AUTH
                if context.protocol is ssl.PROTOCOL_TLS_CLIENT
                else ssl.Purpose.CLIENT_AUTH
            )
            return
        try:
            context.load_verify_locations(cadata=self.trusted)
        except (ssl.SSLError, ValueError) as error:
            raise SecurityError(f"ssl.truststore: a certificate is not valid: {error}") from None


# --- key stores ----------------------------------------------------------------------------------


def _key_store(get: Get) -> KeyStore | None:
    location, inline_key = get("ssl.keystore.location"), get("ssl.keystore.key")
    kind = (get("ssl.keystore.type") or "JKS").upper()
    if inline_key:
        if kind != "PEM":
            raise SecurityError("ssl.keystore.key needs ssl.keystore.type=PEM")
        if location:
            raise SecurityError("set either ssl.keystore.key or ssl.keystore.location, not both")
        chain = get("ssl.keystore.certificate.chain")
        if not chain:
            raise SecurityError("ssl.keystore.key needs ssl.keystore.certificate.chain")
        return _pem_keys("ssl.keystore.key", f"{inline_key}\n{chain}", get("ssl.key.password"))
    if not location:
        return None
    data = _read("ssl.keystore.location", location)
    if kind == "PEM":
        text = _text("ssl.keystore.location", location, data)
        return _pem_keys(f"ssl.keystore.location {location}", text, get("ssl.key.password"))
    _check_not_jks("ssl.keystore", location, data)
    return _pkcs12_keys(location, data, get("ssl.keystore.password"))


def _pem_keys(where: str, text: str, password: str | None) -> KeyStore:
    text = _with_line_breaks(text)
    key = _PRIVATE_KEY.search(text)
    chain = _CERTIFICATE.findall(text)
    if key is None:
        raise SecurityError(f"{where}: has no private key in PEM format")
    if not chain:
        raise SecurityError(f"{where}: has no certificate in PEM format")
    if key[1] == "ENCRYPTED PRIVATE KEY" and not password:
        raise SecurityError(f"{where}: the private key is encrypted; set ssl.key.password")
    return KeyStore(key[0], "\n".join(chain), password or None)


def _pkcs12_keys(location: str, data: bytes, password: str | None) -> KeyStore:
    from cryptography.hazmat.primitives import serialization

    key, certificates = _pkcs12("ssl.keystore", location, data, password)
    if key is None or not certificates:
        raise SecurityError(f"ssl.keystore.location {location}: has no private key")
    key_text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    return KeyStore(key_text, "\n".join(certificates))


def _load_keys(context: ssl.SSLContext, keys: KeyStore) -> None:
    """`ssl` reads keys from files only: this one has no name and never reaches a disk."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, f"{keys.key}\n{keys.chain}\n".encode())
        # A function, so that OpenSSL never asks on the terminal.
        context.load_cert_chain(
            f"/proc/self/fd/{descriptor}", password=lambda: keys.key_password or ""
        )
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise SecurityError(
            f"ssl.keystore: the private key and the certificate cannot be used: {reason} (do they "
            "belong together, is ssl.key.password right?)"
        ) from None
    finally:
        os.close(descriptor)


# --- trust stores --------------------------------------------------------------------------------


def _trust_store(get: Get) -> str | None:
    location, inline = get("ssl.truststore.location"), get("ssl.truststore.certificates")
    kind = (get("ssl.truststore.type") or "JKS").upper()
    if inline:
        if kind != "PEM":
            raise SecurityError("ssl.truststore.certificates needs ssl.truststore.type=PEM")
        if location:
            raise SecurityError(
                "set either ssl.truststore.certificates or ssl.truststore.location, not both"
            )
        return _pem_certificates("ssl.truststore.certificates", inline)
    if not location:
        return None
    data = _read("ssl.truststore.location", location)
    if kind == "PEM":
        text = _text("ssl.truststore.location", location, data)
        return _pem_certificates(f"ssl.truststore.location {location}", text)
    _check_not_jks("ssl.truststore", location, data)
    _, certificates = _pkcs12("ssl.truststore", location, data, get("ssl.truststore.password"))
    if not certificates:
        raise SecurityError(f"ssl.truststore.location {location}: has no certificate")
    return "\n".join(certificates)


def _pem_certificates(where: str, text: str) -> str:
    found = _CERTIFICATE.findall(_with_line_breaks(text))
    if not found:
        raise SecurityError(f"{where}: has no certificate in PEM format")
    return "\n".join(found)


# --- files ---------------------------------------------------------------------------------------


def _read(setting: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise SecurityError(f"{setting} {location}: cannot be read: {error.strerror}") from None
    if len(data) > STORE_BYTES_MAX:
        raise SecurityError(f"{setting} {location}: is larger than {STORE_BYTES_MAX} bytes")
    return data


def _text(setting: str, location: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise SecurityError(f"{setting} {location}: is not in PEM format") from None


def _with_line_breaks(text: str) -> str:
    r"""Inline PEM in a properties file may have the two characters `\n` for line breaks."""
    return text.replace("\\n", "\n")


def _check_not_jks(store: str, location: str, data: bytes) -> None:
    if data.startswith(JKS_MAGIC):
        target = str(Path(location).with_suffix(".p12"))
        raise SecurityError(
            f"{store}.location {location}: JKS is not supported; convert it with `keytool "
            f"-importkeystore -srckeystore {location} -destkeystore {target} -deststoretype "
            f"PKCS12` and set {store}.type=PKCS12"
        )
    if not data.startswith(DER_SEQUENCE):
        raise SecurityError(
            f"{store}.location {location}: is not a PKCS12 store; for PEM set {store}.type=PEM"
        )


def _pkcs12(store: str, location: str, data: bytes, password: str | None):  # type: ignore[no-untyped-def]
    """The private key, if there is one, and all certificates as PEM, the key's own first."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        raise SecurityError(
            f"{store}.location {location}: cannot be opened as PKCS12; is {store}.password right?"
        ) from None
    certificates = [found.cert, *found.additional_certs]
    pem = serialization.Encoding.PEM
    return found.key, [
        one.certificate.public_bytes(pem).decode() for one in certificates if one is not None
    ]
