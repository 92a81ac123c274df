"""The handler of one API; `registry.py` has the table of all of them."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from odradek_broker.handlers.context import RequestContext
from odradek_broker.runtime.metrics import RequestMetrics
from odradek_protocol.messages.struct import Struct

Handle = Callable[[RequestContext, Any], Struct | Awaitable[Struct]]
Serve = Callable[[RequestContext, bytes, int], None]


class Access(NamedTuple):
    """The senders that an API is open to, and from which moment of the start on."""

    internal: bool = False  # only brokers: served on the listener of the quorum; not for clients
    controller: bool = False  # served on a listener of controller.listener.names, as in Kafka
    forwardable: bool = False  # a broker may forward it to the controller in an Envelope
    early: bool = False  # served while the broker is starting
    # A connection that sent one is read before those of clients when the loop is late.
    urgent: bool = False


FOR_CLIENTS: Final = Access()


class Handler:
    """Either `handle` or `serve` is set; `registry.py` says what they do."""

    __slots__ = (
        "_highest",
        "_lowest",
        "access",
        "api_key",
        "handle",
        "internal",
        "kafka_name",
        "metrics",
        "name",
        "serve",
        "versions",
    )

    def __init__(
        self,
        api_key: int,
        name: str,
        versions: range,
        metrics: RequestMetrics,
        handle: Handle | None = None,
        serve: Serve | None = None,
        *,
        access: Access = FOR_CLIENTS,
    ) -> None:
        self.api_key = api_key
        self.name = name  # as in Kafka's metrics: "Produce", "DescribeConfigs"
        self.kafka_name = _kafka_name(name)
        self.versions = versions
        self._lowest = versions.start
        self._highest = versions.stop - 1
        self.metrics = metrics
        self.handle = handle
        self.serve = serve
        self.access = access
        self.internal = access.internal  # looked up for every request

    def offers(self, version: int) -> bool:
        return self._lowest <= version <= self._highest


def _kafka_name(name: str) -> str:
    """As in the authorizer log: "DescribeConfigs" is DESCRIBE_CONFIGS."""
    return "".join(f"_{c}" if c.isupper() else c for c in name).lstrip("_").upper()
