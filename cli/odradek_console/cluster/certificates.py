"""A user's certificate and private key, as they were handed over at the login.

    identity = ClientIdentity.of(data, "password")     # the bytes of a PEM or PKCS12 file
    identity.properties                                # ssl.keystore.…, for this session only

Nothing is written to a disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12

PEM_MARK = b"-----BEGIN "
PEM = serialization.Encoding.PEM

KeyAndChain = tuple[PrivateKeyTypes, list[x509.Certificate]]


class CertificateError(Exception):
    """Why the file cannot be used, as a sentence without its content."""


@dataclass(frozen=True)
class ClientIdentity:
    name: str  # the subject, as Kafka makes a principal of it: "CN=alice,O=Shop"
    properties: dict[str, str] = field(repr=False)

    @classmethod
    def of(cls, data: bytes, password: str) -> ClientIdentity:
        """Raises CertificateError."""
        secret = password.encode() or None
        key, chain = _of_pem(data, secret) if PEM_MARK in data else _of_pkcs12(data, secret)
        own = next(
            (one for one in chain if _public(one.public_key()) == _public(key.public_key())), None
        )
        if own is None:
            raise CertificateError("No certificate in the file belongs to its private key.")
        name = own.subject.rfc4514_string()
        if not name or not name.isprintable():
            raise CertificateError("The certificate has no subject: Kafka needs one.")
        chain = [own, *(one for one in chain if one != own)]
        text = key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return cls(
            name,
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": text.decode(),
                "ssl.keystore.certificate.chain": "".join(
                    one.public_bytes(PEM).decode() for one in chain
                ),
            },
        )


def _of_pem(data: bytes, secret: bytes | None) -> KeyAndChain:
    try:
        key = serialization.load_pem_private_key(data, secret)
    except TypeError:
        if secret is not None:  # a password for a key that is not encrypted
            return _of_pem(data, None)
        raise CertificateError("The private key is encrypted: give its password.") from None
    except ValueError:
        raise CertificateError(
            "The file has no private key that can be read; is the password right?"
        ) from None
    try:
        return key, x509.load_pem_x509_certificates(data)
    except ValueError:
        raise CertificateError("The file has no certificate next to its private key.") from None


def _of_pkcs12(data: bytes, secret: bytes | None) -> KeyAndChain:
    try:
        key, own, others = pkcs12.load_key_and_certificates(data, secret)
    except ValueError:
        raise CertificateError(
            "The file is neither PEM nor a PKCS12 store of this password."
        ) from None
    if key is None or own is None:
        raise CertificateError("The file has no private key with its certificate.")
    return key, [own, *others]


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
