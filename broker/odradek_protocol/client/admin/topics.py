"""Create, grow and delete topics. Listing and describing them is `KafkaClient.metadata`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek_protocol.client.errors import BrokerError, error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import Controller
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

BROKER_DEFAULT = -1  # the broker's num.partitions, default.replication.factor

Refused = dict[str, BrokerError]


@dataclass(frozen=True)
class NewTopic:
    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


def create_topics(client: KafkaClient, topics: Iterable[NewTopic]) -> Refused:
    wanted = [
        Struct(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=[Struct(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]
    request = Struct(topics=wanted, timeout=timeout_ms(client))
    answer = client.call(Controller(), ApiKey.CREATE_TOPICS, request)
    return _refused(answer.topics)


def create_partitions(client: KafkaClient, counts: Mapping[str, int]) -> Refused:
    """Topic → how many partitions it is to have; the number can only grow."""
    wanted = [Struct(name=name, count=count, assignments=None) for name, count in counts.items()]
    request = Struct(topics=wanted, timeout=timeout_ms(client))
    answer = client.call(Controller(), ApiKey.CREATE_PARTITIONS, request)
    return _refused(answer.results)


def delete_topics(client: KafkaClient, names: Iterable[str]) -> Refused:
    wanted = list(names)
    request = Struct(
        topics=[Struct(name=name) for name in wanted],
        topic_names=wanted,  # before version 6
        timeout=timeout_ms(client),
    )
    answer = client.call(Controller(), ApiKey.DELETE_TOPICS, request)
    return _refused(answer.responses)


def timeout_ms(client: KafkaClient) -> int:
    """How long the broker may take; it answers a little before the client stops to wait."""
    return int(client.settings.request_timeout_s * 900)


def _refused(results: Iterable[Struct]) -> Refused:
    return {one.name: error for one in results if (error := error_in(one)) is not None}
