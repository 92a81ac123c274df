"""A member of a classic group: the content of its JoinGroup, and its parked requests."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek_broker.coordinator.result import DeferredResponse
from odradek_protocol.messages.struct import Struct


class Protocol(NamedTuple):
    """An assignment protocol that a member supports, with its metadata for it."""

    name: str
    metadata: bytes


@dataclass(slots=True)
class Member:
    """`deferred_join` and `deferred_sync` are parked requests of the member; at most one is set."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Sequence[Protocol]
    assignment: bytes = b""
    is_new: bool = False  # joined for the first time, and its join is still parked
    deferred_join: DeferredResponse | None = None
    deferred_sync: DeferredResponse | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata for this protocol; empty if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """The candidate that the member prefers: the first in its own order."""
        return next(name for name, _ in self.protocols if name in candidates)

    def as_record(self, protocol: str | None, assignment: bytes) -> Struct:
        return Struct(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def from_record(cls, record: Struct, protocol: str | None) -> "Member":
        rebalance_timeout_ms = record.rebalance_timeout or record.session_timeout
        return cls(
            member_id=record.member_id,
            group_instance_id=record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=record.session_timeout,
            protocols=(Protocol(protocol or "", record.subscription),),
            assignment=record.assignment,
        )


def common_protocols(members: Collection[Member]) -> set[str]:
    """The protocols that every member supports."""
    counted = Counter(name for member in members for name in {p.name for p in member.protocols})
    return {name for name, count in counted.items() if count == len(members)}


def most_voted_protocol(members: Collection[Member]) -> str:
    """The protocol that most members prefer, among those that every member supports."""
    candidates = common_protocols(members)
    votes = Counter(member.vote(candidates) for member in members)
    return votes.most_common(1)[0][0]
