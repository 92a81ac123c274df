"""The tasks of a client, and how their result is checked from outside.

A program is started as `PROGRAM BOOTSTRAP PREFIX` and prints one line per check: `ok CHECK`,
`absent CHECK: why` (the client has no such feature) or `failed CHECK: why`.
Before, the suite creates the topics, and writes PREFIX-others with librdkafka. Afterwards it looks
at the result with librdkafka ("seen") and in the segment files:

- admin: creates PREFIX-admin (3 partitions), sets retention.ms=3600000, describes it, deletes
  PREFIX-gone. Seen: both.
- records CODEC: writes 100 records with key, value and header to PREFIX-CODEC and reads them. Seen:
  the records; the codec and the format of the batches in the segment file.
- others: reads 50 records of each codec from PREFIX-others.
- group: a has the 4 partitions of PREFIX-group; a and b have 2 each; a leaves, b has 4.
- idempotent: writes and reads 100 records in PREFIX-idempotent. Seen: the records, producer ids.
- transactions: commits 10, aborts 10, commits 10 records in PREFIX-txn. Seen: the committed ones.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 100
PER_CODEC = 50
PARTITIONS = 4
DEADLINE_S = 120.0

# Kafka's record batch: attributes at byte 21 (codec: 3 bits), producer id at byte 43.
BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class Check:
    """One thing that a client did or did not do: `state` is ok, absent or failed."""

    name: str
    state: str
    why: str = ""


class Unexpected(AssertionError):  # noqa: N818 - it reads as the finding that it is
    """The suite found another result than the client reported."""


def parse(output: str) -> list[Check]:
    """The lines of a program; other lines are its log."""
    found = []
    for line in output.splitlines():
        state, _, rest = line.partition(" ")
        if state in ("ok", "absent", "failed"):
            name, _, why = rest.partition(": ")
            found.append(Check(name.strip(), state, why))
    return found


def value(what: str, number: int) -> bytes:
    return f"{what} {number} {'a' * 40}".encode()


def prepare(bootstrap: str, prefix: str) -> None:
    """The topics that programs use, and the records of PREFIX-others."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [*CODECS, "gone", "others", "idempotent", "txn"]
    topics = [NewTopic(f"{prefix}-{name}", 1, 1) for name in names]
    topics.append(NewTopic(f"{prefix}-group", PARTITIONS, 1))
    for created in admin.create_topics(topics).values():
        created.result(DEADLINE_S)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for number in range(PER_CODEC):
            producer.produce(f"{prefix}-others", value(codec, number), f"k{number}",
                             headers={"n": str(number)})  # fmt: skip
        flush(producer)


def flush(producer: Producer) -> None:
    left = producer.flush(DEADLINE_S)
    if left:
        raise Unexpected(f"{left} records were not acknowledged within {DEADLINE_S:.0f} s")


def read(
    bootstrap: str, topic: str, partitions: Iterable[int] = (0,), *, until: int | None = None
) -> list[Message]:
    """All committed records, to the end of the partitions, or at least `until` of them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"look-{topic}",
                         "isolation.level": "read_committed", "enable.auto.commit": False,
                         "enable.partition.eof": True})  # fmt: skip
    open_partitions = set(partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in open_partitions])
    found: list[Message] = []
    give_up = time.monotonic() + DEADLINE_S
    try:
        while open_partitions or (until is not None and len(found) < until):
            if time.monotonic() > give_up:
                raise Unexpected(f"{topic}: {len(found)} records within {DEADLINE_S:.0f} s")
            message = consumer.poll(1.0)
            error = message and message.error()
            if message is None:
                continue
            if not error:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition() or 0)
            elif not error.retriable():
                raise Unexpected(f"{topic}: {error}")
    finally:
        consumer.close()
    return found


def batches(data_dir: Path, topic: str) -> list[tuple[int, int, int]]:
    """Format (magic), codec and producer id of each batch in the first segment of partition 0."""
    content = (data_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()
    found, at = [], 0
    while at + BATCH_HEAD.size <= len(content):
        fields = BATCH_HEAD.unpack_from(content, at)
        found.append((fields[3], fields[5] & 7, fields[9]))
        at += 12 + fields[1]
    return found


class Look:
    """The results of one program, seen with librdkafka and in the segment files."""

    def __init__(self, bootstrap: str, data_dir: Path, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._data_dir = data_dir
        self._prefix = prefix

    def confirm(self, check: Check) -> Check:
        """The check as it is, or failed if the suite does not see what the program reported."""
        if check.state != "ok":
            return check
        first, _, rest = check.name.partition(" ")
        try:
            if first == "records":
                self._series(rest, rest)
                self._codec(rest)
            elif first == "idempotent":
                self._series("idempotent", "idempotent")
                if any(producer < 0 for _, _, producer in self._batches("idempotent")):
                    raise Unexpected("a batch without a producer id")
            elif first == "transactions":
                self._transactions()
            elif first == "admin":
                self._admin()
        except Unexpected as wrong:
            return Check(check.name, "failed", f"reported as ok, but {wrong}")
        return check

    def _batches(self, name: str) -> list[tuple[int, int, int]]:
        return batches(self._data_dir, f"{self._prefix}-{name}")

    def _series(self, name: str, what: str) -> None:
        found = read(self._bootstrap, f"{self._prefix}-{name}")
        same([series(message) for message in found], expected(what, RECORDS))

    def _codec(self, codec: str) -> None:
        found = {(magic, used) for magic, used, _ in self._batches(codec)}
        if found != {(2, CODECS.index(codec))}:
            raise Unexpected(f"the batches in the segment have (format, codec) {found}")

    def _transactions(self) -> None:
        found = read(self._bootstrap, f"{self._prefix}-txn")
        same([series(message) for message in found], expected("first", 10) + expected("second", 10))

    def _admin(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        topics = admin.list_topics(timeout=DEADLINE_S).topics
        if f"{self._prefix}-gone" in topics:
            raise Unexpected("the deleted topic is there")
        created = topics.get(f"{self._prefix}-admin")
        if created is None or len(created.partitions) != 3:
            raise Unexpected("the created topic does not have 3 partitions")
        resource = ConfigResource(ConfigResource.Type.TOPIC, f"{self._prefix}-admin")
        (described,) = admin.describe_configs([resource]).values()
        retention = described.result(DEADLINE_S)["retention.ms"].value
        if retention != "3600000":
            raise Unexpected(f"retention.ms is {retention}")


def series(message: Message) -> tuple[bytes | None, bytes | None, object]:
    return message.key(), message.value(), message.headers()


def expected(what: str, count: int) -> list[tuple[bytes | None, bytes | None, object]]:
    return [
        (f"k{number}".encode(), value(what, number), [("n", str(number).encode())])
        for number in range(count)
    ]


def same(found: Sequence[object], wanted: Sequence[object]) -> None:
    if list(found) == list(wanted):
        return
    differs = next((n for n, (f, w) in enumerate(zip(found, wanted, strict=False)) if f != w), None)
    where = "" if differs is None else f", the first difference at {differs}: {found[differs]!r}"
    raise Unexpected(f"{len(found)} records of {len(wanted)} are there{where}")
