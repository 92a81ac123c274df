"""The exactly-once sink: each batch in Kafka transactions, one for each writer (batch_marks.py).

A task of Spark is a writer for the time of one batch:

1. read the mark: a task of a replaced driver ends here, without disturbing its successor
2. init_transactions: producers of the same transactional id, in tasks that Spark has given up or
   in a driver that was replaced, can commit nothing from here on (their epoch is fenced)
3. read the mark again: now nobody else can change it. Committed already: nothing is left to do
4. write the records and the mark in one transaction

A task that dies in between leaves an open transaction, which step 2 of its successor aborts. One
that dies after the commit, before it has reported to Spark, leaves its mark for step 3.

Why not a Python DataSource: its writer does not know the batch, and what it writes could become
visible only when the driver commits, which Kafka does not offer for the producer of another process
(spark-on-k8s/adr/0004).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from odradek_spark import credentials
from odradek_spark.calls import COMMIT_S, repeat
from odradek_spark.sinks.batch_marks import (
    TAKEN_OVER,
    Checkpoint,
    Mark,
    Part,
    TakenOverError,
    decode,
    next_step,
    take_over,
)

TIMEOUT_S = 60.0
# Longer than any batch of a writer should take, shorter than transaction.max.timeout.ms (900 s):
# readers of committed records wait that long for a dead writer that has no successor.
TRANSACTION_TIMEOUT_MS = 300_000
POLL_EVERY = 512  # records between two calls that serve delivery reports


@dataclass(frozen=True)
class Target:
    """Where writers write; goes to the executors, without credentials."""

    config: Mapping[str, str]
    user: str  # directory with the credentials of a KafkaUser, or empty
    topic: str
    prefix: str  # of the transactional ids

    def name(self, writer: int) -> str:
        return f"{self.prefix}{writer}"


class Writer:
    """The connections of one writer: a producer, and a consumer that only reads the mark."""

    def __init__(self, target: Target, number: int) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._name, self._topic = target.name(number), target.topic
        own = credentials.librdkafka("sink", target.user) if target.user else {}
        # Settings that the guarantee rests on come last; a user's settings may change the rest.
        common = {"log_level": 3, **own, **target.config}
        self._consumer = Consumer(
            {**common, "group.id": self._name, "enable.auto.commit": False,
             "isolation.level": "read_committed"}  # waits for offsets of open transactions
        )  # fmt: skip
        self._producer = Producer(
            {"linger.ms": 20, "compression.type": "lz4", "partitioner": "murmur2_random",
             "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, **common,
             "transactional.id": self._name}
        )  # fmt: skip
        self._place = TopicPartition(target.topic, 0)

    def fence(self) -> None:
        """Aborts what others have open under this id, and lets them commit nothing any more."""
        repeat(lambda: self._producer.init_transactions(TIMEOUT_S))

    def mark(self) -> Mark | None:
        found = repeat(self._committed)
        return decode(found.metadata) if found.offset >= 0 else None

    def _committed(self) -> Any:
        from confluent_kafka import KafkaException

        (found,) = self._consumer.committed([self._place], TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return found

    def commit(self, mark: Mark, rows: Iterable[Any] = ()) -> int:
        """Writes the rows and the mark in one transaction; returns the number of rows."""
        from confluent_kafka import KafkaException, TopicPartition

        producer = self._producer
        producer.begin_transaction()
        try:
            count = self._produce(rows)
            place = TopicPartition(self._topic, 0, mark.batch + 1, mark.encode())
            group = self._consumer.consumer_group_metadata()
            repeat(lambda: producer.send_offsets_to_transaction([place], group, TIMEOUT_S))
            repeat(lambda: producer.commit_transaction(COMMIT_S))
        except BaseException:
            # Or readers would wait for its end until it times out. A fenced producer cannot.
            with suppress(KafkaException):
                producer.abort_transaction(TIMEOUT_S)
            raise
        return count

    def close(self) -> None:
        """A producer that failed repeats its error here, which must not hide the first one."""
        from confluent_kafka import KafkaException

        self._consumer.close()
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.close()

    def _produce(self, rows: Iterable[Any]) -> int:
        producer, topic, count = self._producer, self._topic, 0
        for row in rows:
            key, value, headers = _record(row)
            while True:
                try:
                    producer.produce(topic, value, key, headers=headers)
                    break
                except BufferError:
                    producer.poll(1.0)
            count += 1
            if count % POLL_EVERY == 0:
                producer.poll(0)
        return count


@contextmanager
def writing(target: Target, number: int) -> Iterator[Writer]:
    made = Writer(target, number)
    try:
        yield made
    finally:
        made.close()


def claim(target: Target, writers: Iterable[int], checkpoint: Checkpoint, driver: str) -> None:
    """A driver that starts takes writers over, one after the other."""
    from confluent_kafka import KafkaError, KafkaException

    for number in writers:
        with writing(target, number) as writer:
            try:
                writer.fence()
                writer.commit(take_over(writer.mark(), checkpoint, driver))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._FENCED:
                    raise
                raise TakenOverError(TAKEN_OVER) from None


def write_part(target: Target, number: int, part: Part, rows: Iterable[Any]) -> int:
    """One writer's part of a batch, in a task of Spark; returns the number of rows written."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:  # and it will be empty again if the batch is repeated
        return 0
    with writing(target, number) as writer:
        next_step(writer.mark(), part)
        writer.fence()
        if next_step(writer.mark(), part) == "skip":
            return 0
        return writer.commit(part.mark(), chain((first,), iterator))


Headers = list[tuple[str, str | bytes | None]]


def _record(row: Any) -> tuple[bytes | None, bytes | None, Headers | None]:
    headers: Headers | None = None
    if len(row) > 2:
        headers = [(header["key"], _bytes(header["value"])) for header in row[2] or ()]
    return _bytes(row[0]), _bytes(row[1]), headers


def _bytes(value: Any) -> Any:
    return None if value is None else bytes(value)
