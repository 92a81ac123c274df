"""Limits of connections: how many, from one address, on a listener, and how many new per second.

Does no I/O. `network/server.py` asks it for each connection that it has accepted:

    max.connections.per.ip(.overrides)    more are closed at once
    listener.name.<name>.max.connections  more are closed at once
    max.connection.creation.rate          the listener accepts no further one for a moment; also as
                                          listener.name.<name>.max.connection.creation.rate. The
                                          limit of the broker does not hold up the listener of
                                          other brokers, if they have one of their own
    connection_creation_rate of an IP     closed after a moment, so that the client does not come
                                          back at once (a client quota)

Settings may change at run time, so they are read for each connection.
"""

import ipaddress
from collections import Counter
from collections.abc import Collection
from contextlib import suppress

from odradek_broker.metadata.client_quotas import (
    CONNECTION_CREATION_RATE,
    IP,
    Quotas,
)
from odradek_broker.model.config_table import ConfigError
from odradek_broker.model.hosts import canonical_host
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.rates import SampledRate, Windows

UNLIMITED = 2**31 - 1
MAX_CONNECTIONS = "max.connections"
CREATION_RATE = "max.connection.creation.rate"
PER_IP_OVERRIDES = "max.connections.per.ip.overrides"
# Addresses whose rate is measured; an address that was idle for all windows has none.
ADDRESSES_MAX = 10_000


def parse_overrides(text: str) -> dict[str, int]:
    """ "10.0.0.7:5,::1:20" → {"10.0.0.7": 5, "::1": 20}. Addresses only, no names of hosts."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        address, _, limit = part.rpartition(":")
        try:
            found[canonical_host(str(ipaddress.ip_address(address.strip("[]"))))] = int(limit)
        except ValueError:
            raise ConfigError(
                f"{PER_IP_OVERRIDES}: {part}: must be <address>:<maximum>, such as 10.0.0.7:100"
            ) from None
    return found


class ConnectionLimits:
    def __init__(
        self, settings: Settings, windows: Windows, protected_listeners: Collection[str]
    ) -> None:
        """`protected_listeners` are for brokers only; empty if they share one with clients."""
        self._settings = settings
        self._windows = windows
        self._protected_listeners = protected_listeners
        self._overrides_text = settings.str("max.connections.per.ip.overrides")
        self._overrides = parse_overrides(self._overrides_text)
        self._on_listener: Counter[str] = Counter()
        self._rates: dict[str, SampledRate] = {}  # by listener; "" for all of them
        self._ip_limits: dict[str | None, float] = {}  # None: the default
        self._ip_rates: dict[str, SampledRate] = {}
        self.throttled_ips = 0  # connections closed for the rate of their address
        self.pauses = 0  # of a listener

    def apply(self, quotas: Quotas) -> None:
        self._ip_limits = {
            name if name is None else canonical_host(name): values[key]
            for ((kind, name), *_), values in quotas.items()
            for key in values
            if kind == IP and key == CONNECTION_CREATION_RATE
        }
        if not self._ip_limits:
            self._ip_rates.clear()

    # -- how many ------------------------------------------------------------------------------

    def opened(self, listener: str) -> None:
        self._on_listener[listener] += 1

    def closed(self, listener: str) -> None:
        self._on_listener[listener] -= 1

    def is_full(self, listener: str) -> bool:
        return self._on_listener[listener] >= self._of_listener(listener, MAX_CONNECTIONS)

    def per_ip_max(self, host: str) -> int:
        text = self._settings.str("max.connections.per.ip.overrides")
        if text != self._overrides_text:
            self._overrides_text = text
            # the controller does not validate it: the last valid value stays in force
            with suppress(ConfigError):
                self._overrides = parse_overrides(text)
        return self._overrides.get(host, self._settings.int("max.connections.per.ip"))

    def _of_listener(self, listener: str, name: str) -> int:
        """The limit of one listener (listener.name.<name>.…), without that of the whole broker."""
        settings, key = self._settings, f"listener.name.{listener.lower()}.{name}"
        for layer in (settings.dynamic_broker, settings.dynamic_default, settings.static):
            if key in layer:
                return int(layer[key])
        return UNLIMITED

    # -- how many per second -------------------------------------------------------------------

    def accepted(self, listener: str, now_ms: float) -> int:
        """Counts a new connection; for how many ms the listener should not accept another."""
        pause_ms = self._paused(listener, self._of_listener(listener, CREATION_RATE), now_ms)
        if listener not in self._protected_listeners:
            of_broker_ms = self._paused(
                "", self._settings.int("max.connection.creation.rate"), now_ms
            )
            pause_ms = max(pause_ms, of_broker_ms)
        self.pauses += pause_ms > 0
        return pause_ms

    def _paused(self, name: str, limit: int, now_ms: float) -> int:
        if limit >= UNLIMITED:
            return 0
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = SampledRate(self._windows, now_ms)
        rate.record(1, now_ms)
        return self._bounded(rate, limit, now_ms)

    def throttled_ms(self, host: str, now_ms: float) -> int:
        """Counts a new connection from this address. If it has to be closed: after how many ms."""
        if not self._ip_limits:
            return 0
        limit = self._ip_limits.get(host, self._ip_limits.get(None))
        if limit is None:
            return 0
        rate = self._ip_rates.get(host)
        if rate is None:
            if len(self._ip_rates) >= ADDRESSES_MAX:
                self._drop_idle(now_ms)
            rate = self._ip_rates[host] = SampledRate(self._windows, now_ms)
        rate.record(1, now_ms)
        throttle_ms = self._bounded(rate, limit, now_ms)
        if throttle_ms > 0:
            rate.record(-1, now_ms)
            self.throttled_ips += 1
        return throttle_ms

    def _drop_idle(self, now_ms: float) -> None:
        oldest_ms = now_ms - (self._windows.samples + 1) * self._windows.window_ms
        self._ip_rates = {h: r for h, r in self._ip_rates.items() if r.last_ms > oldest_ms}

    def _bounded(self, rate: SampledRate, limit: float, now_ms: float) -> int:
        """At most one window, as in Apache Kafka."""
        if limit <= 0:
            return int(self._windows.window_ms)
        return min(rate.throttle_ms(limit, now_ms), int(self._windows.window_ms))
