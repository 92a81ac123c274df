"""How the nodes of a cluster talk to each other, and how that changes while they run. No I/O.

    links = decide(spec, {0: settings, 1: settings, …})      # of the nodes that exist
    links.inter_broker, links.controllers                    # what a node that starts now uses

Brokers replicate through one listener, and reach the metadata quorum through it (engine embedded)
or through a listener of its own (engine apache). With TLS these are REPLICATION and CONTROLLERTLS,
without it the first internal listener and CONTROLLER. A change takes three rolling restarts: at
each moment every node has to accept what any other one still uses.

    add      every node listens on both, and uses the old one
    switch   one node after the other uses the new one
    remove   nothing uses the old one any more: it is closed

Which step is due follows from the settings that the nodes were started with, so an operator that
was stopped continues, and a change that is taken back leads back, from every point in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from odradek_api.kafka_cluster.listeners import (
    CONTROLLER,
    CONTROLLER_TLS,
    REPLICATION,
    Listener,
)
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kafka.placement import is_controller

Settings = Mapping[str, str]

PROTOCOL_MAP = "listener.security.protocol.map"
INTER_BROKER = "inter.broker.listener.name"
FURTHER_INTER_BROKER = "odradek.inter.broker.listener.names"
CONTROLLERS = "controller.listener.names"
REPLICATION_NAME = REPLICATION.upper()
CONTROLLER_NAME, CONTROLLER_TLS_NAME = CONTROLLER.upper(), CONTROLLER_TLS.upper()
NOT_FOR_CLIENTS = {REPLICATION_NAME, CONTROLLER_NAME, CONTROLLER_TLS_NAME}
DEFAULT = "PLAINTEXT"  # the inter-broker listener of a node whose settings name none
STEPS = 3
HOST_IP = "${env:HOST_IP}"  # in settings: the address of the machine, which only the pod knows


@dataclass(frozen=True, slots=True)
class Links:
    inter_broker: str  # Kafka's name of the listener
    further: tuple[str, ...] = ()  # listeners that other brokers use, too, or are going to
    controllers: tuple[str, ...] = ()  # engine apache: of the quorum, the one in use first
    step: str = ""  # the purpose of this roll; empty: the links are as the spec says
    later: tuple[str, ...] = ()  # the purpose of the rolls after it
    clients: tuple[str, ...] = ()  # which listeners clients get and lose by these rolls, in words

    @property
    def replication(self) -> bool:
        """Whether brokers have the listener with mTLS for each other."""
        return REPLICATION_NAME in (self.inter_broker, *self.further)

    @property
    def secured(self) -> bool:
        """Whether nodes need certificates."""
        return self.replication or CONTROLLER_TLS_NAME in self.controllers

    @property
    def quorum(self) -> str:
        """The listener through which a node that starts now reaches the metadata quorum."""
        return self.controllers[0] if self.controllers else self.inter_broker


def final(spec: KafkaClusterSpec) -> Links:
    """As the spec says, when nothing has to change any more."""
    controllers: tuple[str, ...] = ()
    if spec.engine == "apache":
        controllers = (CONTROLLER_TLS_NAME if spec.secured else CONTROLLER_NAME,)
    if spec.secured:
        return Links(REPLICATION_NAME, (), controllers)
    return Links(spec.client_listener.kafka_name, (), controllers)


def decide(spec: KafkaClusterSpec, nodes: Mapping[int, Settings]) -> Links:
    """`nodes`: the settings with which every existing node was started, also dedicated ones'."""
    wanted = final(spec)
    known = {n: s for n, s in nodes.items() if "log.dirs" in s}
    brokers = [s for n, s in known.items() if not is_controller(n)]
    voters = [s for s in known.values() if "controller" in s.get("process.roles", "")]
    accepted = [_accepts(s) for s in brokers]
    reached = [frozenset(_list(s, CONTROLLERS)) for s in voters]
    # Both kinds of links change in the same rolls.
    ready = all(wanted.inter_broker in names for names in accepted) and all(
        name in names for name in wanted.controllers for names in reached
    )
    used = [_inter_broker(s) for s in brokers]
    inter, further = _choose(wanted.inter_broker, used, accepted, ready=ready)
    controllers: tuple[str, ...] = ()
    for name in wanted.controllers:
        used = [names[0] for s in known.values() if (names := _list(s, CONTROLLERS))]
        first, others = _choose(name, used, reached, ready=ready)
        controllers = (first, *others)
    step, later = _step(Links(inter, further, controllers), wanted, known)
    return Links(inter, further, controllers, step, later, _of_clients(spec, brokers))


def with_links(spec: KafkaClusterSpec, links: Links, nodes: Iterable[Settings]) -> KafkaClusterSpec:
    """The spec with the listeners that it has no more and that nodes still use for each other."""
    missing = {links.inter_broker, *links.further} - {REPLICATION_NAME}
    missing -= {one.kafka_name for one in spec.listener_list}
    ports: dict[str, int] = {}
    for settings in nodes:
        for name, address in listed_addresses(settings.get("listeners", "")).items():
            ports.setdefault(name, int(address.rpartition(":")[2]))
    kept = [Listener(name=n.lower(), port=ports[n]) for n in sorted(missing) if n in ports]
    if not kept:
        return spec
    return msgspec.structs.replace(spec, listeners=[*spec.listener_list, *kept])


def conflict(spec: KafkaClusterSpec) -> str:
    """Why a spec `with_links` cannot be carried out on Kubernetes, where ports are as it says."""
    by_port: dict[int, Listener] = {}
    for one in spec.listener_list:
        other = by_port.setdefault(one.port, one)
        if other is not one:
            return (
                f"listener {other.name} cannot have port {one.port} yet: the brokers still talk to "
                f"each other through listener {one.name} on that port. Give {other.name} another "
                f"port, or keep {one.name} until status says that the change is complete"
            )
    return ""


def addresses(settings: Settings) -> dict[str, str]:
    """Listener → host:port, as advertised."""
    return listed_addresses(settings.get("advertised.listeners", ""))


def listed_addresses(text: str) -> dict[str, str]:
    pairs = (one.partition("://") for one in text.split(","))
    return {name: address for name, _, address in pairs if address}


# -- steps -----------------------------------------------------------------------------------------


def _choose(
    wanted: str, used: list[str], accepted: list[frozenset[str]], *, ready: bool
) -> tuple[str, tuple[str, ...]]:
    """The name to use now, and the others that a node has to accept."""
    common = [one for one in used if all(one in names for names in accepted)]
    now = wanted
    if used and not ready and wanted not in common:
        now = min(common or used)
    return now, tuple(sorted({wanted, *used} - {now}))


def _step(
    found: Links, wanted: Links, nodes: Mapping[int, Settings]
) -> tuple[str, tuple[str, ...]]:
    """The purpose of the next roll, and of those after it, in words."""
    further = any(_list(s, FURTHER_INTER_BROKER) for s in nodes.values())
    if (found.inter_broker, found.quorum) != (wanted.inter_broker, wanted.quorum):
        number = 0
    elif found.further or len(found.controllers) > 1:
        number = 1
    elif further or any(len(_list(s, CONTROLLERS)) > 1 for s in nodes.values()):
        number = 2
    else:
        return "", ()
    target = f"listener {wanted.inter_broker} between brokers"
    if wanted.replication:
        target = "TLS between brokers"
    elif found.secured or number == 2:
        target = "no TLS between brokers"
    words = (
        "nodes listen on the new listener, too",
        "nodes use the new listener",
        "nodes close the old listener to each other",
    )
    steps = [f"step {n} of {STEPS} to {target}: {text}" for n, text in enumerate(words, 1)]
    return steps[number], tuple(steps[number + 1 :])


def _of_clients(spec: KafkaClusterSpec, brokers: list[Settings]) -> tuple[str, ...]:
    wanted = {one.kafka_name: one for one in spec.listener_list}
    known = [addresses(settings).keys() - NOT_FOR_CLIENTS for settings in brokers]
    words = []
    for name, one in wanted.items():
        if any(name not in names for names in known):
            kind = one.authentication.type
            login = "without a login" if kind == "none" else f"with {kind}"
            words.append(f"listener {one.name} accepts clients {login}, over {one.protocol}")
    for name in sorted({name for names in known for name in names} - wanted.keys()):
        others = " or ".join(one.name for one in wanted.values())
        words.append(f"listener {name.lower()} is closed; move its clients to {others} first")
    return tuple(words)


def _inter_broker(settings: Settings) -> str:
    return settings.get(INTER_BROKER) or DEFAULT


def _accepts(settings: Settings) -> frozenset[str]:
    """Listeners on which a broker takes requests of others: with Apache Kafka, all that it has."""
    if "process.roles" in settings:
        return frozenset(addresses(settings))
    return frozenset({_inter_broker(settings), *_list(settings, FURTHER_INTER_BROKER)})


def _list(settings: Settings, name: str) -> list[str]:
    return [one.strip() for one in settings.get(name, "").split(",") if one.strip()]
