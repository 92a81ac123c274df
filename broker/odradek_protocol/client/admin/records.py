"""DeleteRecords: removes the records of partitions before an offset."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_protocol.client.admin.topics import timeout_ms
from odradek_protocol.client.errors import BrokerError, ClientError, error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.leaders import ask_leaders, by_topic
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

HIGH_WATERMARK = -1  # in place of an offset: all records


def delete_records(
    client: KafkaClient, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | ClientError]:
    """Partition → its first offset afterwards, or why nothing was removed."""

    def build(places: list[TopicPartition]) -> Struct:
        topics = [
            Struct(
                name=topic,
                partitions=[
                    Struct(partition_index=n, offset=before[TopicPartition(topic, n)])
                    for n in numbers
                ],
            )
            for topic, numbers in by_topic(places).items()
        ]
        return Struct(topics=topics, timeout=timeout_ms(client))

    return ask_leaders(client, ApiKey.DELETE_RECORDS, before, build, _read)


def _read(answer: Struct) -> dict[TopicPartition, int | BrokerError]:
    return {
        TopicPartition(topic.name, p.partition_index): error_in(p) or int(p.low_watermark)
        for topic in answer.topics
        for p in topic.partitions
    }
