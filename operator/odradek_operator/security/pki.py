"""A small certificate authority: makes and reads X.509 certificates. Does no I/O.

    ca = new_ca("main cluster CA 1", now, days(1825))
    broker = issue(ca, Subject("main-broker-0", dns=("localhost",), ips=("127.0.0.1",)),
                   Usage.SERVER_AND_CLIENT, now, days(365))
    read(broker.certificate_pem).not_after

Keys are of the curve P-256, which OpenSSL, Java and librdkafka all support; private keys are PKCS8
without a password, so whoever stores them restricts who can read them. Time is an argument, in unix
seconds. A KeyPair prints only its certificate's first characters, never its key.

`cryptography` takes 0.1 s to import and a plain cluster needs no certificate, so it is imported
inside the functions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAY_S = 86_400
# A certificate is valid from an hour before it is issued: clocks of other machines may be behind.
CLOCK_SKEW_S = 3600
COMMON_NAME_MAX = 64  # of X.520


class Usage(Enum):
    """The purposes of a certificate (extended key usage)."""

    SERVER = "server"
    CLIENT = "client"
    SERVER_AND_CLIENT = "server and client"  # a broker, which connects to other brokers too


class InvalidCertificateError(Exception):
    """Bytes that are no certificate or key; the message says which part and why, without a key."""


@dataclass(frozen=True)
class KeyPair:
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True)
class Subject:
    """The subject of a certificate: its common name, and the names and addresses of a server."""

    common_name: str  # at most 64 characters
    organization: str = ""
    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()


@dataclass(frozen=True)
class Certificate:
    """The fields of a certificate."""

    common_name: str
    organization: str
    dns: frozenset[str]
    ips: frozenset[str]
    not_before: float  # unix seconds
    not_after: float
    key_id: str  # hexadecimal hash of its public key
    issuer_key_id: str  # of the CA that signed it; its own for a CA
    fingerprint: str  # SHA-256 of the certificate (DER), hexadecimal
    is_ca: bool

    @property
    def distinguished_name(self) -> str:
        """As Kafka spells it in the principal of a client: CN=odradek-broker,O=odradek.dev."""
        return distinguished_name(self.common_name, self.organization)


def distinguished_name(common_name: str, organization: str = "") -> str:
    return f"CN={common_name}" + (f",O={organization}" if organization else "")


def days(count: float) -> float:
    """Days in seconds."""
    return count * DAY_S


def new_ca(common_name: str, now: float, valid_s: float) -> KeyPair:
    """A self-signed certificate authority that signs certificates of servers and clients only."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(Subject(common_name))
    certificate = (
        _builder(name, name, key, now, valid_s)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
        .add_extension(_key_identifier(key), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue(ca: KeyPair, subject: Subject, usage: Usage, now: float, valid_s: float) -> KeyPair:
    """A new key and its certificate, signed by `ca`; it never outlives the CA."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority, authority_key = _load(ca)
    key = ec.generate_private_key(ec.SECP256R1())
    valid_s = min(valid_s, authority.not_valid_after_utc.timestamp() - now)
    purposes = {
        Usage.SERVER: [ExtendedKeyUsageOID.SERVER_AUTH],
        Usage.CLIENT: [ExtendedKeyUsageOID.CLIENT_AUTH],
        Usage.SERVER_AND_CLIENT: [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
    }[usage]
    builder = (
        _builder(_name(subject), authority.subject, key, now, valid_s)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(_key_identifier(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
    )
    if names := _names(subject):
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pair(builder.sign(authority_key, hashes.SHA256()), key)


@lru_cache(maxsize=1024)  # a pass reads the same certificates as the one before
def read(certificate_pem: bytes) -> Certificate:
    """The fields of the first certificate of a PEM file."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        found = x509.load_pem_x509_certificate(certificate_pem)
    except ValueError as error:
        raise InvalidCertificateError(f"it is not a certificate in PEM: {error}") from None
    dns: frozenset[str] = frozenset()
    ips: frozenset[str] = frozenset()
    issuer, is_ca = None, False
    for extension in found.extensions:
        match extension.value:
            case x509.SubjectAlternativeName() as names:
                dns = frozenset(names.get_values_for_type(x509.DNSName))
                ips = frozenset(map(str, names.get_values_for_type(x509.IPAddress)))
            case x509.AuthorityKeyIdentifier() as authority:
                issuer = authority.key_identifier
            case x509.BasicConstraints() as constraints:
                is_ca = constraints.ca
    own = x509.SubjectKeyIdentifier.from_public_key(found.public_key()).digest
    return Certificate(
        common_name=_attribute(found.subject, "CN"),
        organization=_attribute(found.subject, "O"),
        dns=dns,
        ips=ips,
        not_before=found.not_valid_before_utc.timestamp(),
        not_after=found.not_valid_after_utc.timestamp(),
        key_id=own.hex(),
        issuer_key_id=(issuer or own).hex(),
        fingerprint=hashlib.sha256(found.public_bytes(Encoding.DER)).hexdigest(),
        is_ca=is_ca,
    )


def from_der(certificate_der: bytes) -> Certificate:
    """The fields of the certificate that a server presented in a handshake."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        found = x509.load_der_x509_certificate(certificate_der)
    except ValueError as error:
        raise InvalidCertificateError(f"it is not a certificate: {error}") from None
    return read(found.public_bytes(Encoding.PEM))


def belongs(pair: KeyPair) -> bool:
    """Whether the private key is the one of the certificate."""
    certificate, key = _load(pair)
    return certificate.public_key() == key.public_key()


def as_pkcs8(pair: KeyPair) -> KeyPair:
    """With the private key in the only form that Apache Kafka reads."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    _, key = _load(pair)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(pair.certificate_pem, pem)


# -- parts -----------------------------------------------------------------------------------------


def _builder(
    name: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, now: float, valid_s: float
) -> x509.CertificateBuilder:
    from cryptography import x509

    start = datetime.fromtimestamp(int(now), UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - timedelta(seconds=CLOCK_SKEW_S))
        .not_valid_after(start + timedelta(seconds=int(valid_s)))
    )


def _name(subject: Subject) -> x509.Name:
    """Kafka prints the attributes in reverse order: the common name first."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    if len(subject.common_name) > COMMON_NAME_MAX:
        raise ValueError(
            f"the common name {subject.common_name} is longer than {COMMON_NAME_MAX} characters"
        )
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name)]
    if subject.organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, subject.organization))
    return x509.Name(attributes)


def _attribute(name: x509.Name, short: str) -> str:
    found = [a.value for a in name if a.rfc4514_attribute_name == short]
    return str(found[0]) if found else ""


def _names(subject: Subject) -> list[x509.GeneralName]:
    from ipaddress import ip_address

    from cryptography import x509

    dns: list[x509.GeneralName] = [x509.DNSName(name) for name in subject.dns]
    return dns + [x509.IPAddress(ip_address(ip)) for ip in subject.ips]


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_identifier(key: EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    from cryptography import x509

    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _pair(certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> KeyPair:
    from cryptography.hazmat.primitives import serialization

    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _load(pair: KeyPair) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
    except ValueError as error:
        raise InvalidCertificateError(f"it is not a certificate in PEM: {error}") from None
    try:
        key = load_pem_private_key(pair.key_pem, None)
    except (ValueError, TypeError):
        raise InvalidCertificateError("its private key is not in PEM without a password") from None
    return certificate, key  # type: ignore[return-value]  # a user's own CA may have an RSA key
