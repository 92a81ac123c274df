"""The clients of `odradek local demo`: a writer and a reader of one topic, and their counts.

Records are numbered orders, `{"order": 17, "customer": "c3"}`, sent at a steady rate with acks=all;
each number is sent once. So lost and duplicated records show at the end.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

PER_SECOND = 500
CUSTOMERS = 20
FLUSH_S = 60.0
SILENCE_S = 10.0  # without any record for this long the reader has reached the end


def customer(number: int) -> str:
    return f"c{number % CUSTOMERS}"


def order(number: int) -> bytes:
    return json.dumps({"order": number, "customer": customer(number)}).encode()


def number_of(value: bytes) -> int:
    return int(json.loads(value)["order"])


@dataclass
class ClientsSeen:
    sent: int = 0
    acked: dict[int, float] = field(default_factory=dict)  # number → when, in seconds
    errors: list[str] = field(default_factory=list)
    read: Counter[int] = field(default_factory=Counter)
    stamps: list[tuple[int, int]] = field(default_factory=list)  # read: number, record's time in ms
    latencies_ms: list[float] = field(default_factory=list)
    answers: list[tuple[float, float]] = field(default_factory=list)  # acknowledged at, latency ms

    @property
    def lost(self) -> int:
        """Numbers that were acknowledged and never read."""
        return len(self.acked.keys() - self.read.keys())

    @property
    def duplicated(self) -> int:
        return sum(count - 1 for count in self.read.values())

    @property
    def unanswered(self) -> int:
        return self.sent - len(self.acked) - len(self.errors)

    @property
    def longest_silence_s(self) -> float:
        """The longest time without an acknowledgement."""
        return longest_gap_s(sorted(self.acked.values()))

    def percentile_ms(self, percent: int) -> float:
        return percentile(self.latencies_ms, percent)

    def between(self, begin: float, end: float) -> tuple[float, float]:
        """The writer's measurements between two instants: 99th percentile in ms, silence in s."""
        found = sorted(one for one in list(self.answers) if begin <= one[0] <= end)
        instants = [begin, *(at for at, _ in found), end]
        return percentile([latency for _, latency in found], 99), longest_gap_s(instants)


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def longest_gap_s(instants: Sequence[float]) -> float:
    return max((b - a for a, b in pairwise(instants)), default=0.0)


class Clients:
    """A writer and a reader, each in its thread; librdkafka with its default retries."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, login: Mapping[str, str]
    ) -> None:
        """`login`: librdkafka's settings of TLS and SASL."""
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self._login = login
        self.seen = ClientsSeen()
        self._written, self._stop = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._write, self._read)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> ClientsSeen:
        """Stops writing; the reader goes on until it has read every acknowledged record."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.seen

    def _write(self) -> None:
        from confluent_kafka import Producer

        from odradek_cli.librdkafka import settings

        more: dict[str, Any] = {"acks": "all", "enable_idempotence": True, "linger_ms": 5}
        producer = Producer({**settings(self.bootstrap, **more), **self._login})
        seen, began = self.seen, time.monotonic()

        def answered(number: int, at: float, error: KafkaError | None, _: Message) -> None:
            now = time.monotonic()
            if error is None:
                seen.acked[number] = now
                seen.latencies_ms.append(1000 * (now - at))
                seen.answers.append((now, 1000 * (now - at)))
            else:
                seen.errors.append(error.str())

        while not self._stop.is_set():
            while seen.sent < (time.monotonic() - began) * PER_SECOND:
                number, now = seen.sent, time.monotonic()
                producer.produce(
                    self.topic,
                    order(number),
                    partition=number % self.partitions,
                    on_delivery=partial(answered, number, now),
                )
                seen.sent += 1
            producer.poll(0.005)
        producer.flush(FLUSH_S)
        self._written.set()

    def _read(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        from odradek_cli.librdkafka import settings

        more: dict[str, Any] = {"group_id": "demo", "enable_auto_commit": False}
        consumer = Consumer({**settings(self.bootstrap, **more), **self._login})
        consumer.assign([TopicPartition(self.topic, p, 0) for p in range(self.partitions)])
        heard = time.monotonic()
        while not self._has_all() and time.monotonic() - heard < SILENCE_S:
            for message in consumer.consume(1_000, timeout=0.2):
                value = message.value() if message.error() is None else None
                if value is not None:
                    number = number_of(bytes(value))
                    self.seen.read[number] += 1
                    self.seen.stamps.append((number, message.timestamp()[1]))
                    heard = time.monotonic()
            if not self._written.is_set():
                heard = time.monotonic()  # more will come
        consumer.close()

    def _has_all(self) -> bool:
        return self._written.is_set() and not self.seen.lost
