"""Consumer groups of the classic protocol with unmodified clients."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from kafka import KafkaConsumer

from broker_tests.admin.test_admin_server import get
from odradek_testkit import engines as harness
from odradek_testkit.clients import (
    DEADLINE_S,
    Rec,
    admin_of,
    create_topic,
    numbered,
    produce,
    wait_until,
)
from odradek_testkit.connecting import for_librdkafka, for_python
from odradek_testkit.engines import Server

PARTITIONS = 4
SETTINGS = {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "1000"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One broker for all tests here: each uses topics and groups of its own."""
    with harness.engine()(SETTINGS, directory=tmp_path_factory.mktemp("groups")) as server:
        yield server


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def fill(broker: Server, topic: str, per_partition: int = 50) -> set[bytes]:
    create_topic(broker, topic, PARTITIONS)
    values = numbered(per_partition * PARTITIONS)
    produce(broker, topic, [Rec(value, partition=n % PARTITIONS) for n, value in enumerate(values)])
    return set(values)


def consumer_in(broker: Server, group: str, topic: str, **settings: object) -> Consumer:
    consumer = Consumer(
        {
            **for_librdkafka(broker),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 300,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    return consumer


def read(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    give_up = time.monotonic() + DEADLINE_S
    while len(values) < count and time.monotonic() < give_up:
        for message in consumer.consume(count - len(values), timeout=0.5):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            values.append(value)
    assert len(values) == count
    return values


def poll_until(consumers: list[Consumer], condition: object) -> None:
    """Members make progress only while they are polled."""
    assert callable(condition)

    def step() -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        return bool(condition())

    wait_until(step)


def committed(consumer: Consumer, topic: str) -> dict[int, int]:
    asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    return {one.partition: one.offset for one in consumer.committed(asked, timeout=DEADLINE_S)}


def test_a_group_commits_and_resumes_from_its_offsets(
    broker: Server, topic: str, group: str
) -> None:
    values = fill(broker, topic)
    first = consumer_in(broker, group, topic)
    assert set(read(first, len(values))) == values
    first.commit(asynchronous=False)
    assert committed(first, topic) == dict.fromkeys(range(PARTITIONS), 50)
    first.close()

    produce(broker, topic, [b"new"])
    second = consumer_in(broker, group, topic)
    assert read(second, 1) == [b"new"]
    second.close()
    other = consumer_in(broker, f"{group}-other", topic)  # another group reads all again
    assert set(read(other, len(values) + 1)) == values | {b"new"}
    other.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_take_over(
    broker: Server, topic: str, group: str, strategy: str
) -> None:
    create_topic(broker, topic, PARTITIONS)
    settings = {"partition_assignment_strategy": strategy}
    members = [consumer_in(broker, group, topic, **settings) for _ in range(3)]

    def owned(consumers: list[Consumer]) -> list[tuple[str, int]]:
        return sorted((tp.topic, tp.partition) for c in consumers for tp in c.assignment())

    everything = [(topic, p) for p in range(PARTITIONS)]
    poll_until(
        members, lambda: owned(members) == everything and all(m.assignment() for m in members)
    )
    members[0].close()
    poll_until(members[1:], lambda: owned(members[1:]) == everything)
    for member in members[1:]:
        member.close()


def test_a_static_member_comes_back_without_a_rebalance(
    broker: Server, topic: str, group: str
) -> None:
    create_topic(broker, topic, PARTITIONS)
    rebalances: list[str] = []

    def joins(name: str) -> Consumer:
        consumer = Consumer(
            {
                **for_librdkafka(broker),
                "group.id": group,
                "group.instance.id": name,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 300,
            }
        )
        consumer.subscribe([topic], on_assign=lambda _, parts: rebalances.append(name))
        return consumer

    a, b = joins("a"), joins("b")
    poll_until([a, b], lambda: len(a.assignment()) == 2 and len(b.assignment()) == 2)
    before = sorted(tp.partition for tp in b.assignment())
    b.close()  # a static member does not send LeaveGroup
    rebalances.clear()
    b = joins("b")
    poll_until([a, b], lambda: len(b.assignment()) == 2)
    assert sorted(tp.partition for tp in b.assignment()) == before
    assert rebalances == ["b"]
    a.close()
    b.close()


def test_a_second_process_with_the_same_instance_id_fences_the_first(
    broker: Server, topic: str, group: str
) -> None:
    create_topic(broker, topic, PARTITIONS)
    first = consumer_in(broker, group, topic, group_instance_id="same")
    poll_until([first], lambda: len(first.assignment()) == PARTITIONS)
    second = consumer_in(broker, group, topic, group_instance_id="same")
    poll_until([second], lambda: len(second.assignment()) == PARTITIONS)
    with pytest.raises(KafkaException) as caught:
        first.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert "FENCED_INSTANCE_ID" in str(caught.value) or "fenced" in str(caught.value).lower()
    second.close()
    first.close()


def test_a_silent_member_is_replaced(broker: Server, topic: str, group: str) -> None:
    """It neither polls nor sends heartbeats: as if its process was stopped."""
    create_topic(broker, topic, PARTITIONS)
    stuck = KafkaConsumer(
        topic,
        **for_python(broker),
        group_id=group,
        session_timeout_ms=1500,
        heartbeat_interval_ms=300,
        max_poll_interval_ms=1500,
    )
    deadline = time.monotonic() + DEADLINE_S
    while not stuck.assignment() and time.monotonic() < deadline:
        stuck.poll(timeout_ms=100)
    assert len(stuck.assignment()) == PARTITIONS
    alive = consumer_in(broker, group, topic, partition_assignment_strategy="range")
    poll_until([alive], lambda: len(alive.assignment()) == PARTITIONS)
    alive.close()
    stuck.close(autocommit=False)


def test_kafka_python(broker: Server, topic: str, group: str) -> None:
    values = fill(broker, topic)
    settings = {
        **for_python(broker),
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "consumer_timeout_ms": int(DEADLINE_S * 1000),
    }
    consumer = KafkaConsumer(topic, **settings)
    seen = {next(consumer).value for _ in range(len(values))}
    assert seen == values
    consumer.commit()
    consumer.close()
    produce(broker, topic, [b"later"])
    again = KafkaConsumer(topic, **settings)
    assert next(again).value == b"later"
    again.close()


def test_aiokafka(broker: Server, topic: str, group: str) -> None:
    values = fill(broker, topic)

    async def read_all() -> set[bytes | None]:
        consumer = AIOKafkaConsumer(
            topic,
            **for_python(broker),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            seen: set[Any] = set()
            async with asyncio.timeout(DEADLINE_S):
                while len(seen) < len(values):
                    seen.add((await consumer.getone()).value)
            await consumer.commit()
            return seen
        finally:
            await consumer.stop()

    assert asyncio.run(read_all()) == values


def test_admin_sees_groups_and_deletes_them(broker: Server, topic: str, group: str) -> None:
    create_topic(broker, topic, PARTITIONS)
    admin = admin_of(broker)
    member = consumer_in(broker, group, topic, client_id="me")
    poll_until([member], lambda: len(member.assignment()) == PARTITIONS)
    member.commit(offsets=[TopicPartition(topic, 1, 7)], asynchronous=False)

    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(DEADLINE_S)
    assert group in [one.group_id for one in listed.valid]
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert described.state is ConsumerGroupState.STABLE
    assert [one.client_id for one in described.members] == ["me"]
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    if not harness.on_apache():
        text = get(broker, "/metrics")[1]
        assert f'kafka_consumergroup_members{{consumergroup="{group}"}} 1.0' in text
        assert "kafka_coordinator_group_groupmetadatamanager_numgroupsstable" in text
        assert "kafka_server_group_coordinator_metrics_offset_commit_count" in text
    with pytest.raises(KafkaException) as caught:
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert caught.value.args[0].name() == "NON_EMPTY_GROUP"
    member.close()

    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S)
    assert [(tp.partition, tp.offset) for tp in found.topic_partitions] == [(1, 7)]
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 3)])
    admin.alter_consumer_group_offsets([moved])[group].result(DEADLINE_S)
    found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S)
    assert [(tp.partition, tp.offset) for tp in found.topic_partitions] == [(1, 3)]
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert group not in [one.group_id for one in listed.valid]
    found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S)
    assert list(found.topic_partitions) == []


def test_offsets_and_generation_survive_kill_9(
    start_broker: object, topic: str, group: str
) -> None:
    """The group's member goes on with its heartbeats after the broker came back."""
    assert callable(start_broker)
    broker: Server = start_broker(SETTINGS)
    values = fill(broker, topic)
    member = consumer_in(broker, group, topic)
    assert set(read(member, len(values))) == values
    member.commit(asynchronous=False)
    if harness.on_apache():
        pytest.skip("a matter of our own log")
    broker.kill()
    broker.start()
    produce(broker, topic, [b"after"])
    assert read(member, 1) == [b"after"]
    member.commit(asynchronous=False)
    assert committed(member, topic)[0] == 51
    member.close()
