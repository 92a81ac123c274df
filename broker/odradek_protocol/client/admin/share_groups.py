"""Share groups: describe them, read, set and delete their start offsets.

They are listed and deleted with the other groups: `groups.list_groups`, `groups.delete_groups`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek_protocol.client.admin.groups import DEAD, assigned_places
from odradek_protocol.client.errors import BrokerError, error_in, raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import Coordinator, CoordinatorType
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

_NOT_FOUND = ErrorCode.group_id_not_found.value


@dataclass(frozen=True)
class ShareMember:
    member_id: str
    client_id: str
    host: str
    rack: str | None
    epoch: int
    topics: tuple[str, ...]  # that it subscribes to
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class ShareGroupDescription:
    group_id: str
    state: str  # DEAD: there is no share group with this name
    group_epoch: int
    assignment_epoch: int
    assignor: str
    coordinator_id: int
    members: tuple[ShareMember, ...]

    @property
    def exists(self) -> bool:
        return self.state != DEAD


class StartOffset(NamedTuple):
    offset: int | None  # the first record that is not done; None: no member has read it yet
    leader_epoch: int
    lag: int | None  # None: unknown, or the brokers are older than Kafka 4.2


def describe_share_group(client: KafkaClient, group_id: str) -> ShareGroupDescription:
    route = Coordinator(CoordinatorType.GROUP, group_id)
    request = Struct(group_ids=[group_id])
    (found,) = client.call(route, ApiKey.SHARE_GROUP_DESCRIBE, request).groups
    if found.error_code != _NOT_FOUND:
        raise_error_in(found)
    return ShareGroupDescription(
        group_id,
        DEAD if found.error_code == _NOT_FOUND else found.group_state,
        found.group_epoch,
        found.assignment_epoch,
        found.assignor_name,
        client.find_coordinator(CoordinatorType.GROUP, group_id).broker_id,
        tuple(
            ShareMember(
                member.member_id,
                member.client_id,
                member.client_host,
                member.rack_id,
                member.member_epoch,
                tuple(sorted(member.subscribed_topic_names)),
                assigned_places(member.assignment),
            )
            for member in found.members
        ),
    )


def start_offsets(
    client: KafkaClient, group_id: str
) -> dict[TopicPartition, StartOffset | BrokerError]:
    """All partitions for which the group has state."""
    request = Struct(groups=[Struct(group_id=group_id, topics=None)])
    route = Coordinator(CoordinatorType.GROUP, group_id)
    (group,) = client.call(route, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request).groups
    raise_error_in(group)
    return {
        TopicPartition(topic.topic_name, p.partition_index): error_in(p) or _start_offset(p)
        for topic in group.topics
        for p in topic.partitions
    }


def _start_offset(found: Struct) -> StartOffset:
    lag = getattr(found, "lag", -1)  # since version 1
    return StartOffset(
        None if found.start_offset < 0 else int(found.start_offset),
        found.leader_epoch,
        None if lag < 0 else int(lag),
    )


def alter_start_offsets(
    client: KafkaClient, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, BrokerError]:
    """Sets start offsets of a group without members. Returns the refused ones."""
    by_name: dict[str, list[Struct]] = {}
    for place, offset in offsets.items():
        entry = Struct(partition_index=place.partition, start_offset=offset)
        by_name.setdefault(place.topic, []).append(entry)
    topics = [Struct(topic_name=name, partitions=entries) for name, entries in by_name.items()]
    request = Struct(group_id=group_id, topics=topics)
    route = Coordinator(CoordinatorType.GROUP, group_id)
    answer = client.call(route, ApiKey.ALTER_SHARE_GROUP_OFFSETS, request)
    raise_error_in(answer)
    return {
        TopicPartition(topic.topic_name, p.partition_index): error
        for topic in answer.responses
        for p in topic.partitions
        if (error := error_in(p)) is not None
    }


def delete_start_offsets(
    client: KafkaClient, group_id: str, topics: Iterable[str]
) -> dict[str, BrokerError]:
    """Forgets all that a group without members knows of these topics. Returns the refused ones."""
    request = Struct(group_id=group_id, topics=[Struct(topic_name=name) for name in topics])
    route = Coordinator(CoordinatorType.GROUP, group_id)
    answer = client.call(route, ApiKey.DELETE_SHARE_GROUP_OFFSETS, request)
    raise_error_in(answer)
    return {
        topic.topic_name: error
        for topic in answer.responses
        if (error := error_in(topic)) is not None
    }
