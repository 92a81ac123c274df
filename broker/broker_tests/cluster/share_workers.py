"""Members of a share group that work through faults, and what they may rely on.

Each member is a KafkaShareConsumer in a JVM of its own, driven by a thread: it polls, accepts most
records, releases some at their first delivery, and commits synchronously. What commitSync confirmed
is `done`: a leader must not deliver it again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from random import Random

from broker_tests.clients.share_member import Delivered, ShareMember
from odradek_testkit.cluster import Cluster

RELEASED = 0.05  # of the first deliveries
POLL_MS = 500
EXPLICIT = {
    "share_acknowledgement_mode": "explicit",
    "share_acquire_mode": "record_limit",
    "max_poll_records": "50",
    # A client waits this long for a broker that does not answer; the default is 30 s.
    "request_timeout_ms": "4000",
    "default_api_timeout_ms": "10000",
}


class ShareWorkers:
    """`done` has each value whose acceptance was confirmed, and when; `asked` also those whose
    confirmation was lost with a broker."""

    def __init__(self, cluster: Cluster, topic: str, group: str, count: int) -> None:
        self.done: dict[str, float] = {}
        self.asked: set[str] = set()
        self.delivered: Counter[str] = Counter()
        self.most_deliveries = 0
        self.again: list[tuple[str, float, float]] = []  # value, done at, delivered again at
        self.refused: Counter[str] = Counter()  # commits, by the error
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._members = [ShareMember(cluster, topic, group, **EXPLICIT) for _ in range(count)]
        self._threads = [
            threading.Thread(target=self._work, args=(member, Random(number)), daemon=True)
            for number, member in enumerate(self._members)
        ]
        for thread in self._threads:
            thread.start()

    def kill_one(self) -> None:
        """kill -9 of a member, most likely with records in hand."""
        self._members[0].kill()
        self._threads[0].join()

    def stop(self) -> None:
        self._stopping.set()
        for member, thread in zip(self._members, self._threads, strict=True):
            thread.join()
            with member.process:
                if member.process.poll() is None:
                    member.kill()

    def _work(self, member: ShareMember, rng: Random) -> None:
        # Killed: its pipes are closed, and it has no line to answer with.
        with contextlib.suppress(BrokenPipeError, AssertionError, OSError):
            while not self._stopping.is_set():
                self._one_round(member, rng)

    def _one_round(self, member: ShareMember, rng: Random) -> None:
        begun = time.monotonic()
        found = member.poll_once(POLL_MS)
        self._note(found, begun)
        accepted = []
        for record in found:
            release = record.deliveries == 1 and rng.random() < RELEASED
            member.acknowledge("release" if release else "accept", record)
            if not release:
                accepted.append(record)
        if not found:
            return
        self.asked.update(record.value for record in accepted)
        results = member.commit_once()
        with self._lock:
            self.refused.update(result for result in results.values() if result != "ok")
            for record in accepted:
                if results.get(record.partition) == "ok":
                    self.done[record.value] = time.monotonic()

    def _note(self, found: list[Delivered], begun: float) -> None:
        """Records fetched before the poll began were acquired before that, so they may be done."""
        with self._lock:
            for record in found:
                self.delivered[record.value] += 1
                self.most_deliveries = max(self.most_deliveries, record.deliveries)
                done_at = self.done.get(record.value)
                if done_at is not None and done_at < begun:
                    self.again.append((record.value, done_at, begun))
