"""The brokers of one cluster as processes and directories: the local half of the platform port.

Ports are given once and kept: from `odradek.dev/local-port` on (broker 0 gets that one, broker 1
the next), or free ones from below the range that the kernel gives to outgoing connections, so
that nobody takes them while a broker restarts.
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

from odradek_operator.api.kafka_cluster import KafkaClusterSpec
from odradek_operator.cluster.local.ledger import (
    BrokerEntry,
    Ledger,
    read_ledger,
    write_ledger,
)
from odradek_operator.cluster.local.processes import LocalBroker
from odradek_operator.desired.build import DesiredCluster, Endpoint, Known
from odradek_operator.observed import ObservedBroker

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
ADMIN_OFFSET = 1000  # with configured ports: 9092 has its /metrics on 10092
CONTROLLER_OFFSET = 2000  # and the controller of engine apache on 11092


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

    # -- what is known and seen --------------------------------------------------------------------

    def known(self) -> Known:
        entries = self.ledger.brokers
        return Known(
            existing={b: e.rack for b, e in entries.items() if not e.kept},
            kept={b: e.rack for b, e in entries.items() if e.kept},
            formation=tuple(self.ledger.formation),
            cluster_id=self.ledger.cluster_id,
        )

    def observe(self) -> Mapping[int, ObservedBroker]:
        now = time.time()
        return {b: broker.look(now) for b, broker in self._brokers.items()}

    def endpoints(
        self, brokers: Mapping[int, str], spec: KafkaClusterSpec
    ) -> Mapping[int, Endpoint]:
        return {b: self._endpoint(b, spec) for b in {*brokers, *self.ledger.brokers}}

    def _endpoint(self, broker: int, spec: KafkaClusterSpec) -> Endpoint:
        ports = self._ports_of(broker)
        listener = f"PLAINTEXT://{HOST}:{ports.clients}"
        data = self.directory / f"broker-{broker}"
        dirs = tuple(str(data / f"data-{n}") for n in range(spec.storage.volumes))
        return Endpoint(
            f"{HOST}:{ports.clients}",
            listener,
            listener,
            admin=f"{HOST}:{ports.admin}" if ports.controller or spec.engine != "apache" else "",
            log_dirs=dirs,
            controller=f"{HOST}:{ports.controller or ports.admin}",
        )

    def bootstrap(self) -> str:
        """The brokers that run now; a client finds the others through them."""
        return ",".join(b.address for b in self._brokers.values() if b.pid)

    def pids(self) -> dict[int, int]:
        return {b: broker.pid for b, broker in self._brokers.items() if broker.pid}

    # -- what is done ------------------------------------------------------------------------------

    def write_down(self, desired: DesiredCluster) -> None:
        """Brokers that are about to exist, and who forms the cluster; saved if that is news."""
        before = (list(self.ledger.formation), dict(self.ledger.brokers))
        self.ledger.formation = list(desired.formation)
        for broker in desired.brokers.values():
            entry = self.ledger.brokers.get(broker.id)
            if entry is None or entry.kept:
                ports = self._ports_of(broker.id)
                self.ledger.brokers[broker.id] = BrokerEntry(broker.rack, *ports)
        if before != (self.ledger.formation, self.ledger.brokers):
            self.save()

    def start(self, broker: int, settings: Mapping[str, str] | None) -> None:
        """`settings` None: as before (a broker that leaves, but has replicas to give away)."""
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
        """All of them; those in `order` first. Nobody waits for a take-over: all go."""
        last = [b for b in self._brokers if b not in order]
        for broker in (*order, *last):
            if broker in self._brokers:
                self._brokers[broker].stop()
        for found in self._brokers.values():
            found.wait()

    def kill_all(self) -> None:
        """kill -9: a power cut for one machine; what is on disk is what there is."""
        for found in self._brokers.values():
            found.kill()
        for found in self._brokers.values():
            found.wait()

    # -- ports -------------------------------------------------------------------------------------

    def _broker(self, broker: int, rack: str) -> LocalBroker:
        ports = self._ports_of(broker)
        directory = self.directory / f"broker-{broker}"
        return LocalBroker(
            broker, rack, directory, f"{HOST}:{ports.clients}", f"{HOST}:{ports.admin}"
        )

    def _ports_of(self, broker: int) -> Ports:
        if broker not in self._ports:
            if self.first_port is not None:
                port = self.first_port + broker
                ports = Ports(port, port + ADMIN_OFFSET, port + CONTROLLER_OFFSET)
            else:
                taken = {p for ports in self._ports.values() for p in ports}
                ports = Ports(*_free_ports(len(Ports._fields), taken))
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
