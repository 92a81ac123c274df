"""SCRAM-SHA-256 and SCRAM-SHA-512, the broker's side; `odradek_protocol.security.scram` has the
messages.

It needs no PBKDF2: the metadata log has StoredKey and ServerKey. An unknown user gets a salt that
looks like a real one (`Credentials.decoy`) and fails at the proof, like a wrong password.

With the extension `tokenauth=true` the name is the id of a delegation token. The client then acts
as the token's owner, and its session ends when the token expires.
"""

import base64
import hmac
from collections.abc import Callable
from typing import NamedTuple

from odradek_broker.metadata.scram import ScramCredential
from odradek_broker.security.sasl.mechanism import Conversation, Done, SaslError
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.scram import (
    GS2_HEADER,
    HASHES,
    ClientFirst,
    parse_client_final,
    parse_client_first,
    server_first,
    stored_key,
    xor,
)


class TokenLogin(NamedTuple):
    """A delegation token, as a login needs it."""

    owner: str  # the user's name
    expires_at_ms: int
    credential: ScramCredential


Lookup = Callable[[str], ScramCredential | None]
Decoy = Callable[[str], ScramCredential]
TokenLookup = Callable[[str], TokenLogin | None]


class Scram(Conversation):
    """`nonce` is the server's part, new for each login; `decoy` is for unknown users.
    `tokens` is None where there are no delegation tokens."""

    def __init__(
        self,
        mechanism: str,
        lookup: Lookup,
        nonce: str,
        decoy: Decoy,
        tokens: TokenLookup | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._lookup = lookup
        self._tokens = tokens
        self._token: TokenLogin | None = None
        self._server_nonce = nonce
        self._decoy = decoy
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._known = False
        self._ended = False

    @property
    def slow(self) -> bool:
        """The first login with a token derives its credential."""
        return self._tokens is not None and self._first is None

    def step(self, token: bytes, now_ms: int) -> bytes | Done:
        if self._ended:
            raise self._failed()
        try:
            if self._first is None:
                return self._start(token)
            self._ended = True
            return self._finish(token, self._first, now_ms)
        except SecurityError as error:
            self._ended = True
            raise SaslError(f"Authentication failed: {error}") from None

    def _start(self, token: bytes) -> bytes:
        self._first = first = parse_client_first(token)
        if first.authorization_id and first.authorization_id != first.user:
            raise SecurityError(
                "Client requested an authorization id that is different from username"
            )
        if first.by_token:
            self._token = self._tokens(first.user) if self._tokens else None
            found = self._token.credential if self._token else None
        else:
            found = self._lookup(first.user)
        self._known = found is not None
        # In any case: a user that exists must not be answered faster.
        decoy = self._decoy(first.user)
        self._credential = found or decoy
        nonce = first.nonce + self._server_nonce
        self._server_first = server_first(nonce, self._credential.salt, self._credential.iterations)
        return self._server_first.encode()

    def _finish(self, token: bytes, first: ClientFirst, now_ms: int) -> Done:
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
        # Only the server's part, as Kafka 3.9 (Kafka 4 compares the whole): librdkafka before 2.6.1
        # repeats the client's part. The server's part is new for each login, so a replay fails.
        own = final.nonce[-len(self._server_nonce) :]
        fresh = hmac.compare_digest(own.encode(), self._server_nonce.encode())
        bound = final.binding.startswith(GS2_HEADER[:1].encode())
        if not (proven and fresh and bound and self._known):
            raise self._failed()
        server = hmac.digest(credential.server_key, message, self._hash)
        proof = b"v=" + base64.b64encode(server)
        if self._token is None:
            return Done(first.user, proof)
        owner, expires_at_ms, _ = self._token
        if expires_at_ms <= now_ms:  # the controller has not removed it yet
            raise self._failed()
        return Done(owner, proof, expires_at_ms, by_token=True)

    def _failed(self) -> SaslError:
        return SaslError(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )
