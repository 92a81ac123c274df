"""Groups: list, describe and delete them, read and set their committed offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek_protocol.client.errors import (
    BrokerError,
    ClientError,
    UnsupportedApiError,
    error_in,
    raise_error_in,
)
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import COORDINATOR_MOVED, Coordinator, CoordinatorType
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

DEAD = "Dead"  # the state of a group that does not exist
SHARE = "share"  # the protocol type of share groups
# Versions from 10 on name topics by id; names are what callers have.
OFFSETS_BY_NAME_MAX = 9
ADMIN_GENERATION = -1  # a commit from outside of the group: only while it has no members
STREAMS_ASSIGNOR = "sticky"  # the only one of Kafka 4.3; no answer names it
_NOT_FOUND = ErrorCode.group_id_not_found.value


@dataclass(frozen=True)
class GroupListing:
    group_id: str
    type: str  # "Classic", "Consumer" …; "" from brokers before Kafka 4
    state: str
    protocol_type: str

    @property
    def is_consumer(self) -> bool:
        """Whether consumers are its members: Connect and others use the classic protocol too."""
        return self.protocol_type in ("", "consumer")

    @property
    def is_share(self) -> bool:
        return self.protocol_type == SHARE


@dataclass(frozen=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None  # None in the classic protocol


@dataclass(frozen=True)
class GroupDescription:
    group_id: str
    type: str
    state: str  # DEAD: there is no such group
    assignor: str
    coordinator_id: int
    members: tuple[Member, ...]

    @property
    def exists(self) -> bool:
        return self.state != DEAD


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str = ""


def list_groups(client: KafkaClient) -> list[GroupListing]:
    """All groups, by name. Raises if a live broker does not answer: groups would be missing."""
    found = []
    answers = client.each_broker(ApiKey.LIST_GROUPS, Struct(), repeat=COORDINATOR_MOVED)
    for answer in answers.values():
        if isinstance(answer, ClientError):
            raise answer
        raise_error_in(answer)
        found += [
            GroupListing(g.group_id, g.group_type.capitalize(), g.group_state, g.protocol_type)
            for g in answer.groups
        ]
    return sorted(found, key=lambda listing: listing.group_id)


def describe_group(client: KafkaClient, group_id: str) -> GroupDescription:
    """A group of any protocol but share groups; only its coordinator knows which one it has."""
    route = Coordinator(CoordinatorType.GROUP, group_id)
    try:
        request = Struct(group_ids=[group_id])
        (found,) = client.call(route, ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups
    except UnsupportedApiError:  # before Kafka 4
        is_consumer = False
    else:
        is_consumer = found.error_code != _NOT_FOUND
    if not is_consumer:
        request = Struct(groups=[group_id])
        (found,) = client.call(route, ApiKey.DESCRIBE_GROUPS, request).groups
        if found.error_code == _NOT_FOUND and (streams := _streams_group(client, group_id)):
            return streams
    if found.error_code != _NOT_FOUND:
        raise_error_in(found)
    coordinator = client.find_coordinator(CoordinatorType.GROUP, group_id).broker_id
    if is_consumer:
        members = tuple(map(_consumer_member, found.members))
        assignor, kind = found.assignor_name, "Consumer"
    else:
        members = tuple(map(_classic_member, found.members))
        assignor, kind = found.protocol_data, "Classic"
    state = DEAD if found.error_code == _NOT_FOUND else found.group_state
    return GroupDescription(group_id, kind, state, assignor, coordinator, members)


def _streams_group(client: KafkaClient, group_id: str) -> GroupDescription | None:
    """None if there is no such group, or the broker is older than Kafka 4.1."""
    route = Coordinator(CoordinatorType.GROUP, group_id)
    try:
        request = Struct(group_ids=[group_id])
        (found,) = client.call(route, ApiKey.STREAMS_GROUP_DESCRIBE, request).groups
    except UnsupportedApiError:
        return None
    if found.error_code == _NOT_FOUND:
        return None
    raise_error_in(found)
    subtopologies = found.topology.subtopologies if found.topology is not None else None
    inputs = {
        one.subtopology_id: [
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        ]
        for one in subtopologies or ()
    }
    return GroupDescription(
        group_id,
        "Streams",
        found.group_state,
        STREAMS_ASSIGNOR,
        client.find_coordinator(CoordinatorType.GROUP, group_id).broker_id,
        tuple(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _inputs_of(member.assignment, inputs),
                _inputs_of(member.target_assignment, inputs),
            )
            for member in found.members
        ),
    )


def _inputs_of(
    assignment: Struct, inputs: Mapping[str, Iterable[str]]
) -> tuple[TopicPartition, ...]:
    """The partitions that active tasks read."""
    return tuple(
        sorted(
            TopicPartition(topic, partition)
            for task in assignment.active_tasks
            for topic in inputs.get(task.subtopology_id, ())
            for partition in task.partitions
        )
    )


def committed_offsets(
    client: KafkaClient, group_id: str, *, require_stable: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """All that the group has committed.

    With `require_stable` after the transactions that commit in it have ended, which is waited for
    until the deadline.
    """
    request = Struct(
        groups=[Struct(group_id=group_id, topics=None)],
        group_id=group_id,  # this field and the next are used before version 8
        topics=None,
        require_stable=require_stable,
    )
    route = Coordinator(CoordinatorType.GROUP, group_id)
    answer = client.call(route, ApiKey.OFFSET_FETCH, request, max_version=OFFSETS_BY_NAME_MAX)
    group = answer.groups[0] if answer.groups else answer
    raise_error_in(group)
    found = {}
    for topic in group.topics:
        for p in topic.partitions:
            raise_error_in(p)
            if p.committed_offset >= 0:
                offset = CommittedOffset(p.committed_offset, p.metadata or "")
                found[TopicPartition(topic.name, p.partition_index)] = offset
    return found


def commit_offsets(
    client: KafkaClient, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, BrokerError]:
    """Sets offsets of a group without members. Returns the refused ones."""
    by_name: dict[str, list[Struct]] = {}
    for place, committed in offsets.items():
        entry = Struct(
            partition_index=place.partition,
            committed_offset=committed.offset,
            committed_metadata=committed.metadata,
        )
        by_name.setdefault(place.topic, []).append(entry)
    request = Struct(
        group_id=group_id,
        generation_id_or_member_epoch=ADMIN_GENERATION,
        topics=[Struct(name=name, partitions=entries) for name, entries in by_name.items()],
    )
    route = Coordinator(CoordinatorType.GROUP, group_id)
    answer = client.call(route, ApiKey.OFFSET_COMMIT, request, max_version=OFFSETS_BY_NAME_MAX)
    return {
        TopicPartition(topic.name, p.partition_index): error
        for topic in answer.topics
        for p in topic.partitions
        if (error := error_in(p)) is not None
    }


def delete_groups(client: KafkaClient, group_ids: Iterable[str]) -> dict[str, BrokerError]:
    """Deletes groups without members, with their offsets. Returns the refused ones."""
    refused = {}
    for group_id in group_ids:
        route = Coordinator(CoordinatorType.GROUP, group_id)
        request = Struct(groups_names=[group_id])
        (result,) = client.call(route, ApiKey.DELETE_GROUPS, request).results
        if (error := error_in(result)) is not None:
            refused[group_id] = error
    return refused


def delete_offsets(
    client: KafkaClient, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, BrokerError]:
    """Forgets committed offsets of topics that no member reads. Returns the refused ones."""
    by_name: dict[str, list[Struct]] = {}
    for place in partitions:
        by_name.setdefault(place.topic, []).append(Struct(partition_index=place.partition))
    topics = [Struct(name=name, partitions=entries) for name, entries in by_name.items()]
    route = Coordinator(CoordinatorType.GROUP, group_id)
    answer = client.call(route, ApiKey.OFFSET_DELETE, Struct(group_id=group_id, topics=topics))
    raise_error_in(answer)
    return {
        TopicPartition(topic.name, p.partition_index): error
        for topic in answer.topics
        for p in topic.partitions
        if (error := error_in(p)) is not None
    }


# -- members ---------------------------------------------------------------------------------------


def _consumer_member(found: Struct) -> Member:
    return Member(
        found.member_id,
        found.instance_id,
        found.client_id,
        found.client_host,
        assigned_places(found.assignment),
        assigned_places(found.target_assignment),
    )


def assigned_places(assignment: Struct) -> tuple[TopicPartition, ...]:
    """Assigned partitions of a member of the consumer protocol or of a share group."""
    return tuple(
        sorted(TopicPartition(t.topic_name, n) for t in assignment.topic_partitions
               for n in t.partitions)
    )  # fmt: skip


def _classic_member(found: Struct) -> Member:
    return Member(
        found.member_id,
        found.group_instance_id,
        found.client_id,
        found.client_host,
        read_assignment(found.member_assignment),
        None,
    )


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a classic member's assignment; none where the bytes are no consumer's.

    version i16, topics [name: string (i16), partitions: [i32]], user data, arrays with an i32.
    """
    found = []
    try:
        (count,), at = struct.unpack_from(">i", data, 2), 6
        for _ in range(count):
            (length,) = struct.unpack_from(">H", data, at)  # unsigned: never goes back
            topic = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (partitions,) = struct.unpack_from(">I", data, at)
            numbers = struct.unpack_from(f">{partitions}i", data, at + 4)
            at += 4 + 4 * partitions
            found += [TopicPartition(topic, number) for number in numbers]
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))
