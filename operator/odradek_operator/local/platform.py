"""The nodes of one cluster as processes and directories: the local side of the Platform port.

Ports are assigned once and kept: from `odradek.dev/local-port` on (broker 0 gets that one, broker 1
the next), or free ones below the kernel's range for outgoing connections, so that no other process
takes them while a broker restarts.
"""

from __future__ import annotations

import random
import secrets
import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from odradek_api.kafka_cluster.limits import LISTENERS_MAX
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kafka.desired import ClusterLayout, DesiredCluster, Endpoint, Known
from odradek_operator.kafka.links import CONTROLLER_NAME
from odradek_operator.kafka.observed import ObservedBroker
from odradek_operator.kafka.placement import CONTROLLER_IDS, is_controller
from odradek_operator.kafka.routes import ClusterRoute, operator_route
from odradek_operator.kafka.security_settings import protocols
from odradek_operator.local.certificates import LocalCertificates
from odradek_operator.local.ledger import (
    BrokerEntry,
    Ledger,
    read_ledger,
    write_ledger,
)
from odradek_operator.local.processes import LocalBroker

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
ADMIN_OFFSET = 1000  # with configured ports: 9092 has its /metrics on 10092
CONTROLLER_OFFSET = 2000  # and the controller of engine apache on 11092
DEDICATED_OFFSET = 3000  # the first dedicated controller: 12092, with its /metrics on 13092
LISTENERS_OFFSET = 5000  # further listeners: 14092, 15092 …
CONTROLLER_NUMBER = LISTENERS_MAX + 1  # after the listeners for clients and the one for brokers


class Ports(NamedTuple):
    clients: int
    admin: int
    controller: int


class LocalPlatform:
    def __init__(
        self,
        directory: Path,
        first_port: int | None = None,
        certificates: LocalCertificates | None = None,
    ) -> None:
        """`certificates`: None if nodes are only found and stopped."""
        self.directory = directory
        self.first_port = first_port
        self._certificates = certificates
        self.ledger: Ledger = read_ledger(directory)
        if not self.ledger.cluster_id:
            self.ledger.cluster_id = urlsafe_b64encode(secrets.token_bytes(16)).decode()[:22]
        self._ports: dict[int, Ports] = {
            b: Ports(entry.port, entry.admin_port, entry.controller_port)
            for b, entry in self.ledger.brokers.items()
        }
        self._listener_ports: dict[int, dict[str, int]] = {
            b: dict(entry.listeners) for b, entry in self.ledger.brokers.items()
        }
        self._brokers: dict[int, LocalBroker] = {
            b: self._broker(b, entry.rack)
            for b, entry in self.ledger.brokers.items()
            if not entry.kept
        }

    def save(self) -> None:
        write_ledger(self.directory, self.ledger)

    # -- observe -----------------------------------------------------------------------------------

    def known(self) -> Known:
        entries = self.ledger.brokers
        return Known(
            existing={b: e.rack for b, e in entries.items() if not (e.kept or is_controller(b))},
            kept={b: e.rack for b, e in entries.items() if e.kept},
            controllers={b: e.rack for b, e in entries.items() if is_controller(b)},
            formation=tuple(self.ledger.formation),
            cluster_id=self.ledger.cluster_id,
            started_with=self.last_settings(),
        )

    def observe(self) -> Mapping[int, ObservedBroker]:
        now = time.time()
        return {b: broker.observe(now) for b, broker in self._brokers.items()}

    def endpoints(self, layout: ClusterLayout) -> Mapping[int, Endpoint]:
        """A new node is assigned free ports; they are kept in memory until `apply` saves them."""
        return {
            node: self._endpoint(node, layout) for node in {*layout.nodes, *self.ledger.brokers}
        }

    def _endpoint(self, broker: int, layout: ClusterLayout) -> Endpoint:
        spec, links = layout.spec, layout.links
        ports = self._ports_of(broker)
        volumes = 1 if is_controller(broker) else spec.storage.volumes
        dirs = tuple(str(self._directory(broker) / f"data-{n}") for n in range(volumes))
        first = spec.client_listener.kafka_name
        bound = {
            name: self._listener_port(broker, name, number, first=name == first)
            for number, name in enumerate(protocols(spec, links))
            if not is_controller(broker)
        }
        controllers = {name: self._controller_port(broker, name) for name in links.controllers}
        addresses = {name: f"{HOST}:{port}" for name, port in bound.items()}
        proxied = _proxied(spec, broker)
        advertised = addresses | {name: proxied[name] for name in proxied.keys() & bound.keys()}
        return Endpoint(
            f"{HOST}:{bound.get(links.inter_broker, ports.clients)}",
            ",".join(f"{name}://{address}" for name, address in addresses.items()),
            ",".join(f"{name}://{address}" for name, address in advertised.items()),
            admin=f"{HOST}:{ports.admin}" if ports.controller or spec.engine != "apache" else "",
            log_dirs=dirs,
            controllers={name: f"{HOST}:{port}" for name, port in controllers.items()},
            clients=f"{HOST}:{bound.get(first, ports.clients)}",
            stores=self._certificates.stores(broker, given=spec.certificates.external)
            if self._certificates and links.secured
            else None,
        )

    def _controller_port(self, node: int, name: str) -> int:
        ports = self._ports_of(node)
        if name == CONTROLLER_NAME:
            return ports.controller or ports.admin
        return self._listener_port(node, name, CONTROLLER_NUMBER, first=False)

    def last_settings(self) -> dict[int, Mapping[str, str]]:
        """Nodes → the settings of their last start, whether they run or not."""
        return {b: broker.settings for b, broker in self._brokers.items() if broker.settings}

    def running(self) -> dict[int, Mapping[str, str]]:
        """Running nodes → the settings that they were started with."""
        return {b: broker.settings for b, broker in self._brokers.items() if broker.pid}

    def route(self) -> ClusterRoute:
        """How to reach the running brokers; a client finds the others through them."""
        return operator_route(s for b, s in self.running().items() if not is_controller(b))

    def bootstrap(self) -> str:
        return self.route().bootstrap

    def pids(self) -> dict[int, int]:
        return {b: broker.pid for b, broker in self._brokers.items() if broker.pid}

    def admin_addresses(self) -> dict[int, str]:
        """Where each node serves /metrics, and ours also /healthz and /readyz."""
        return {b: found for b, broker in self._brokers.items() if (found := broker.admin)}

    def metrics(self) -> dict[int, str]:
        return {b: at for b, at in self.admin_addresses().items() if not is_controller(b)}

    # -- act ---------------------------------------------------------------------------------------

    def supervise(self) -> None:
        """Records ends of processes, completes restarts, kills those that do not stop in time."""
        now = time.time()
        for broker in self._brokers.values():
            broker.supervise(now)

    def apply(self, desired: DesiredCluster) -> None:
        """Records new nodes and which nodes form the cluster; saves the ledger if it changed."""
        before = msgspec.json.encode(self.ledger)
        self.ledger.formation = list(desired.formation)
        for broker in desired.nodes.values():
            entry = self.ledger.brokers.get(broker.id)
            if entry is None or entry.kept:
                ports = self._ports_of(broker.id)
                self.ledger.brokers[broker.id] = BrokerEntry(broker.rack, *ports)
            listeners = self._listener_ports.get(broker.id, {})
            self.ledger.brokers[broker.id].listeners = dict(listeners)
        if before != msgspec.json.encode(self.ledger):
            self.save()

    def start(self, broker: int, settings: Mapping[str, str] | None) -> None:
        """`settings` None: as before (a leaving broker that still holds replicas)."""
        if broker not in self._brokers:
            self._brokers[broker] = self._broker(broker, self.ledger.brokers[broker].rack)
        found = self._brokers[broker]
        found.start(found.settings if settings is None else settings)

    def restart(self, broker: int, settings: Mapping[str, str]) -> None:
        self._brokers[broker].restart(settings)

    def stop(self, broker: int) -> None:
        self._brokers[broker].stop()

    def remove(self, broker: int, *, delete_volumes: bool) -> None:
        found = self._brokers.pop(broker)
        found.wait()
        found.remove(with_data=delete_volumes)
        if delete_volumes:
            del self.ledger.brokers[broker]
        else:
            self.ledger.brokers[broker].kept = True
        self.save()

    def stop_all(self, order: Sequence[int] = ()) -> None:
        """Stops all nodes at once; signals those in `order` first.

        Dedicated controllers stop after the brokers, whose shutdown needs them.
        """
        last = [b for b in self._brokers if b not in order]
        everyone = [b for b in (*order, *last) if b in self._brokers]
        for dedicated in (False, True):
            group = [self._brokers[b] for b in everyone if is_controller(b) is dedicated]
            for found in group:
                found.stop()
            for found in group:
                found.wait()

    # -- ports -------------------------------------------------------------------------------------

    def _broker(self, broker: int, rack: str) -> LocalBroker:
        ports = self._ports_of(broker)
        address, admin = f"{HOST}:{ports.clients}", f"{HOST}:{ports.admin}"
        answers = self._certificates.answers if self._certificates else None
        return LocalBroker(broker, rack, self._directory(broker), address, admin, answers)

    def _directory(self, node: int) -> Path:
        return self.directory / f"{'controller' if is_controller(node) else 'broker'}-{node}"

    def _ports_of(self, broker: int) -> Ports:
        if broker not in self._ports:
            if self.first_port is not None and is_controller(broker):
                port = self.first_port + DEDICATED_OFFSET + broker - CONTROLLER_IDS
                ports = Ports(port, port + ADMIN_OFFSET, port)
            elif self.first_port is not None:
                port = self.first_port + broker
                ports = Ports(port, port + ADMIN_OFFSET, port + CONTROLLER_OFFSET)
            else:
                taken = self._taken()
                ports = Ports(*_free_ports(len(Ports._fields), taken))
                if is_controller(broker):  # its only listener
                    ports = ports._replace(clients=ports.controller)
            self._ports[broker] = ports
        return self._ports[broker]

    def _listener_port(self, broker: int, name: str, number: int, *, first: bool) -> int:
        """A listener keeps its port when others are added or removed."""
        ports = self._listener_ports.setdefault(broker, {})
        if name not in ports:
            clients = self._ports_of(broker).clients
            if first and clients not in ports.values():
                ports[name] = clients
            elif self.first_port is not None:
                port = self.first_port + LISTENERS_OFFSET + ADMIN_OFFSET * number + broker
                while port in ports.values():  # of a listener that was there before this one
                    port += ADMIN_OFFSET
                ports[name] = port
            else:
                ports[name] = _free_port(self._taken())
        return ports[name]

    def _taken(self) -> set[int]:
        more = {p for ports in self._listener_ports.values() for p in ports.values()}
        return more | {p for ports in self._ports.values() for p in ports}


def _proxied(spec: KafkaClusterSpec, broker: int) -> dict[str, str]:
    """Listeners of type passthrough whose proxy the spec names: Kafka's name → its address."""
    return {
        listener.kafka_name: f"{given.host}:{given.port}"
        for listener in spec.external_listeners
        if listener.type == "passthrough"
        for given in listener.advertised
        if given.id == broker and given.port
    }


def _free_ports(count: int, taken: set[int]) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found.append(_free_port({*taken, *found}))
    return found


def _free_port(taken: set[int]) -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in taken:
            return port
