"""The cluster as its brokers report it: leaders, replicas, controller, offsets.

Asked over connections of its own, never by way of a client library that caches or retries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_testkit.ask import METADATA, Questions

METADATA_VERSION = 12
POLL_S = 0.02
BAD_ANSWER = (OSError, AssertionError, IndexError, ValueError)


class View:
    """Answers of whichever broker answers first; threads may share it."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = dict(addresses)
        self._questions = Questions()
        self._lock = threading.Lock()

    def ask(self, broker: int, api: int, version: int, request: Struct) -> Struct | None:
        """None when it does not answer."""
        with self._lock:
            try:
                return self._questions.ask(self._addresses[broker], api, version, request)
            except BAD_ANSWER:
                self._questions.forget(self._addresses[broker])
                return None

    def metadata(self, topics: Iterable[str], without: int = 0) -> Struct | None:
        asked = [Struct(topic_id=None, name=topic) for topic in topics]
        request = Struct(topics=asked or None, allow_auto_topic_creation=False)
        for broker in self._addresses:
            if broker != without:
                answer = self.ask(broker, METADATA, METADATA_VERSION, request)
                if answer is not None:
                    return answer
        return None

    def partitions(self, topic: str, without: int = 0) -> dict[int, Struct]:
        answer = self.metadata([topic], without)
        if answer is None or not answer.topics or answer.topics[0].error_code:
            return {}
        return {p.partition_index: p for p in answer.topics[0].partitions}

    def leaders(self, topic: str, without: int = 0) -> dict[int, int]:
        return {p: int(found.leader_id) for p, found in self.partitions(topic, without).items()}

    def controller(self) -> int | None:
        partitions = [Struct(partition_index=0)]
        topics = [Struct(topic_name="__cluster_metadata", partitions=partitions)]
        for broker in self._addresses:
            answer = self.ask(broker, ApiKey.DESCRIBE_QUORUM, 1, Struct(topics=topics))
            if answer is not None and answer.topics:
                return int(answer.topics[0].partitions[0].leader_id)
        return None

    def wait_for_other_leaders(
        self, topic: str, partitions: list[int], killed: int, until: float
    ) -> float | None:
        """Seconds until another broker leads all of them; None if not by `until`."""
        began = time.monotonic()
        while time.monotonic() < until:
            leaders = self.leaders(topic, without=killed)
            if leaders and all(leaders.get(p, -1) not in (-1, killed) for p in partitions):
                return round(time.monotonic() - began, 4)
            time.sleep(POLL_S)
        return None

    def in_sync(self, topic: str) -> bool:
        found = self.partitions(topic)
        return bool(found) and all(
            p.leader_id > 0 and len(p.isr_nodes) >= len(p.replica_nodes) for p in found.values()
        )

    def wait_in_sync(self, topic: str, limit_s: float) -> bool:
        """Whether every partition got all of its replicas in sync within the limit."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if self.in_sync(topic):
                return True
            time.sleep(0.1)
        return False

    def close(self) -> None:
        self._questions.close()
