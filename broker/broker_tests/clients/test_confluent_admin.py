"""librdkafka's admin client: topics, partitions, configurations, offsets, the cluster."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from odradek_testkit.clients import (
    DEADLINE_S,
    Rec,
    admin_of,
    create_topic,
    numbered,
    produce,
    wait_until,
)
from odradek_testkit.engines import Server


def refused_code(error: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(error.value.args[0].code())


def test_create_list_describe_delete(broker: Server, topic: str) -> None:
    admin = admin_of(broker)
    create_topic(broker, topic, partitions=3)
    listed = admin.list_topics(timeout=DEADLINE_S)
    assert sorted(listed.topics[topic].partitions) == [0, 1, 2]
    assert listed.orig_broker_id == 1
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)
    assert described.name == topic
    assert not described.is_internal
    assert [(p.id, p.leader.id, [n.id for n in p.isr]) for p in described.partitions] == [
        (i, 1, [1]) for i in range(3)
    ]
    assert admin.delete_topics([topic])[topic].result(DEADLINE_S) is None
    wait_until(lambda: topic not in admin.list_topics(timeout=DEADLINE_S).topics)
    with pytest.raises(KafkaException) as gone:
        admin.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)
    assert refused_code(gone) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_what_create_topics_refuses(broker: Server, topic: str) -> None:
    admin = admin_of(broker)
    create_topic(broker, topic)
    cases = [
        (NewTopic(topic, 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic("not/a/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(topic + "-r", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(topic + "-p", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic(topic + "-c", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic(topic + "-v", 1, 1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
        (
            NewTopic(topic + "-a", 2, replica_assignment=[[7], [8]]),
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
        ),
    ]
    for new, code in cases:
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([new])[new.topic].result(DEADLINE_S)
        assert refused_code(refused) == code, new
    assert set(admin.list_topics(timeout=DEADLINE_S).topics) & {c[0].topic for c in cases} == {
        topic
    }


def test_validate_only_creates_nothing(broker: Server, topic: str) -> None:
    admin = admin_of(broker)
    new = NewTopic(topic, 1, 1)
    assert admin.create_topics([new], validate_only=True)[topic].result(DEADLINE_S) is None
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_create_partitions(broker: Server, topic: str) -> None:
    admin = admin_of(broker)
    create_topic(broker, topic, partitions=2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_S)
    wait_until(lambda: len(admin.list_topics(timeout=10).topics[topic].partitions) == 5)
    for count in (5, 3):
        with pytest.raises(KafkaException) as refused:
            admin.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_S)
        assert refused_code(refused) == KafkaError.INVALID_PARTITIONS


def test_topic_configs(broker: Server, topic: str) -> None:
    admin = admin_of(broker)
    create_topic(broker, topic, config={"retention.ms": "123456", "segment.bytes": "1048576"})
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def entries() -> dict[str, ConfigEntry]:
        found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(
            DEADLINE_S
        )
        return found

    before = entries()
    assert before["retention.ms"].value == "123456"
    source: Any = before["retention.ms"].source  # a number, in spite of its annotation
    assert source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert before["cleanup.policy"].value == "delete"
    assert before["cleanup.policy"].is_default
    assert before["max.message.bytes"].value == "1048588"

    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
            ConfigEntry("flush.ms", "1000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(DEADLINE_S)
    wait_until(lambda: entries()["flush.ms"].value == "1000")
    after = entries()
    assert after["cleanup.policy"].value == "delete,compact"
    assert after["retention.ms"].value == "604800000"
    assert after["segment.bytes"].value == "1048576"

    bad = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([bad])[bad].result(DEADLINE_S)
    assert refused_code(refused) == KafkaError.INVALID_CONFIG
    assert "retention.ms" in refused.value.args[0].str()


def test_a_new_config_applies_to_the_next_record(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "500", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    produce(broker, topic, [b"x" * 1_000])
    admin = admin_of(broker)
    admin.incremental_alter_configs([change])[change].result(DEADLINE_S)

    def refused() -> bool:
        try:
            produce(broker, topic, [b"x" * 1_000])
        except AssertionError as error:
            return "MSG_SIZE_TOO_LARGE" in str(error)
        return False

    wait_until(refused)  # Apache Kafka applies it a moment after its answer


def test_broker_configs(broker: Server) -> None:
    admin = admin_of(broker)
    resource = ConfigResource(ResourceType.BROKER, "1")
    found = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert found["node.id"].value == "1"
    assert found["log.dirs"].value == str(broker.data_dir)
    assert found["log.dirs"].is_read_only
    assert found["num.partitions"].value == "1"


def test_describe_cluster(broker: Server) -> None:
    admin = admin_of(broker)
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert [(n.id, f"{n.host}:{n.port}") for n in cluster.nodes] == [(1, broker.bootstrap)]
    assert cluster.controller.id == 1
    assert len(cluster.cluster_id) == 22


def test_list_offsets(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    start_ms = int(time.time() * 1000) - 60_000
    times_ms = [start_ms, start_ms + 30_000, start_ms + 10_000]  # the middle one is the newest
    produce(broker, topic, [Rec(b"x", timestamp_ms=t) for t in times_ms], linger_ms=20)
    admin = admin_of(broker)
    at = TopicPartition(topic, 0)
    asked = [
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.for_timestamp(start_ms + 1), 1),
        (OffsetSpec.for_timestamp(start_ms + 30_001), -1),
    ]
    for spec, expected in asked:
        found = admin.list_offsets({at: spec})[at].result(DEADLINE_S)
        assert found.offset == expected, spec


def test_deleted_topic_comes_back_empty(broker: Server, topic: str) -> None:
    admin = admin_of(broker)
    create_topic(broker, topic)
    produce(broker, topic, numbered(10))
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=DEADLINE_S).topics)
    create_topic(broker, topic)
    at = TopicPartition(topic, 0)
    latest = admin.list_offsets({at: OffsetSpec.latest()})[at].result(DEADLINE_S)
    assert latest.offset == 0
