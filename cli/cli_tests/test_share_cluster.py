"""A share member and three brokers: a session with each leader, and a leader that dies."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.share_groups import alter_start_offsets, start_offsets
from odradek_protocol.client.share_consumer import ShareConsumer
from odradek_protocol.ids import TopicPartition
from odradek_testkit.clients import Rec, produce
from odradek_testkit.cluster import Cluster
from odradek_testkit.waiting import wait_until

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
}
TOPIC, GROUP = "orders", "packers"


def test_leaders_are_followed(tmp_path: Path) -> None:
    """1. A member reads three partitions, each with a leader of its own, and accepts the records.
    2. A leader dies. 3. The member gets the records that are produced then, and no record of the
    two other partitions is delivered again."""
    with Cluster(3, settings=SETTINGS, directory=tmp_path) as cluster:
        cluster.create_topic(TOPIC)
        leaders = {number: cluster.leader(TOPIC, number) for number in range(3)}
        assert len(set(leaders.values())) == 3
        seen: list[bytes] = []
        with KafkaClient(cluster.bootstrap) as client:
            starts = {TopicPartition(TOPIC, number): 0 for number in range(3)}
            assert alter_start_offsets(client, GROUP, starts) == {}

            def read(consumer: ShareConsumer, *wanted: bytes) -> bool:
                for one in consumer.poll():
                    seen.append(one.record.value or b"")
                    consumer.acknowledge(one)
                return set(seen) >= set(wanted)

            with closing(ShareConsumer(client, GROUP, [TOPIC])) as consumer:
                produce(cluster, TOPIC, [Rec(b"a%d" % n, partition=n) for n in range(3)])
                wait_until(lambda: read(consumer, b"a0", b"a1", b"a2"), "the first records")
                consumer.poll()  # sends the acknowledgements
                cluster.kill(leaders[0])
                produce(cluster, TOPIC, [Rec(b"b%d" % n, partition=n) for n in range(3)])
                wait_until(lambda: read(consumer, b"b0", b"b1", b"b2"), "the others", 120.0)
            found = start_offsets(client, GROUP)
        assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
        assert [getattr(found[place], "offset", found[place]) for place in sorted(found)] == [2] * 3
