"""Brokers under abuse: one or three of an engine, the victim's topic, and a supervisor.

A broker that ends by itself is restarted after RESTART_SECONDS, as by a StatefulSet; how often, and
with which exit code, is part of the outcome.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_bench.engines import Servers
from odradek_bench.usage import rss_bytes
from odradek_cli.processes import StartFailedError
from odradek_testkit.engines import Server

VICTIM_TOPIC, VICTIM_PARTITIONS = "victim", 6
RESTART_SECONDS = 2.0
SAMPLE_SECONDS = 0.2
ADMIN_TIMEOUT_S = 120.0
TOPICS_PER_REQUEST = 5  # an ordinary request, as a script sends them


class World:
    """The servers of a scenario: restarted when they end, their memory sampled."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.bootstrap = servers.bootstrap  # while all of them run
        self.exits: list[int] = []  # exit codes of brokers that ended by themselves
        self.rss_max = 0
        self.notes: list[str] = []  # what a scenario measured itself
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._watcher.start()

    def stop(self) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        starting: dict[Server, threading.Thread] = {}
        while not self._over.wait(SAMPLE_SECONDS):
            with suppress(psutil.Error):  # a process ended in between
                self.rss_max = max(self.rss_max, rss_bytes(self.servers.pids))
            for member in self.servers.members:
                restarting = member in starting and starting[member].is_alive()
                if restarting or member.process is None or (code := member.process.poll()) is None:
                    continue
                self.exits.append(code)
                member.process = None
                starting[member] = threading.Thread(target=self._restart, args=(member,))
                starting[member].start()
        for thread in starting.values():
            thread.join()

    def _restart(self, member: Server) -> None:
        while not self._over.wait(RESTART_SECONDS):
            try:
                member.start()
                return
            except StartFailedError as error:
                self.exits.append(error.exit_code if error.exit_code is not None else -1)

    # -- topics --------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_victim_topic(self) -> None:
        factor = len(self.servers.members)
        config = {"min.insync.replicas": "2" if factor > 1 else "1"}
        self._create([NewTopic(VICTIM_TOPIC, VICTIM_PARTITIONS, factor, config=config)])

    def create_topics(self, prefix: str, topics: int, partitions: int) -> None:
        """In ordinary requests."""
        new = [NewTopic(f"{prefix}-{i}", partitions, 1) for i in range(topics)]
        for at in range(0, topics, TOPICS_PER_REQUEST):
            self._create(new[at : at + TOPICS_PER_REQUEST])

    def create_at_once(self, prefix: str, topics: int, partitions: int) -> float:
        """In one request; how long it took. KafkaException as the broker answers."""
        began = time.monotonic()
        self._create([NewTopic(f"{prefix}-{i}", partitions, 1) for i in range(topics)])
        return time.monotonic() - began

    def _create(self, topics: list[NewTopic]) -> None:
        timeout = {"request_timeout": ADMIN_TIMEOUT_S, "operation_timeout": ADMIN_TIMEOUT_S}
        admin = self.admin()  # its futures end with it
        for future in admin.create_topics(topics, **timeout).values():
            future.result(ADMIN_TIMEOUT_S)

    def under_replicated(self) -> int:
        """Partitions of the victim's topic that lack an in-sync replica."""
        admin = self.admin()
        try:
            found = admin.list_topics(VICTIM_TOPIC, timeout=5).topics[VICTIM_TOPIC]
        except KafkaException:
            return VICTIM_PARTITIONS
        partitions = found.partitions.values()
        return sum(len(p.isrs) < len(p.replicas) or p.leader < 0 for p in partitions)
