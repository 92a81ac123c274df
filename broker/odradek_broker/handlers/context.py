"""The context of a request: its client, how to answer, and the broker's services."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.log.types import FileRange
from odradek_broker.model.principal import ANONYMOUS, Principal
from odradek_broker.security.authentication import Authentication
from odradek_broker.security.authorizer import Authorizer, Client, Decisions
from odradek_protocol.acl_codes import AclOperation, AclResource

# A response without its 4-byte size, in pieces: bytes are sent, ranges go by sendfile.
Chunks = list[bytes | FileRange]
T = TypeVar("T")


class RequestContext(ABC):
    """One request that is being handled: its client, its version, and how to answer it."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "client_host",
        "client_id",
        "correlation_id",
        "listener",
        "on_disconnect",
        "request_bytes",
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
        self.request_bytes = 0  # of the frame
        # Set by a request that waits, so that it stops waiting when the client disconnects.
        self.on_disconnect: Callable[[], None] | None = None

    @property
    def principal(self) -> Principal:
        """The principal that sent it; for a forwarded request the client, not the forwarding
        broker.
        """
        return ANONYMOUS

    @property
    def authentication(self) -> Authentication | None:
        """The authentication state of its connection, on a listener with SASL."""
        return None

    @property
    def client_software(self) -> tuple[str | None, str | None]:
        """Name and version of the client's library, if it has sent them (ApiVersions v3)."""
        return None, None

    def set_client_software(self, name: str, version: str) -> None:  # noqa: B027 - as below
        """The client of this connection uses this library."""

    def close_after_answer(self, reason: str) -> None:
        """The answer to this request is the last one on its connection."""
        self.disconnect(reason)

    def topic_decisions(self, authorizer: Authorizer, operation: AclOperation) -> Decisions:
        """The client's rights on topics; not to be kept across an await."""
        client = Client(self.principal, self.client_host)
        return authorizer.decisions(client, operation, AclResource.TOPIC)

    @property
    def is_forwarded(self) -> bool:
        """It came in an Envelope, from the broker to which the client had sent it."""
        return False

    def is_of_broker(self) -> None:  # noqa: B027 - only requests on a connection need it
        """A broker sent it: its connection is read before clients' when the loop is late."""

    def when_closed(self, held: T, close: Callable[[T], None]) -> None:  # noqa: B027 - as above
        """Calls `close(held)` when the connection of this request is closed, if `held` still exists
        then: the connection does not keep it alive.
        """

    def busy_ns(self) -> int:
        """How long the broker has worked on it, without the time in which it waited."""
        return 0

    def throttle(self, throttle_ms: int) -> None:  # noqa: B027 - a connection does it
        """No further request of this connection is handled for this time; responses are sent."""

    @abstractmethod
    def respond(self, chunks: Chunks, size: int) -> None:
        """Sends the response; called exactly once, at once or later, from the event loop.

        `size` is the length of all chunks. Without chunks there is no response (acks=0).
        The connection sends responses in the order of the requests.
        """

    @abstractmethod
    def disconnect(self, reason: str) -> None:
        """Closes the connection: the only way to report an error without a response."""
