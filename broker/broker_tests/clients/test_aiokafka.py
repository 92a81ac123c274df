"""aiokafka: the oldest protocol versions among today's clients (Produce 7, Fetch 11)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from odradek_testkit.clients import CODECS, DEADLINE_S, create_topic, numbered
from odradek_testkit.connecting import for_python
from odradek_testkit.engines import Server


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, DEADLINE_S))


async def read(broker: Server, topic: str, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(**for_python(broker), auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec(broker: Server, topic: str, codec: str) -> None:
    values = numbered(1_000, size=100)

    async def story() -> None:
        compression = None if codec == "none" else codec
        producer = AIOKafkaProducer(
            **for_python(broker), compression_type=compression, linger_ms=20
        )
        await producer.start()
        acks = [await producer.send(topic, value, partition=0) for value in values]
        assert [(await ack).offset for ack in acks] == list(range(1_000))
        await producer.stop()
        assert [r.value for r in await read(broker, topic, 1_000)] == values

    create_topic(broker, topic)
    run(story())


@pytest.mark.parametrize("idempotent", [False, True])
def test_every_field_of_a_record_comes_back(broker: Server, topic: str, idempotent: bool) -> None:
    now_ms = int(time.time() * 1000)

    async def story() -> None:
        producer = AIOKafkaProducer(**for_python(broker), enable_idempotence=idempotent)
        await producer.start()
        headers = [("h", b"1"), ("h", b"")]
        await producer.send_and_wait(
            topic, b"v", b"k", partition=0, timestamp_ms=now_ms, headers=headers
        )
        await producer.send_and_wait(topic, None, b"tombstone", partition=0)
        await producer.stop()
        first, second = await read(broker, topic, 2)
        assert (first.key, first.value, first.timestamp) == (b"k", b"v", now_ms)
        assert list(first.headers) == headers
        assert (second.key, second.value) == (b"tombstone", None)

    create_topic(broker, topic)
    run(story())


def test_seek_offsets_and_times(broker: Server, topic: str) -> None:
    start_ms = int(time.time() * 1000) - 60_000
    at = TopicPartition(topic, 0)

    async def story() -> None:
        producer = AIOKafkaProducer(**for_python(broker))
        await producer.start()
        for i in range(20):
            await producer.send_and_wait(topic, b"%d" % i, partition=0, timestamp_ms=start_ms + i)
        await producer.stop()
        consumer = AIOKafkaConsumer(**for_python(broker))
        await consumer.start()
        consumer.assign([at])
        assert await consumer.beginning_offsets([at]) == {at: 0}
        assert await consumer.end_offsets([at]) == {at: 20}
        found = await consumer.offsets_for_times({at: start_ms + 7})
        assert found[at].offset == 7
        consumer.seek(at, 11)
        assert (await consumer.getone()).value == b"11"
        await consumer.stop()

    create_topic(broker, topic)
    run(story())


def test_admin(broker: Server, topic: str) -> None:
    async def story() -> None:
        admin = AIOKafkaAdminClient(**for_python(broker))
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"flush.ms": "99"})])
            while topic not in await admin.list_topics():
                await asyncio.sleep(0.01)
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 2
            await admin.create_partitions({topic: NewPartitions(3)})
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (answer,) = await admin.describe_configs([resource])
            entries = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert entries["flush.ms"] == "99"
            await admin.delete_topics([topic])
            while topic in await admin.list_topics():
                await asyncio.sleep(0.01)
        finally:
            await admin.close()

    run(story())
