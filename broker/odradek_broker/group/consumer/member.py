"""A member of a consumer group, and its partitions.

Three epochs are related: the group epoch increases with every change of subscriptions, the target
assignment has the group epoch that it was computed for, and a member's epoch is that of the target
which it has reached, or is moving to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from odradek_protocol.ids import TopicId
from odradek_protocol.messages.struct import Struct

Partitions: TypeAlias = Mapping[TopicId, frozenset[int]]
# By topic and partition: the member epoch in which the partition was assigned.
OwnedPartitions: TypeAlias = Mapping[TopicId, Mapping[int, int]]

LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2

NOTHING: OwnedPartitions = MappingProxyType({})
NO_PARTITIONS: Partitions = MappingProxyType({})


class MemberState(IntEnum):
    """The values are the bytes in Kafka's records."""

    STABLE = 0  # has all of its target, at the target's epoch
    UNREVOKED_PARTITIONS = 1  # has to revoke partitions, and has not confirmed it
    UNRELEASED_PARTITIONS = (
        2  # at the target's epoch, but other members still hold some of its partitions
    )
    UNKNOWN = 127  # written by a newer version

    @classmethod
    def _missing_(cls, _value: object) -> "MemberState":
        return cls.UNKNOWN


class ClassicProtocol(NamedTuple):
    """One assignor that a member of the classic protocol offers, with its subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    session_timeout_ms: int = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """Invariant: no partition is both assigned and pending revocation."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1  # accepted too: the response with the new one may be lost
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=lambda: NOTHING)
    pending_revocation: OwnedPartitions = field(default_factory=lambda: NOTHING)
    classic: ClassicMemberMetadata | None = None  # None: it uses the consumer protocol

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def assignment_epoch(self, topic_id: TopicId, partition: int) -> int | None:
        """The epoch since which this member has the partition; None if it does not."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def owned_in_request(topics: Iterable[Struct] | None) -> Partitions | None:
    """`topic_partitions` of a heartbeat; None if it has none."""
    if topics is None:
        return None
    owned: dict[TopicId, frozenset[int]] = {}
    for topic in topics:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(topic.partitions)
    return owned


def overlaps(owned: Partitions, others: OwnedPartitions) -> bool:
    return any(not partitions.isdisjoint(others.get(t, ())) for t, partitions in owned.items())


def is_subset(owned: Partitions, of: OwnedPartitions) -> bool:
    return all(partitions <= of.get(t, {}).keys() for t, partitions in owned.items())
