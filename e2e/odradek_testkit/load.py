"""A workload in the background: unique ids to several partitions, every answer recorded.

    with Load(cluster, "t", partitions=3) as load:
        cluster.kill(cluster.leader("t", 0))
        load.wait_for_acks(500)                 # five hundred more, after the fault
    load.check()                                # reads everything; raises if an anomaly is found

The producers are librdkafka's with its defaults for retries, acks=all and idempotence. A value is
the id in ten digits. The rate is limited, because two cores carry the brokers and the tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from odradek_testkit.checker import Anomaly, check, report
from odradek_testkit.history import FINAL, History

PRODUCER_SETTINGS = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "log_level": 2,
}
IN_FLIGHT_MAX = 2_000  # records without an answer; sending waits beyond
DEADLINE_S = 60.0


class LoadTarget(Protocol):
    """A cluster of any kind: processes (cluster.Cluster), a local runtime, pods."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def directory(self) -> Path:
        """Where the history of a failed check is saved."""

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = DEADLINE_S
    ) -> float: ...


class Load:
    """Producers in threads; `check` reads everything back and compares."""

    def __init__(
        self,
        cluster: LoadTarget,
        topic: str,
        *,
        partitions: int = 3,
        producers: int = 1,
        per_second: int = 1_000,
        settings: dict[str, Any] | None = None,
        security: dict[str, Any] | None = None,
    ) -> None:
        """`security`: librdkafka's settings of TLS and SASL, for the final reader too."""
        self.cluster = cluster
        self.topic = topic
        self.partitions = partitions
        self.history = History()
        self.acked = 0
        self._settings = {
            "bootstrap.servers": cluster.bootstrap,
            **PRODUCER_SETTINGS,
            **(settings or {}),
            **(security or {}),
        }
        self._security = security or {}
        self.idempotent = bool(self._settings["enable.idempotence"])
        self._per_second = per_second / producers
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=(i,), daemon=True) for i in range(producers)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait_for_acks(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Sends no more records, and waits for the answers to those that were sent."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * DEADLINE_S)

    def wait_for_acks(self, more: int, deadline_s: float = DEADLINE_S) -> float:
        """Waits until `more` records than now are acknowledged; the seconds that it took."""
        target = self.acked + more
        return self.cluster.wait_until(
            lambda: self.acked >= target, f"{more} more acknowledgements", deadline_s
        )

    def wait_for_every_partition(self, deadline_s: float = DEADLINE_S) -> float:
        """Waits until a record that is sent from now on is acknowledged in each partition."""
        began = time.monotonic()

        def done() -> bool:
            fresh = {w.partition for w in self.history.acked() if w.sent_at_s > began}
            return len(fresh) == self.partitions

        return self.cluster.wait_until(done, "acknowledgements in all partitions", deadline_s)

    def _produce(self, index: int) -> None:
        producer = Producer(self._settings)
        history = self.history
        in_flight = threading.Semaphore(IN_FLIGHT_MAX)

        def answer(number: int, error: KafkaError | None, message: Message) -> None:
            in_flight.release()
            if error is None:
                offset = message.offset()
                history.ack(number, -1 if offset is None or offset < 0 else offset)
                self.acked += 1
            else:
                history.unknown(number, error.name())

        began, sent = time.monotonic(), 0
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._per_second) - sent
            if due > self._per_second:  # after an outage go on at the same rate
                began, sent, due = time.monotonic(), 0, 1
            for _ in range(due):
                if not in_flight.acquire(blocking=False):
                    break
                partition = sent % self.partitions
                number = history.send(index, partition)
                producer.produce(
                    self.topic,
                    b"%010d" % number,
                    partition=partition,
                    on_delivery=partial(answer, number),
                )
                sent += 1
            producer.poll(0.005)
        producer.flush(DEADLINE_S)

    # -- the check ---------------------------------------------------------------------------------

    def read_everything(self) -> None:
        """Every partition from its beginning to its end, as the final reader."""
        read_all(self.cluster, self.topic, self.partitions, self.history, self._security)

    def anomalies(self) -> list[Anomaly]:
        self.read_everything()
        return check(self.history, idempotent=self.idempotent)

    def check(self) -> int:
        """How many acknowledged writes were checked; AssertionError lists the anomalies."""
        found = self.anomalies()
        if found:
            kept = self.cluster.directory / "history.jsonl"
            self.history.save(kept)
            raise AssertionError(f"{report(found)}\nhistory: {kept}")
        return self.history.acked_count()


def read_all(
    cluster: LoadTarget,
    topic: str,
    partitions: int,
    history: History,
    security: dict[str, Any] | None = None,
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "final",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 2,
            **(security or {}),
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    ended: set[int] = set()
    give_up = time.monotonic() + 2 * DEADLINE_S
    try:
        while len(ended) < partitions:
            assert time.monotonic() < give_up, f"{topic}: only {sorted(ended)} read to their ends"
            for message in consumer.consume(5_000, timeout=0.5):
                error = message.error()
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None, "every consumed message names its partition"
                if error is None:
                    assert offset is not None, "a record has an offset"
                    assert value is not None, "a record of a Load has a value"
                    history.read(FINAL, partition, offset, int(value[:10]))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
                else:
                    raise AssertionError(f"{topic}-{partition}: {error}")
    finally:
        consumer.close()
