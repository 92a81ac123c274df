"""Appends batches: one Produce request per leader, acknowledged by all in-sync replicas.

offsets = produce_batches(client, info, {TopicPartition("orders", 0): build_batch([record])})
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_protocol.client.admin.topics import timeout_ms
from odradek_protocol.client.errors import BrokerError, ClientError, error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.leaders import ask_leaders
from odradek_protocol.client.metadata import TopicInfo
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

ACKS_ALL = -1


def produce_batches(
    client: KafkaClient, info: TopicInfo, batches: Mapping[TopicPartition, bytes]
) -> dict[TopicPartition, int | ClientError]:
    """Partitions of one topic → the offset of their batch's first record."""

    def build(places: list[TopicPartition]) -> Struct:
        data = [Struct(index=p.partition, records=batches[p]) for p in places]
        return Struct(
            transactional_id=None,
            acks=ACKS_ALL,
            timeout=timeout_ms(client),
            topic_data=[Struct(name=info.name, topic_id=info.topic_id, partition_data=data)],
        )

    def read(answer: Struct) -> dict[TopicPartition, int | BrokerError]:
        return {
            TopicPartition(info.name, p.index): error_in(p) or int(p.base_offset)
            for topic in answer.responses
            for p in topic.partition_responses
        }

    return ask_leaders(client, ApiKey.PRODUCE, batches, build, read, wait_for_topics=True)
