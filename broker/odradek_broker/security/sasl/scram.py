"""SCRAM-SHA-256 and SCRAM-SHA-512, the broker's side; `odradek_protocol.security.scram` has the
messages.

It needs no PBKDF2: the metadata log has StoredKey and ServerKey. An unknown user gets a salt that
looks like a real one (derived from the name and a secret of this process, so that it is the same
each time) and fails at the proof, like a wrong password.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable

from odradek_broker.metadata.scram import SALT_BYTES, ScramCredential
from odradek_broker.security.sasl.mechanism import Conversation, Done, SaslError
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.scram import (
    GS2_HEADER,
    HASHES,
    ITERATIONS_MIN,
    ClientFirst,
    parse_client_final,
    parse_client_first,
    server_first,
    stored_key,
    xor,
)

Lookup = Callable[[str], ScramCredential | None]


class Scram(Conversation):
    """`nonce` is the server's part, new for each login; `secret` is the process's own."""

    def __init__(self, mechanism: str, lookup: Lookup, nonce: str, secret: bytes) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._lookup = lookup
        self._server_nonce = nonce
        self._secret = secret
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._known = False
        self._ended = False

    def step(self, token: bytes, now_ms: int) -> bytes | Done:  # noqa: ARG002
        if self._ended:
            raise self._failed()
        try:
            if self._first is None:
                return self._start(token)
            self._ended = True
            return self._finish(token, self._first)
        except SecurityError as error:
            self._ended = True
            raise SaslError(f"Authentication failed: {error}") from None

    def _start(self, token: bytes) -> bytes:
        self._first = first = parse_client_first(token)
        if first.authorization_id and first.authorization_id != first.user:
            raise SecurityError(
                "Client requested an authorization id that is different from username"
            )
        found = self._lookup(first.user)
        self._known = found is not None
        self._credential = found or self._decoy(first.user)
        nonce = first.nonce + self._server_nonce
        self._server_first = server_first(nonce, self._credential.salt, self._credential.iterations)
        return self._server_first.encode()

    def _finish(self, token: bytes, first: ClientFirst) -> Done:
        final = parse_client_final(token)
        credential = self._credential
        assert credential is not None
        message = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        signature = hmac.digest(credential.stored_key, message, self._hash)
        if len(final.proof) != len(signature):
            raise self._failed()
        proven = hmac.compare_digest(
            stored_key(self._hash, xor(final.proof, signature)), credential.stored_key
        )
        # Only the server's part, as Kafka does: librdkafka before 2.6.1 repeats the client's part.
        # The server's part is new for each login, which is what makes a replay fail.
        own = final.nonce[-len(self._server_nonce) :]
        fresh = hmac.compare_digest(own.encode(), self._server_nonce.encode())
        bound = final.binding.startswith(GS2_HEADER[:1].encode())
        if not (proven and fresh and bound and self._known):
            raise self._failed()
        server = hmac.digest(credential.server_key, message, self._hash)
        return Done(first.user, b"v=" + base64.b64encode(server))

    def _failed(self) -> SaslError:
        return SaslError(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )

    def _decoy(self, user: str) -> ScramCredential:
        size = hashlib.new(self._hash).digest_size
        derived = hmac.digest(self._secret, f"{self._mechanism}\0{user}".encode(), "sha512")
        return ScramCredential(derived[:SALT_BYTES], bytes(size), bytes(size), ITERATIONS_MIN)
