"""Listeners: where a broker accepts connections, and which addresses it advertises to clients.

    listeners=INSIDE://:9092,OUTSIDE://:9094
    advertised.listeners=INSIDE://broker-0.svc:9092,OUTSIDE://kafka.example:9094
    listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT
    inter.broker.listener.name=INSIDE

A listener that controller.listener.names names (CONTROLLER://:9093) is for the metadata quorum and
the controller only, as in Apache Kafka.

Parsed once by `Settings`. The checks are Apache Kafka's, with its wording where it has one.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from odradek_broker.model.config_table import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Listener:
    """One address. `host` "" stands for every interface, port 0 for one that the kernel chooses."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """`brokers` are for clients and brokers; `controllers` are those of controller.listener.names.

    `quorum_name` is the listener through which brokers reach the quorum and its controller: the
    first of controller.listener.names that is in `listeners`, else the inter-broker listener.

    `from_brokers` take requests of other brokers: the inter-broker listener and, while brokers move
    to another one, those of odradek.inter.broker.listener.names.
    """

    brokers: tuple[Listener, ...]
    controllers: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    advertised_controllers: tuple[Listener, ...]
    inter_broker_name: str
    quorum_name: str
    controller_names: frozenset[str]  # of `controllers`
    from_brokers: tuple[str, ...]  # the inter-broker listener is the first

    @property
    def to_quorum(self) -> tuple[str, ...]:
        """Listeners that take requests of the metadata quorum, the one in use first."""
        if self.quorum_name != self.inter_broker_name:
            return (self.quorum_name,)
        return self.from_brokers

    @property
    def bound(self) -> tuple[Listener, ...]:
        return (*self.brokers, *self.controllers)

    def advertise(self, bound_ports: Mapping[str, int]) -> tuple[Listener, ...]:
        """The addresses for others, once the sockets are bound (`{"PLAINTEXT": 41235}`). Those of
        controllers come last; clients are not shown them.

        An advertised port 0 becomes the bound one; an empty host becomes this machine's name.
        """
        return tuple(
            replace(
                listener,
                host=listener.host or _own_host_name(),
                port=listener.port or bound_ports[listener.name],
            )
            for listener in (*self.advertised, *self.advertised_controllers)
        )


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The settings that describe listeners, as the user wrote them."""

    listeners: Sequence[str]
    advertised: Sequence[str] | None
    protocol_map: str
    protocol_map_is_set: bool
    inter_broker_name: str | None
    inter_broker_protocol: str
    controller_names: Sequence[str]
    is_controller: bool
    further_inter_broker_names: Sequence[str] = ()


def parse_listeners(settings: ListenerSettings) -> Listeners:
    protocols = _parse_protocol_map(settings.protocol_map)
    controller_names = tuple(name.upper() for name in settings.controller_names)
    if not settings.protocol_map_is_set:
        # As in Kafka, controller listeners are PLAINTEXT unless the map says otherwise.
        for name in controller_names:
            protocols.setdefault(name, "PLAINTEXT")
    endpoints = _parse_endpoints("listeners", settings.listeners, protocols)
    _check_distinct("listeners", endpoints, ports_too=True)
    brokers = tuple(e for e in endpoints if e.name not in controller_names)
    controllers = tuple(e for e in endpoints if e.name in controller_names)
    if not brokers:
        raise ConfigError("listeners must have at least one that is not a controller listener")
    advertised, reachable = brokers, {e.name: e for e in controllers}
    if settings.advertised is not None:
        advertised = _parse_endpoints("advertised.listeners", settings.advertised, protocols)
        if settings.is_controller:  # only a controller may advertise controller listeners
            reachable.update({e.name: e for e in advertised if e.name in reachable})
            advertised = tuple(e for e in advertised if e.name not in controller_names)
    _check_advertised(advertised, brokers, controller_names)
    inter_broker = (settings.inter_broker_name or settings.inter_broker_protocol).upper()
    if inter_broker not in [listener.name for listener in advertised]:
        names = ",".join(listener.name for listener in advertised)
        raise ConfigError(
            "inter.broker.listener.name must be a listener name defined in "
            "advertised.listeners. The valid options based on currently configured listeners "
            f"are {names}"
        )
    further = tuple(name.upper() for name in settings.further_inter_broker_names)
    if unknown := [n for n in further if n not in [listener.name for listener in advertised]]:
        raise ConfigError(
            f"odradek.inter.broker.listener.names: {', '.join(unknown)} must be in "
            "advertised.listeners"
        )
    quorum = next((name for name in controller_names if name in reachable), inter_broker)
    return Listeners(
        brokers,
        controllers,
        advertised,
        tuple(reachable.values()),
        inter_broker,
        quorum,
        frozenset(reachable),
        tuple(dict.fromkeys((inter_broker, *further))),
    )


def _parse_protocol_map(text: str) -> dict[str, str]:
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {pair!r} must be <listener name>:<protocol>, "
                f"protocols are {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _parse_endpoints(
    setting: str, texts: Sequence[str], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    found = []
    for text in texts:
        match = _ENDPOINT.fullmatch(text)
        if match is None:
            raise ConfigError(f"Invalid value {text} for configuration {setting}: must be "
                              "<listener name>://<host>:<port>")  # fmt: skip
        name, host, port = match[1].upper(), match[2], int(match[3])
        if name not in protocols:
            raise ConfigError(
                f"{setting}: No security protocol defined for listener {name} "
                "(see listener.security.protocol.map)"
            )
        if not 0 <= port <= 65535:
            raise ConfigError(f"{setting}: port {port} of {text} is out of range 0–65535")
        found.append(Listener(name, host, port, protocols[name]))
    return tuple(found)


def _check_distinct(setting: str, endpoints: Sequence[Listener], *, ports_too: bool) -> None:
    shown = ",".join(map(str, endpoints))
    names = [e.name for e in endpoints]
    if len(set(names)) != len(names):
        raise ConfigError(f"Each listener must have a different name, {setting}: {shown}")
    ports = [(e.port, ":" in e.host) for e in endpoints if e.port]
    if ports_too and len(set(ports)) != len(ports):
        raise ConfigError(f"Each listener must have a different port, {setting}: {shown}")


def _check_advertised(
    advertised: Sequence[Listener], brokers: Sequence[Listener], controller_names: Sequence[str]
) -> None:
    _check_distinct("advertised.listeners", advertised, ports_too=False)
    for listener in advertised:
        if listener.host == _ANY_ADDRESS:
            raise ConfigError(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. "
                "Use a routable IP address."
            )
        if listener.name in controller_names:
            raise ConfigError(
                "The advertised.listeners config must not contain KRaft controller listeners "
                "from controller.listener.names"
            )
    known = [listener.name for listener in brokers]
    unknown = [listener.name for listener in advertised if listener.name not in known]
    if unknown or not advertised:
        raise ConfigError(
            "advertised.listeners: listener names must only include those that are defined in "
            f"listeners ({', '.join(known)}), got {', '.join(unknown) or 'none'}"
        )


def _own_host_name() -> str:
    """As in Kafka: the machine's own name, if it can be resolved."""
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
