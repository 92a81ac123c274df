"""A member of a streams group, and its tasks. One per thread of Kafka Streams; the threads of an
instance have the same process id."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from odradek_broker.group.streams.tasks import OWNS_NOTHING, OwnedTasks

LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
NO_TAGS: Mapping[str, str] = MappingProxyType({})


class MemberState(IntEnum):
    """The values are the bytes in Kafka's records."""

    STABLE = 1  # has all of its target, at the target's epoch
    UNREVOKED_TASKS = 2  # has to give tasks back, and has not confirmed it
    UNRELEASED_TASKS = 3  # at the target's epoch, but others still have some of its tasks
    UNKNOWN = 127  # written by a newer version

    @classmethod
    def _missing_(cls, _value: object) -> "MemberState":
        return cls.UNKNOWN


class UserEndpoint(NamedTuple):
    """Where the instance answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """Invariant: no task is both owned and being given back."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0  # accepted too: the response with the new one may be lost
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=lambda: NO_TAGS)
    owned: OwnedTasks = OWNS_NOTHING
    revoking: OwnedTasks = OWNS_NOTHING

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch
