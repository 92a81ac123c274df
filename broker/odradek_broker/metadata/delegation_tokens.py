"""Delegation tokens (KIP-48): the secret of a token, and the SCRAM credential that it stands for.

A token is an id in the metadata log. Its secret is computed, and stored nowhere:

    HMAC     = HMAC-SHA512(delegation.token.secret.key, id)       64 bytes, given to the client
    login    = SCRAM: the id as user, the HMAC in base64 as password, extension tokenauth=true

All brokers have the same key, so each verifies tokens that another one has made.
"""

import base64
import hmac
import secrets
from collections.abc import Mapping

from odradek_broker.metadata.records import DelegationTokenRecord
from odradek_broker.metadata.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramKey,
    ScramMechanism,
    make_credential,
)
from odradek_broker.runtime.settings import Settings

# Credentials that are kept, about 300 bytes each. Past the limit all are derived again.
CREDENTIALS_MAX = 10_000


class TokenKey:
    """The key of `delegation.token.secret.key`."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._credentials: dict[ScramKey, ScramCredential] = {}

    @classmethod
    def of(cls, settings: Settings) -> "TokenKey | None":
        """None: delegation tokens are disabled."""
        key = settings.optional_str("delegation.token.secret.key")
        return cls(key) if key else None

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(
        self, tokens: Mapping[str, DelegationTokenRecord], secret: bytes
    ) -> DelegationTokenRecord | None:
        """The token with this HMAC. Compares with all tokens, in constant time, so that the time
        of an answer says nothing about a secret: 1 to 2 µs for each, and renewals are rare."""
        found = None
        for token_id, token in tokens.items():
            if hmac.compare_digest(self.hmac_of(token_id), secret):
                found = token
        return found

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """Runs PBKDF2 (2 ms) at the first login with a token: call it in a thread."""
        key = ScramKey(mechanism, token_id)
        known = self._credentials.get(key)
        if known is None:
            if len(self._credentials) >= CREDENTIALS_MAX:
                self._credentials.clear()
            password = base64.b64encode(self.hmac_of(token_id)).decode()
            salt = secrets.token_bytes(SALT_BYTES)
            known = make_credential(mechanism, password, salt, ITERATIONS_MIN)
            self._credentials[key] = known
        return known
