"""The APIs that this broker serves, as the network and the handlers look them up.

Built once by `registry.py`, which has the table.
"""

from collections.abc import Mapping, Sequence

from odradek_broker.handlers.handler import Handler
from odradek_broker.runtime.listeners import Listeners
from odradek_protocol.messages.struct import Struct

# Produce is served from v3 but advertised from v0, as Kafka 4 does: librdkafka 2.0 (Debian 12's)
# looks for the old versions, and without them sends gzip, snappy and lz4 silently uncompressed.
ADVERTISED_FROM = {"Produce": 0}
# Advertised while the cluster has a client metrics subscription. Kafka's brokers advertise them
# with a plugin only; where they are, librdkafka writes a line to stderr for each client.
OF_TELEMETRY = frozenset({"GetTelemetrySubscriptions", "PushTelemetry"})


class ApiTable:
    def __init__(self, handlers: Sequence[Handler]) -> None:
        self.handlers = {handler.api_key: handler for handler in handlers}
        assert len(self.handlers) == len(handlers), "two handlers for one API key"
        # The APIs of each kind of listener, and the `api_keys` of its ApiVersions responses.
        self.for_clients = {k: h for k, h in self.handlers.items() if not h.internal}
        self.for_controllers = {k: h for k, h in self.handlers.items() if h.access.controller}
        self.advertised_with_telemetry = _api_keys(self.for_clients)
        self.advertised = _api_keys(
            {k: h for k, h in self.for_clients.items() if h.name not in OF_TELEMETRY}
        )
        self.advertised_by_controllers = _api_keys(self.for_controllers)

    def served_on(self, listeners: Listeners) -> dict[str, dict[int, Handler]]:
        """By the name of the listener. If the quorum has none of its own, its APIs are served on
        listeners for brokers, together with those for clients."""
        served = {listener.name: self.for_clients for listener in listeners.brokers}
        for name in listeners.to_quorum:
            served[name] = self.handlers
        for listener in listeners.controllers:
            served[listener.name] = self.for_controllers
        return served

    def forwardable(self, api_key: int, version: int) -> Handler | None:
        """The handler of a request that may come in an Envelope; None if it may not."""
        handler = self.handlers.get(api_key)
        if handler is None or not handler.access.forwardable or not handler.offers(version):
            return None
        return handler


def _api_keys(handlers: Mapping[int, Handler]) -> list[Struct]:
    return [
        Struct(
            api_key=key,
            min_version=ADVERTISED_FROM.get(handler.name, handler.versions.start),
            max_version=handler.versions.stop - 1,
        )
        for key, handler in sorted(handlers.items())
    ]
