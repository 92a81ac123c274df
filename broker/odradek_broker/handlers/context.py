"""What a handler gets besides the request: who asks, how to answer, and the broker's services."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.log.types import FileRange

# A response without its 4-byte size, in pieces: bytes are sent, ranges go by sendfile.
Chunks = list[bytes | FileRange]


class RequestContext(ABC):
    """One request under way: who asks, in which version, and how to answer."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "client_host",
        "client_id",
        "correlation_id",
        "listener",
        "on_disconnect",
    )

    def __init__(
        self,
        broker: BrokerContext,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        listener: str,
        client_host: str,
    ) -> None:
        self.broker = broker
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.listener = listener
        self.client_host = client_host
        # Set by a request that waits, so that it stops waiting when nobody is left to hear it.
        self.on_disconnect: Callable[[], None] | None = None

    @property
    def is_forwarded(self) -> bool:
        """It came in an envelope, from the broker that the client has asked."""
        return False

    def is_of_broker(self) -> None:  # noqa: B027 - only a request on a connection has one to mark
        """Another broker sent it: its connection is read before clients' when the loop is late."""

    @abstractmethod
    def respond(self, chunks: Chunks, size: int) -> None:
        """Answers; called exactly once, at once or later, from the event loop.

        `size` is the length of all chunks. No chunks: the client wants no answer (acks=0).
        The connection keeps answers in the order of the requests.
        """

    @abstractmethod
    def disconnect(self, reason: str) -> None:
        """Closes the connection: the only way to tell a client that wants no answer."""
