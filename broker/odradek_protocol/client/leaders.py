"""Requests about partitions, each sent to the leader of its partitions.

ListOffsets, DescribeProducers and WriteTxnMarkers are answered only by leaders, and an answer is
right for some partitions while others have moved: only those are asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from odradek_protocol.client.deadline import BackOff, Deadline
from odradek_protocol.client.errors import (
    AnswerTimeoutError,
    BrokerError,
    ClientError,
    DisconnectedError,
    UnknownBrokerError,
    UnreachableError,
)
from odradek_protocol.client.fan_out import fan_out
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.metadata import NO_LEADER
from odradek_protocol.client.retries import READ_ONLY
from odradek_protocol.client.routes import LEADER_MOVED, Broker
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

UNKNOWN_TOPIC = ErrorCode.unknown_topic_or_partition.value

Found = TypeVar("Found")
Build = Callable[[list[TopicPartition]], Struct]
Read = Callable[[Struct], Mapping[TopicPartition, Found | BrokerError]]


def ask_leaders(
    client: KafkaClient,
    api: ApiKey,
    partitions: Iterable[TopicPartition],
    build: Build,
    read: Read[Found],
    *,
    wait_for_topics: bool = False,
) -> dict[TopicPartition, Found | ClientError]:
    """The answer or the error of each partition.

    `build` makes the request for the partitions of one leader, `read` splits its answer.
    With `wait_for_topics` unknown topics and partitions are asked for again until the deadline:
    a broker may not know a topic yet that was just created.
    """
    deadline, back_off = Deadline(client.settings.deadline_s), BackOff()
    repeated = LEADER_MOVED | {UNKNOWN_TOPIC} if wait_for_topics else LEADER_MOVED
    done: dict[TopicPartition, Found | ClientError] = {}
    pending = list(dict.fromkeys(partitions))
    while pending:
        outcome = _attempt(client, api, pending, build, read, deadline)
        done |= outcome
        pending = [p for p in pending if _is_repeated(outcome[p], repeated, api)]
        if pending and not back_off.pause(deadline):
            break
    return done


def _attempt(
    client: KafkaClient,
    api: ApiKey,
    partitions: list[TopicPartition],
    build: Build,
    read: Read[Found],
    deadline: Deadline,
) -> dict[TopicPartition, Found | ClientError]:
    topics = client.metadata(dict.fromkeys(p.topic for p in partitions), deadline).topics
    outcome: dict[TopicPartition, Found | ClientError] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for place in partitions:
        topic = topics.get(place.topic)
        info = topic.partitions.get(place.partition) if topic is not None else None
        if info is None:
            error = topic.error if topic is not None else None
            outcome[place] = error or BrokerError(UNKNOWN_TOPIC)
        elif info.leader == NO_LEADER:
            outcome[place] = BrokerError(ErrorCode.leader_not_available)
        else:
            by_leader.setdefault(info.leader, []).append(place)
    asks = {
        leader: partial(client.call, Broker(leader), api, build(places), deadline=deadline)
        for leader, places in by_leader.items()
    }
    for leader, answer in fan_out(asks).items():
        places = by_leader[leader]
        if isinstance(answer, ClientError):
            outcome |= dict.fromkeys(places, answer)
        else:
            found = read(answer)
            missing = BrokerError(ErrorCode.unknown_server_error, "the answer leaves it out")
            outcome |= {place: found.get(place, missing) for place in places}
    return outcome


def _is_repeated(outcome: object, codes: frozenset[int], api: ApiKey) -> bool:
    if isinstance(outcome, BrokerError):
        return outcome.code in codes
    if isinstance(outcome, (DisconnectedError, AnswerTimeoutError)):
        return api in READ_ONLY
    return isinstance(outcome, (UnreachableError, UnknownBrokerError))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic → its partitions, the form in which most requests want them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
