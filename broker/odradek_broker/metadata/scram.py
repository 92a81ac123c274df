"""SCRAM credentials: the form of a password in the metadata log, and how it is derived.

The password itself is stored nowhere. RFC 5802 derives, for each mechanism and with a random salt:

    salted password = PBKDF2(password, salt, iterations)     8,192 iterations: about 10 ms
    stored key      = H(HMAC(salted password, "Client Key"))    verifies the client
    server key      = HMAC(salted password, "Server Key")       proves the server

A client of AlterUserScramCredentials sends the salted password, so that the broker never sees the
password; the controller turns it into the two keys. Passwords are UTF-8 bytes without further
normalisation, as in Apache Kafka.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

ITERATIONS_MIN = 4096
# limit of AlterUserScramCredentials: each login costs the client that many iterations
ITERATIONS_MAX = 16384
ITERATIONS_DEFAULT = 4096  # default of Kafka's tools
SALT_BYTES = 24  # Kafka's tools make salts of about this length; the RFC asks for no minimum


class ScramMechanism(IntEnum):
    """With the numbers of the protocol and of the records."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def label(self) -> str:
        """The name in SASL: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name in hashlib: `sha256`."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @classmethod
    def named(cls, label: str) -> "ScramMechanism | None":
        """The mechanism of a name in SASL; None if there is no such mechanism."""
        return next((mechanism for mechanism in cls if mechanism.label == label), None)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Attackers could test guesses of the password with these values: repr() hides them."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = field(repr=False)


class ScramKey(NamedTuple):
    mechanism: ScramMechanism
    user: str


@dataclass(frozen=True, slots=True)
class ScramImage:
    """The credentials of all users. Immutable."""

    credentials: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self.credentials.get(ScramKey(mechanism, user))

    def of_user(self, user: str) -> dict[ScramMechanism, ScramCredential]:
        return {
            mechanism: credential
            for mechanism in ScramMechanism
            if (credential := self.credential(mechanism, user)) is not None
        }

    def changed(self, changes: Mapping[ScramKey, ScramCredential | None]) -> "ScramImage":
        """A copy with `changes` applied (None removes); the same object if nothing changed."""
        if not changes:
            return self
        merged = {**self.credentials, **changes}
        return ScramImage({k: v for k, v in merged.items() if v is not None})


NO_CREDENTIALS = ScramImage()


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """PBKDF2, for 10 ms and more: call it in a thread. hashlib releases the GIL meanwhile."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential for a salted password. Takes microseconds."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", mechanism.hash_name)
    return ScramCredential(salt, stored_key, server_key, iterations)


def make_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_DEFAULT
) -> ScramCredential:
    """The credential for a password; the caller draws the salt (`secrets.token_bytes`).

    Runs PBKDF2: call it in a thread.
    """
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)
