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

from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kafka.desired import DesiredCluster, Endpoint, Known
from odradek_operator.kafka.observed import ObservedBroker
from odradek_operator.kafka.placement import CONTROLLER_IDS, is_controller
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


class Ports(NamedTuple):
    clients: int
    admin: int
    controller: int


class LocalPlatform:
    def __init__(self, directory: Path, first_port: int | None = None) -> None:
        self.directory = directory
        self.first_port = first_port
        self.ledger: Ledger = read_ledger(directory)
        if not self.ledger.cluster_id:
            self.ledger.cluster_id = urlsafe_b64encode(secrets.token_bytes(16)).decode()[:22]
        self._ports: dict[int, Ports] = {
            b: Ports(entry.port, entry.admin_port, entry.controller_port)
            for b, entry in self.ledger.brokers.items()
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
        )

    def observe(self) -> Mapping[int, ObservedBroker]:
        now = time.time()
        return {b: broker.observe(now) for b, broker in self._brokers.items()}

    def endpoints(self, nodes: Mapping[int, str], spec: KafkaClusterSpec) -> Mapping[int, Endpoint]:
        """A new node is assigned free ports; they are kept in memory until `apply` saves them."""
        return {node: self._endpoint(node, spec) for node in {*nodes, *self.ledger.brokers}}

    def _endpoint(self, broker: int, spec: KafkaClusterSpec) -> Endpoint:
        ports = self._ports_of(broker)
        listener = f"PLAINTEXT://{HOST}:{ports.clients}"
        volumes = 1 if is_controller(broker) else spec.storage.volumes
        dirs = tuple(str(self._directory(broker) / f"data-{n}") for n in range(volumes))
        return Endpoint(
            f"{HOST}:{ports.clients}",
            listener,
            listener,
            admin=f"{HOST}:{ports.admin}" if ports.controller or spec.engine != "apache" else "",
            log_dirs=dirs,
            controller=f"{HOST}:{ports.controller or ports.admin}",
        )

    def bootstrap(self) -> str:
        """Addresses of the running brokers; a client finds the others through them."""
        brokers = [b for b in self._brokers.values() if b.pid and not is_controller(b.id)]
        return ",".join(b.address for b in brokers)

    def pids(self) -> dict[int, int]:
        return {b: broker.pid for b, broker in self._brokers.items() if broker.pid}

    def admin_addresses(self) -> dict[int, str]:
        """Where each of our brokers serves /metrics, /healthz and /readyz; Apache's have none."""
        return {b: found for b, broker in self._brokers.items() if (found := broker.admin)}

    # -- act ---------------------------------------------------------------------------------------

    def supervise(self) -> None:
        """Records ends of processes, completes restarts, kills what does not stop in time."""
        now = time.time()
        for broker in self._brokers.values():
            broker.supervise(now)

    def apply(self, desired: DesiredCluster) -> None:
        """Records new nodes and which nodes form the cluster; saves the ledger if it changed."""
        before = (list(self.ledger.formation), dict(self.ledger.brokers))
        self.ledger.formation = list(desired.formation)
        for broker in desired.nodes.values():
            entry = self.ledger.brokers.get(broker.id)
            if entry is None or entry.kept:
                ports = self._ports_of(broker.id)
                self.ledger.brokers[broker.id] = BrokerEntry(broker.rack, *ports)
        if before != (self.ledger.formation, self.ledger.brokers):
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

    def kill_all(self) -> None:
        """SIGKILL for all, as a crash of the machine's processes."""
        for found in self._brokers.values():
            found.kill()
        for found in self._brokers.values():
            found.wait()

    # -- ports -------------------------------------------------------------------------------------

    def _broker(self, broker: int, rack: str) -> LocalBroker:
        ports = self._ports_of(broker)
        address, admin = f"{HOST}:{ports.clients}", f"{HOST}:{ports.admin}"
        return LocalBroker(broker, rack, self._directory(broker), address, admin)

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
                taken = {p for ports in self._ports.values() for p in ports}
                ports = Ports(*_free_ports(len(Ports._fields), taken))
                if is_controller(broker):  # its only listener
                    ports = ports._replace(clients=ports.controller)
            self._ports[broker] = ports
        return self._ports[broker]


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
