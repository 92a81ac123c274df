"""One request and its response on a connection, with the timestamps for the metrics."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from librt.strings import BytesWriter, write_i32_be

from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.context import Chunks, RequestContext, T
from odradek_broker.handlers.handler import Handler
from odradek_broker.model.principal import Principal
from odradek_broker.runtime import clock
from odradek_broker.security.authentication import Authentication
from odradek_broker.security.authorizer import Authorizer, Decisions
from odradek_protocol.acl_codes import AclOperation
from odradek_protocol.messages.headers import RequestHeader

if TYPE_CHECKING:
    from odradek_broker.network.connection import Connection


class Exchange(RequestContext):
    __slots__ = (
        "answered_ns",
        "body_at",
        "chunks",
        "connection",
        "handler",
        "local_ns",
        "received_ns",
        "sending_ns",
        "started_ns",
    )

    def __init__(
        self,
        broker: BrokerContext,
        header: RequestHeader,
        connection: "Connection",
        handler: Handler,
        request_bytes: int,
        received_ns: int,
    ) -> None:
        super().__init__(
            broker,
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            connection.listener,
            connection.client_host,
        )
        self.connection = connection
        self.handler = handler
        self.request_bytes = request_bytes
        self.body_at = header.body_at
        self.received_ns = received_ns
        self.started_ns = received_ns  # there is no queue between the two
        self.local_ns = 0
        self.answered_ns = 0
        self.sending_ns = 0
        self.chunks: Chunks | None = None

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    def topic_decisions(self, authorizer: Authorizer, operation: AclOperation) -> Decisions:
        # To find them by client costs more than all checks of a small request.
        connection = self.connection
        known = connection.topic_decisions.get(operation)
        if (
            known is None
            or known.version != authorizer.version
            or known.client.principal is not connection.principal
        ):
            known = super().topic_decisions(authorizer, operation)
            connection.topic_decisions[operation] = known
        return known

    def busy_ns(self) -> int:
        return (self.local_ns or clock.now_ns()) - self.started_ns

    def throttle(self, throttle_ms: int) -> None:
        self.connection.throttle(throttle_ms)

    @property
    def authentication(self) -> Authentication | None:
        return self.connection.authentication

    @property
    def client_software(self) -> tuple[str | None, str | None]:
        return self.connection.client_software

    def set_client_software(self, name: str, version: str) -> None:
        self.connection.client_software = name, version

    def close_after_answer(self, reason: str) -> None:
        self.connection.close_when_sent(reason)

    def when_closed(self, held: T, close: Callable[[T], None]) -> None:
        if self.connection.closed:
            close(held)
        else:
            self.connection.when_closed(held, close)

    def is_of_broker(self) -> None:
        self.connection.is_of_broker()

    def respond(self, chunks: Chunks, size: int) -> None:
        assert self.chunks is None, "a request is answered twice"
        if chunks:
            head = chunks[0]
            out = BytesWriter()
            write_i32_be(out, size)
            if isinstance(head, bytes):
                out.write(head)
                chunks[0] = out.getvalue()
            else:
                chunks.insert(0, out.getvalue())
        self.chunks = chunks
        # The callback refers to the call that waited, which refers to this exchange: a cycle, which
        # only the garbage collector would free, in a pause of 50 ms after some thousand fetches.
        self.on_disconnect = None
        self.answered_ns = clock.now_ns()
        self.connection.answered(self)

    def disconnect(self, reason: str) -> None:
        self.connection.close(reason)

    def observe_sent(self, sending_ns: int, sent_ns: int) -> None:
        self.handler.metrics.observe(
            self.received_ns,
            self.started_ns,
            # Answered before the handler returned: nothing was awaited.
            self.local_ns or self.answered_ns,
            self.answered_ns,
            max(sending_ns, self.answered_ns),
            sent_ns,
        )
