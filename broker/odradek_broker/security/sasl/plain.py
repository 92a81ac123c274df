r"""PLAIN (RFC 4616): `[authorization id] NUL user NUL password` in one message.

Users are options of the listener's JAAS configuration: `user_alice="password"`.
"""

import hmac
from collections.abc import Mapping

from odradek_broker.security.sasl.mechanism import Conversation, Done, SaslError

INVALID = "Authentication failed: Invalid username or password"


class Plain(Conversation):
    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def step(self, token: bytes, now_ms: int) -> Done:  # noqa: ARG002
        try:
            parts = token.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise SaslError("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if len(parts) != 3:
            raise SaslError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise SaslError("Authentication failed: username not specified")
        if not password:
            raise SaslError("Authentication failed: password not specified")
        expected = self._users.get(user)
        # An unknown user takes the same time: the comparison is made in any case.
        same = hmac.compare_digest((expected or "\0").encode(), password.encode())
        if expected is None or not same:
            raise SaslError(INVALID)
        if authorization_id and authorization_id != user:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return Done(user)
