"""SCRAM (RFC 5802, RFC 7677): its formulas, its messages, and the client's side.

    client-first   n,,n=alice,r=<client nonce>
    server-first   r=<client nonce><server nonce>,s=<salt>,i=4096
    client-final   c=biws,r=<both nonces>,p=<proof>
    server-final   v=<server signature>            or e=<error>

Without channel binding, as in Kafka. The broker keeps StoredKey and ServerKey, never the password.
With a delegation token (KIP-48) the user is the token's id, the password its HMAC in base64, and
the first message ends with an extension: n,,n=<id>,r=<client nonce>,tokenauth=true
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

from odradek_protocol.security.errors import SecurityError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4096  # as in Kafka
ITERATIONS_MAX = 16384
NONCE_BYTES = 18
GS2_HEADER = "n,,"
TOKEN_OPTION = "tokenauth"  # of sasl.jaas.config and of the client's first message
CHANNEL_BINDING = base64.b64encode(GS2_HEADER.encode()).decode()

# Strangers send these messages. Each expression matches a text in one way only: otherwise the time
# to find that it does not match doubles with every part.
_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,9})"
    r"(?:,.*)?"
)
_CLIENT_FINAL = re.compile(
    r"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[^p,][^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


# --- formulas ------------------------------------------------------------------------------------


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Slow on purpose: some milliseconds. The interpreter lock is not held meanwhile."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", hash_name)


def stored_key(hash_name: str, client: bytes) -> bytes:
    return hashlib.new(hash_name, client).digest()


def server_key(hash_name: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", hash_name)


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def new_nonce() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(NONCE_BYTES)).decode()


def to_sasl_name(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def from_sasl_name(text: str) -> str:
    name = text.replace("=2C", ",").replace("=3D", "\0")
    if "=" in name:
        raise SecurityError("SCRAM: a user name with an invalid escape")
    return name.replace("\0", "=")


# --- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClientFirst:
    user: str
    authorization_id: str
    nonce: str
    bare: str
    extensions: str

    @property
    def by_token(self) -> bool:
        """The user is the id of a delegation token."""
        given = (one.partition("=") for one in self.extensions.split(","))
        return any(name == TOKEN_OPTION and value.lower() == "true" for name, _, value in given)


@dataclass(frozen=True)
class ClientFinal:
    nonce: str
    binding: bytes
    proof: bytes = field(repr=False)
    without_proof: str


def parse_client_first(token: bytes) -> ClientFirst:
    match = _CLIENT_FIRST.fullmatch(_text(token))
    if match is None:
        raise SecurityError("SCRAM: the client's first message is malformed")
    return ClientFirst(
        from_sasl_name(match["user"]),
        from_sasl_name(match["authzid"] or ""),
        match["nonce"],
        match["bare"],
        match["extensions"],
    )


def parse_client_final(token: bytes) -> ClientFinal:
    match = _CLIENT_FINAL.fullmatch(_text(token))
    if match is None:
        raise SecurityError("SCRAM: the client's final message is malformed")
    return ClientFinal(
        match["nonce"], _decode(match["binding"]), _decode(match["proof"]), match["without_proof"]
    )


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"


def _text(token: bytes) -> str:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        raise SecurityError("SCRAM: a message is not UTF-8") from None


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SecurityError("SCRAM: a message has invalid base64") from None


# --- the client ----------------------------------------------------------------------------------


class ScramClient:
    """`first()`, then `final(server-first)` (slow: PBKDF2), then `finish(server-final)`."""

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        nonce: str | None = None,
        *,
        by_token: bool = False,
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce or new_nonce()
        self._bare = f"n={to_sasl_name(user)},r={self._nonce}"
        if by_token:
            self._bare += f",{TOKEN_OPTION}=true"
        self._server_signature = b""

    def first(self) -> bytes:
        return (GS2_HEADER + self._bare).encode()

    def final(self, token: bytes) -> bytes:
        text = _text(token)
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise SecurityError("SCRAM: the server's first message is malformed")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise SecurityError("SCRAM: the server answered with another nonce")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= 10 * ITERATIONS_MAX:
            raise SecurityError(f"SCRAM: the server requires {iterations} iterations")
        salted = salted_password(self._hash, self._password, _decode(match["salt"]), iterations)
        without_proof = f"c={CHANNEL_BINDING},r={match['nonce']}"
        message = f"{self._bare},{text},{without_proof}".encode()
        client = client_key(self._hash, salted)
        signature = hmac.digest(stored_key(self._hash, client), message, self._hash)
        self._server_signature = hmac.digest(server_key(self._hash, salted), message, self._hash)
        proof = base64.b64encode(xor(client, signature)).decode()
        return f"{without_proof},p={proof}".encode()

    def finish(self, token: bytes) -> None:
        """Raises SecurityError unless the server knows the password too."""
        text = _text(token)
        if text.startswith("e="):
            raise SecurityError(f"SCRAM: the server refused: {text[2:60]}")
        if not text.startswith("v=") or not hmac.compare_digest(
            _decode(text[2:].partition(",")[0]), self._server_signature
        ):
            raise SecurityError("SCRAM: the server did not prove that it knows the password")
