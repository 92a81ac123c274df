"""The topics of a Kafka under test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from odradek.testing.exchange import places_of, raise_any, topic_of
from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.topics import (
    BROKER_DEFAULT,
    NewTopic,
    create_topics,
    delete_topics,
)
from odradek_protocol.client.errors import BrokerError, error_in
from odradek_protocol.client.leaders import ask_leaders, by_topic
from odradek_protocol.client.metadata import NO_LEADER, Metadata
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_testkit.waiting import wait_until

UP_TO_THE_END = -1  # the high watermark, in DeleteRecords
POLL_S = 0.002

Condition: TypeAlias = Callable[[Metadata], bool]


class Topics:
    """`kafka.topics`. Every method returns when the change is visible on every running broker."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    def create(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        *,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Raises BrokerError, for example TOPIC_ALREADY_EXISTS."""
        new = NewTopic(name, partitions, replication_factor, dict(config or {}))
        if name in (refused := create_topics(self._client, [new])):
            error = refused[name]
            raise BrokerError(error.code, f"create topic {name!r}: {error.detail}")
        self._wait(lambda seen: _is_led(seen, name), f"every partition of {name} has a leader")

    def delete(self, *names: str) -> None:
        """Raises BrokerError, for example UNKNOWN_TOPIC_OR_PARTITION."""
        for name, error in delete_topics(self._client, names).items():
            raise BrokerError(error.code, f"delete topic {name!r}: {error.detail}")
        self._wait(lambda seen: not set(names) & set(seen.topics), "the topics are gone")

    def empty(self, *names: str) -> None:
        """Deletes all records (DeleteRecords); offsets go on where they were."""
        for name in names:
            self._empty(name)

    def list(self, *, internal: bool = False) -> list[str]:
        """The names of all topics; Kafka's own, such as __consumer_offsets, only on request."""
        topics = self._client.metadata().topics.values()
        return sorted(t.name for t in topics if internal or not t.internal)

    def partitions(self, name: str) -> int:
        return len(topic_of(self._client, name).partitions)

    def _empty(self, name: str) -> None:
        def build(places: Iterable[TopicPartition]) -> Struct:
            topics = [
                Struct(
                    name=topic,
                    partitions=[Struct(partition_index=n, offset=UP_TO_THE_END) for n in numbers],
                )
                for topic, numbers in by_topic(places).items()
            ]
            return Struct(topics=topics, timeout=30_000)

        def read(answer: Struct) -> dict[TopicPartition, int | BrokerError]:
            return {
                TopicPartition(topic.name, p.partition_index): error_in(p) or int(p.low_watermark)
                for topic in answer.topics
                for p in topic.partitions
            }

        places = places_of(topic_of(self._client, name))
        raise_any(ask_leaders(self._client, ApiKey.DELETE_RECORDS, places, build, read), "empty")

    def _wait(self, holds: Condition, what: str) -> None:
        request = Struct(topics=None, allow_auto_topic_creation=False)
        brokers = {b.broker_id: b.address for b in self._client.metadata(()).brokers.values()}

        def everywhere() -> bool:
            answers = self._client.each_broker(ApiKey.METADATA, request, brokers=brokers)
            seen = [Metadata.of(one) for one in answers.values() if isinstance(one, Struct)]
            return bool(seen) and all(map(holds, seen))

        wait_until(everywhere, what, poll_s=POLL_S)


def _is_led(seen: Metadata, name: str) -> bool:
    topic = seen.topics.get(name)
    return (
        topic is not None
        and bool(topic.partitions)
        and all(partition.leader != NO_LEADER for partition in topic.partitions.values())
    )
