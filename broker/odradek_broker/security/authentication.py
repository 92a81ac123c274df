"""The authentication of one connection with SASL: which requests it may send in which state.

    HANDSHAKE ──SaslHandshake──► AUTHENTICATE ──SaslAuthenticate…──► COMPLETE
                                     │                                  │ SaslHandshake (KIP-368)
                                     ▼                                  ▼
                                   FAILED ◄──────────────────── REAUTHENTICATE ──► COMPLETE

`ALLOWED` is the table; a request that it does not have closes the connection. No I/O here: the
handlers of both APIs call `choose` and `step`, and close the connection after a failure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek_broker.model.principal import USER, Principal
from odradek_broker.security.sasl.mechanism import Conversation, Done, SaslError

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36


class State(Enum):
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    REAUTHENTICATE = "reauthenticate"
    FAILED = "failed"


# The API keys that are served in each state; COMPLETE serves all until the session expires.
ALLOWED: Final[Mapping[State, frozenset[int]]] = {
    State.HANDSHAKE: frozenset((API_VERSIONS, SASL_HANDSHAKE)),
    State.AUTHENTICATE: frozenset((SASL_AUTHENTICATE,)),
    State.REAUTHENTICATE: frozenset((SASL_AUTHENTICATE,)),
    State.FAILED: frozenset(),
}
# Of a session that has expired: only a new login.
ALLOWED_EXPIRED: Final = frozenset((API_VERSIONS, SASL_HANDSHAKE))
_AFTER_HANDSHAKE: Final = {
    State.HANDSHAKE: State.AUTHENTICATE,
    State.COMPLETE: State.REAUTHENTICATE,
}


@dataclass(frozen=True)
class SaslRules:
    """The logins that a listener accepts. `mechanisms`: name → a new conversation."""

    mechanisms: Mapping[str, Callable[[], Conversation]]
    max_reauth_ms: Mapping[str, int]  # by mechanism; 0: sessions do not end
    failed_delay_ms: int
    receive_bytes_max: int


@dataclass(frozen=True)
class Answer:
    token: bytes
    session_lifetime_ms: int = 0


class Authentication:
    def __init__(self, rules: SaslRules, on_authenticated: Callable[[Principal], None]) -> None:
        self.rules = rules
        self.state = State.HANDSHAKE
        self.raw_tokens = False  # after SaslHandshake v0 tokens come without Kafka's headers
        self._on_authenticated = on_authenticated
        self._mechanism = ""
        self._conversation: Conversation | None = None
        self._principal: Principal | None = None
        self._expires_ms: float | None = None  # monotonic

    def refuses(self, api_key: int, now_ms: Callable[[], float]) -> str | None:
        """Why a request is not served now; None if it is. `now_ms` is monotonic."""
        if self.state is State.COMPLETE:
            if (
                self._expires_ms is None
                or api_key in ALLOWED_EXPIRED
                or now_ms() < self._expires_ms
            ):
                return None
            return "session expired: the client did not authenticate again"
        if api_key in ALLOWED[self.state]:
            return None
        return f"not authenticated: API key {api_key} in state {self.state.value}"

    @property
    def is_final(self) -> bool:
        """Logged in for good: as in Kafka, only a session that expires can log in again."""
        return self.state is State.COMPLETE and self._expires_ms is None

    def choose(self, mechanism: str, *, raw_tokens: bool) -> bool:
        """SaslHandshake: False if the mechanism is not offered, or is another than before."""
        make = self.rules.mechanisms.get(mechanism)
        changed = self.state is State.COMPLETE and mechanism != self._mechanism
        if make is None or changed:
            self.state = State.FAILED
            return False
        self.state = _AFTER_HANDSHAKE[self.state]
        self.raw_tokens = raw_tokens
        self._mechanism = mechanism
        self._conversation = make()
        return True

    @property
    def slow(self) -> bool:
        return self._conversation is not None and self._conversation.slow

    def step(self, token: bytes, wall_ms: int) -> bytes | Done:
        """One message of the client; may run in a thread if `slow`. Raises SaslError."""
        if self._conversation is None:
            raise SaslError("no SASL mechanism was chosen")
        return self._conversation.step(token, wall_ms)

    def finish(self, outcome: bytes | Done, wall_ms: int, now_ms: float) -> Answer:
        """Takes over what `step` returned. Raises SaslError if the user changed."""
        if isinstance(outcome, bytes):
            return Answer(outcome)
        principal = Principal(USER, outcome.user, outcome.by_token)
        if self._principal is not None and principal != self._principal:
            raise SaslError(
                "Cannot change principals during re-authentication from "
                f"{self._principal} to {principal}"
            )
        lifetime_ms = self._lifetime_ms(outcome, wall_ms)
        self._expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        self._principal = principal
        self._conversation = None
        self.raw_tokens = False
        self.state = State.COMPLETE
        self._on_authenticated(principal)
        return Answer(outcome.token, lifetime_ms or 0)

    def fail(self) -> None:
        self.state = State.FAILED
        self._conversation = None

    def _lifetime_ms(self, done: Done, wall_ms: int) -> int | None:
        """Until the credential expires or connections.max.reauth.ms is over."""
        limits = []
        if (longest := self.rules.max_reauth_ms.get(self._mechanism, 0)) > 0:
            limits.append(longest)
        if done.expires_at_ms is not None:
            limits.append(max(done.expires_at_ms - wall_ms, 0))
        return min(limits) if limits else None
