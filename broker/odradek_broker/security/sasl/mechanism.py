"""The interface of a SASL mechanism: a conversation of one login."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


class SaslError(Exception):
    """The login failed; the text goes to the client, as Kafka words it."""


@dataclass(frozen=True)
class Done:
    """The client is authenticated; `token` is the last message to it."""

    user: str
    token: bytes = b""
    expires_at_ms: int | None = None  # of the credential (wall clock); None: never
    by_token: bool = False  # a delegation token of the user


class Conversation(ABC):
    """One login. Time and randomness are arguments of its constructor."""

    @abstractmethod
    def step(self, token: bytes, now_ms: int) -> bytes | Done:
        """The next message to the client, or the end. Raises SaslError."""

    @property
    def slow(self) -> bool:
        """A step may block (a request for keys): it runs in a thread."""
        return False
