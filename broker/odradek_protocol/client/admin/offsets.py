"""ListOffsets: the first and last offsets of partitions, and offsets at a time."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from odradek_protocol.client.admin.topics import timeout_ms
from odradek_protocol.client.errors import BrokerError, ClientError, error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.leaders import ask_leaders, by_topic
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

# In place of a timestamp in milliseconds.
LATEST = -1  # the high watermark or, for READ_COMMITTED, the last stable offset
EARLIEST = -2  # the first record that is still there
CONSUMER_REPLICA_ID = -1


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def list_offsets(
    client: KafkaClient,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    wait_for_topics: bool = False,
) -> dict[TopicPartition, int | ClientError]:
    """Partition → the offset of its first record at or after the time; -1 if there is none."""

    def build(places: list[TopicPartition]) -> Struct:
        topics = [
            Struct(
                name=topic,
                partitions=[Struct(partition_index=n, timestamp=timestamp_ms) for n in numbers],
            )
            for topic, numbers in by_topic(places).items()
        ]
        return Struct(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=isolation,
            topics=topics,
            timeout=timeout_ms(client),
        )

    return ask_leaders(
        client,
        ApiKey.LIST_OFFSETS,
        partitions,
        build,
        _read,
        wait_for_topics=wait_for_topics,
    )


def _read(answer: Struct) -> dict[TopicPartition, int | BrokerError]:
    return {
        TopicPartition(topic.name, p.partition_index): error_in(p) or int(p.offset)
        for topic in answer.topics
        for p in topic.partitions
    }
