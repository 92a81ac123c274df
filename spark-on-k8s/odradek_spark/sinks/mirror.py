"""Copies records to another cluster: key, value, headers, timestamp and partition.

Spark's own sink cannot keep timestamps, so the executors produce with librdkafka, idempotently and
in the order of the source's partition. A batch is complete when every record is acknowledged; a
batch that is repeated after a crash is written again: at least once, without gaps, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek_spark import credentials

FLUSH_S = 300.0
QUEUE_RECORDS = 100_000


class MirrorError(Exception):
    """A record was not acknowledged; the batch fails and is repeated."""


class MirrorWriter:
    """Spark's ForeachWriter: open, process, close, per partition and batch, on the executors."""

    def __init__(self, config: Mapping[str, str], prefix: str, user: str = "") -> None:
        """`user`: the directory with the credentials of a KafkaUser."""
        self._config = dict(config)
        self._prefix = prefix
        self._user = user
        self._producer: Any = None
        self._failure = ""

    def open(self, partition_id: int, epoch_id: int) -> bool:  # noqa: ARG002 (Spark's signature)
        from confluent_kafka import Producer

        self._failure = ""
        own = credentials.librdkafka("sink", self._user) if self._user else {}
        self._producer = Producer(
            {
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": QUEUE_RECORDS,
                "message.timeout.ms": int(FLUSH_S * 1000),
                **own,
                **self._config,
            }
        )
        return True

    def process(self, row: Any) -> None:
        headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
        while True:
            try:
                self._producer.produce(
                    self._prefix + row["topic"],
                    value=_bytes(row["value"]),
                    key=_bytes(row["key"]),
                    partition=row["partition"],
                    timestamp=row["timestamp"],
                    headers=[(key, _bytes(value)) for key, value in headers],
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                self._producer.poll(1.0)
        self._producer.poll(0)
        if self._failure:
            raise MirrorError(self._failure)

    def close(self, error: Exception | None) -> None:
        producer, self._producer = self._producer, None
        if producer is None or error is not None:
            return
        left = producer.flush(FLUSH_S)
        if left or self._failure:
            raise MirrorError(self._failure or f"{left} records were not acknowledged")

    def write_all(self, rows: Iterable[Any]) -> None:
        """Writes a partition of a batch DataFrame."""
        self.open(0, 0)
        for row in rows:
            self.process(row)
        self.close(None)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and not self._failure:
            self._failure = f"{message.topic()}-{message.partition()}: {error.str()}"


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
