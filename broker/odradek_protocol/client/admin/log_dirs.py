"""DescribeLogDirs: the directories of each broker, their room, and the sizes of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_protocol.client.errors import BrokerError, ClientError, error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import Broker
from odradek_protocol.client.settings import Address
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

_STORAGE_ERROR = ErrorCode.kafka_storage_error.value


@dataclass(frozen=True)
class LogDirInfo:
    path: str
    offline: bool  # the broker failed to read or write it
    total_bytes: int  # of the file system; -1 before Kafka 3.3
    usable_bytes: int
    replica_bytes: dict[TopicPartition, int]
    # Copies that replace a replica in another directory of the broker when they are complete.
    future_bytes: dict[TopicPartition, int] = field(default_factory=dict)


def describe_log_dirs(
    client: KafkaClient,
    brokers: Mapping[int, Address] | None = None,
    *,
    with_replicas: bool = True,
    timeout_s: float | None = None,
) -> dict[int, list[LogDirInfo] | ClientError]:
    """Broker → its directories, or why they are not known; all brokers are asked at once.

    `brokers` names their addresses: a fenced broker is in no metadata, and may be the one whose
    disks matter. Without replicas an answer has some hundred bytes.
    """
    request = Struct(topics=None if with_replicas else [])
    answers = client.each_broker(ApiKey.DESCRIBE_LOG_DIRS, request, brokers, timeout_s)
    return {broker_id: _directories(answer) for broker_id, answer in answers.items()}


def _directories(answer: Struct | ClientError) -> list[LogDirInfo] | ClientError:
    if isinstance(answer, ClientError):
        return answer
    if (error := error_in(answer)) is not None:
        return error
    return [
        LogDirInfo(
            one.log_dir,
            one.error_code == _STORAGE_ERROR,
            one.total_bytes,
            one.usable_bytes,
            _sizes(one, future=False),
            _sizes(one, future=True),
        )
        for one in answer.results
    ]


def _sizes(directory: Struct, *, future: bool) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, p.partition_index): p.partition_size
        for topic in directory.topics
        for p in topic.partitions
        if p.is_future_key is future
    }


def move_replicas(
    client: KafkaClient, broker_id: int, moves: Mapping[TopicPartition, str]
) -> dict[TopicPartition, BrokerError]:
    """Replicas of one broker → another of its directories; it copies in the background.

    Returns the refused ones.
    """
    by_path: dict[str, dict[str, list[int]]] = {}
    for place, path in moves.items():
        by_path.setdefault(path, {}).setdefault(place.topic, []).append(place.partition)
    request = Struct(
        dirs=[
            Struct(path=path, topics=[Struct(name=t, partitions=ps) for t, ps in topics.items()])
            for path, topics in by_path.items()
        ]
    )
    answer = client.call(Broker(broker_id), ApiKey.ALTER_REPLICA_LOG_DIRS, request)
    return {
        TopicPartition(topic.topic_name, p.partition_index): error
        for topic in answer.results
        for p in topic.partitions
        if (error := error_in(p)) is not None
    }
