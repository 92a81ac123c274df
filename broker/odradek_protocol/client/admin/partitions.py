"""Elect leaders, and move replicas between brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek_protocol.admin_codes import ElectionType as ElectionType
from odradek_protocol.client.admin.topics import timeout_ms
from odradek_protocol.client.errors import BrokerError, error_in, raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.leaders import by_topic
from odradek_protocol.client.routes import Controller
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

NOT_NEEDED = ErrorCode.election_not_needed.value


class Reassignment(NamedTuple):
    """A move that is under way."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def elect_leaders(
    client: KafkaClient, kind: ElectionType, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, BrokerError | None]:
    """Elects leaders of these partitions (None: all); those that need no election are left out."""
    topics = None
    if partitions is not None:
        topics = [Struct(topic=t, partitions=ps) for t, ps in by_topic(partitions).items()]
    request = Struct(election_type=kind, topic_partitions=topics, timeout=timeout_ms(client))
    answer = client.call(Controller(), ApiKey.ELECT_LEADERS, request)
    raise_error_in(answer)
    return {
        TopicPartition(topic.topic, p.partition_id): error_in(p)
        for topic in answer.replica_election_results
        for p in topic.partition_result
        if p.error_code != NOT_NEEDED
    }


def alter_reassignments(
    client: KafkaClient, moves: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, BrokerError]:
    """Partition → its new replicas, or None to cancel its move. Returns the refused ones."""
    by_name: dict[str, list[Struct]] = {}
    for place, replicas in moves.items():
        wanted = None if replicas is None else list(replicas)
        entry = Struct(partition_index=place.partition, replicas=wanted)
        by_name.setdefault(place.topic, []).append(entry)
    topics = [Struct(name=name, partitions=entries) for name, entries in by_name.items()]
    request = Struct(topics=topics, timeout=timeout_ms(client))
    answer = client.call(Controller(), ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    raise_error_in(answer)
    return {
        TopicPartition(topic.name, p.partition_index): error
        for topic in answer.responses
        for p in topic.partitions
        if (error := error_in(p)) is not None
    }


def list_reassignments(client: KafkaClient) -> dict[TopicPartition, Reassignment]:
    """All moves that are under way."""
    request = Struct(topics=None, timeout=timeout_ms(client))
    answer = client.call(Controller(), ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
    raise_error_in(answer)
    return {
        TopicPartition(topic.name, p.partition_index): Reassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in answer.topics
        for p in topic.partitions
    }
