"""What serves the requests of one API; `registry.py` has them all."""

from collections.abc import Awaitable, Callable
from typing import Any

from odradek_broker.handlers.context import RequestContext
from odradek_broker.runtime.metrics import RequestMetrics
from odradek_protocol.messages.struct import Struct

Handle = Callable[[RequestContext, Any], Struct | Awaitable[Struct]]
Serve = Callable[[RequestContext, bytes, int], None]


class Handler:
    __slots__ = (
        "_highest",
        "_lowest",
        "api_key",
        "handle",
        "internal",
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
        internal: bool = False,
    ) -> None:
        self.api_key = api_key
        self.name = name  # as in Kafka's metrics: "Produce", "DescribeConfigs"
        self.versions = versions
        self._lowest = versions.start
        self._highest = versions.stop - 1
        self.metrics = metrics
        self.handle = handle
        self.internal = internal  # served only where other brokers connect, and not advertised
        self.serve = serve

    def offers(self, version: int) -> bool:
        return self._lowest <= version <= self._highest
