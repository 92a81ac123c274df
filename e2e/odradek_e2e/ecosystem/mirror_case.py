"""MirrorMaker 2 between two clusters of the same engine, with exactly-once source.

- records: keys, values, headers and timestamps of PREFIX-m (4 partitions) are in west.PREFIX-m of
  the other cluster, partition by partition
- survives kill -9: killed while it copies, and started again: each record is there once, in order
- topic: the copy has the partitions and the retention of the original, also after a change
- group: the offset of a group is translated: a reader that goes on there misses nothing
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from odradek_e2e.ecosystem.case import Case, Place
from odradek_e2e.ecosystem.connect_case import java, properties
from odradek_e2e.ecosystem.contract import (
    DEADLINE_S,
    PARTITIONS,
    Check,
    Unexpected,
    flush,
    read,
    same,
)
from odradek_e2e.ecosystem.running import Checks, Running
from odradek_testkit.engines import kafka_version

FIRST, SECOND = 2_000, 20_000
COMMITTED = 1_000  # of the first records in partition 0, by a group of the source cluster
CHECKS = ("records", "survives kill -9 (exactly once)", "topic", "group")
ONE = ("replication.factor", "checkpoints.topic.replication.factor",
       "heartbeats.topic.replication.factor", "offset-syncs.topic.replication.factor",
       "config.storage.replication.factor", "offset.storage.replication.factor",
       "status.storage.replication.factor")  # fmt: skip


class Pair:
    """The two clusters, as librdkafka sees them."""

    def __init__(self, west: str, east: str, prefix: str) -> None:
        self.west, self.east = west, east
        self.topic, self.copy = f"{prefix}-m", f"west.{prefix}-m"
        self.group = f"{prefix}-readers"
        self._written = 0
        self.source = AdminClient({"bootstrap.servers": west})
        self.target = AdminClient({"bootstrap.servers": east})

    def write(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.west, "enable.idempotence": True})
        for number in range(self._written, self._written + count):
            producer.produce(
                self.topic, f"value {number}", f"k{number}", number % PARTITIONS,
                headers=[("n", str(number))], timestamp=1_700_000_000_000 + number,
            )  # fmt: skip
            producer.poll(0)
        self._written += count
        flush(producer)

    def copied(self) -> int:
        if self.copy not in self.target.list_topics(timeout=DEADLINE_S).topics:
            return 0
        return len(read(self.east, self.copy, range(PARTITIONS)))

    def equal(self) -> None:
        original = read(self.west, self.topic, range(PARTITIONS))
        copy = read(self.east, self.copy, range(PARTITIONS))
        for partition in range(PARTITIONS):
            same(_of(copy, partition), _of(original, partition))

    def complete(self) -> bool:
        return self.copied() >= self._written


def _of(records: Sequence[Message], partition: int) -> list[object]:
    return [
        (m.key(), m.value(), m.headers(), m.timestamp())
        for m in records
        if m.partition() == partition
    ]


def run(place: Place) -> list[Check]:
    target = type(place.server)(
        {"group.initial.rebalance.delay.ms": "0"}, directory=place.directory / "east"
    )
    with target as east:
        pair = Pair(place.server.bootstrap, east.bootstrap, place.prefix)
        settings: dict[str, object] = {
            "clusters": "west, east",
            "west.bootstrap.servers": pair.west,
            "east.bootstrap.servers": pair.east,
            "west->east.enabled": "true",
            "east->west.enabled": "false",
            "west->east.topics": f"{place.prefix}-m",
            "west->east.groups": pair.group,
            "west->east.sync.group.offsets.enabled": "true",
            "east.exactly.once.source.support": "enabled",
            "offset.lag.max": 10,
            **{f"{what}.interval.seconds": 2
               for what in ("refresh.topics", "refresh.groups", "sync.topic.configs",
                            "emit.checkpoints", "sync.group.offsets")},
            **dict.fromkeys(ONE, 1),
        }  # fmt: skip
        file = properties(place.directory / "mm2.properties", settings)
        command = java("connect", "org.apache.kafka.connect.mirror.MirrorMaker", file)
        new = NewTopic(pair.topic, PARTITIONS, 1, config={"retention.ms": "-1"})
        pair.source.create_topics([new])[pair.topic].result(DEADLINE_S)
        pair.write(FIRST)
        checks = Checks()
        with Running("mirror-maker", command, place.directory) as maker:
            records, killed, topic, group = CHECKS
            checks.run(records, lambda: _records(pair, maker))
            checks.run(killed, lambda: _killed(pair, maker))
            checks.run(group, lambda: _group(pair, maker))
            checks.run(topic, lambda: _topic(pair, maker))
            maker.kill()  # before the cluster that it writes to ends
    return checks.found


def _records(pair: Pair, maker: Running) -> None:
    maker.wait(pair.complete, "the first records are copied")
    pair.equal()


def _killed(pair: Pair, maker: Running) -> None:
    pair.write(SECOND)
    maker.wait(lambda: pair.copied() > FIRST, "some of the other records are copied")
    maker.kill()
    maker.start()
    pair.write(FIRST)
    maker.wait(pair.complete, "every record is copied")
    pair.equal()


def _group(pair: Pair, maker: Running) -> None:
    """The group stands after COMMITTED records of partition 0."""
    place = TopicPartition(pair.topic, 0, COMMITTED)
    asked = [ConsumerGroupTopicPartitions(pair.group, [place])]
    pair.source.alter_consumer_group_offsets(asked)[pair.group].result(DEADLINE_S)
    found = -1

    def translated() -> bool:
        nonlocal found
        wanted = [ConsumerGroupTopicPartitions(pair.group, [TopicPartition(pair.copy, 0)])]
        answer = pair.target.list_consumer_group_offsets(wanted)[pair.group].result(DEADLINE_S)
        found = int(answer.topic_partitions[0].offset)
        return found > 0

    maker.wait(translated, f"the offset of {pair.group} is in the other cluster")
    copy = read(pair.east, pair.copy)
    skipped = [m for m in copy if (m.offset() or 0) < found]
    if len(skipped) > COMMITTED:
        raise Unexpected(f"{len(skipped)} records are before offset {found}, {COMMITTED} were read")


def _topic(pair: Pair, maker: Running) -> None:
    entry = ConfigEntry("retention.ms", "7654321", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, pair.topic, incremental_configs=[entry])
    pair.source.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    more = NewPartitions(pair.topic, PARTITIONS + 1)
    pair.source.create_partitions([more])[pair.topic].result(DEADLINE_S)

    def followed() -> bool:
        asked = ConfigResource(ConfigResource.Type.TOPIC, pair.copy)
        (described,) = pair.target.describe_configs([asked]).values()
        retention = described.result(DEADLINE_S)["retention.ms"].value
        partitions = pair.target.list_topics(timeout=DEADLINE_S).topics[pair.copy].partitions
        return bool(retention == "7654321" and len(partitions) == PARTITIONS + 1)

    maker.wait(followed, "the copy has the retention and the partitions of the original")


CASE = Case("mirror-maker", f"MirrorMaker {kafka_version()}, two clusters", run, checks=CHECKS)
