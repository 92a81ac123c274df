"""Voter sets, and their history in the log.

The newest set *in the log* applies, committed or not. When the log is truncated, the set before
it applies again. Two neighbours in the history differ in at most one voter, so their majorities
always have a node in common; this is why voters are changed one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from odradek_broker.raft.values import (
    BEFORE_THE_LOG,
    KRAFT_VERSION,
    NodeId,
    RaftEndpoint,
    ReplicaKey,
)
from odradek_protocol.ids import Offset


@dataclass(frozen=True, slots=True)
class Voter:
    key: ReplicaKey
    endpoints: tuple[RaftEndpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = KRAFT_VERSION


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters ordered by node id, at most one per id."""

    voters: tuple[Voter, ...] = ()
    ids: tuple[NodeId, ...] = field(init=False, repr=False, compare=False)
    keys: tuple[ReplicaKey, ...] = field(init=False, repr=False, compare=False)
    majority: int = field(init=False, repr=False, compare=False)
    _by_id: dict[NodeId, Voter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.voters, key=lambda voter: voter.key.id))
        by_id = {voter.key.id: voter for voter in ordered}
        if len(by_id) != len(ordered):
            raise ValueError(f"a node id occurs twice: {[voter.key for voter in ordered]}")
        object.__setattr__(self, "voters", ordered)
        object.__setattr__(self, "ids", tuple(by_id))
        object.__setattr__(self, "keys", tuple(voter.key for voter in ordered))
        object.__setattr__(self, "majority", len(ordered) // 2 + 1)
        object.__setattr__(self, "_by_id", by_id)

    def __len__(self) -> int:
        return len(self.voters)

    def get(self, node_id: NodeId) -> Voter | None:
        return self._by_id.get(node_id)

    def contains(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.id)
        return voter is not None and voter.key == key

    def endpoints_of(self, node_id: NodeId) -> tuple[RaftEndpoint, ...]:
        voter = self._by_id.get(node_id)
        return voter.endpoints if voter else ()

    def with_voter(self, voter: Voter) -> VoterSet:
        """Adds a voter; its id must not be in the set yet."""
        return VoterSet((*self.voters, voter))

    def without(self, key: ReplicaKey) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))

    def with_updated(self, voter: Voter) -> VoterSet:
        """The same keys, with the endpoints and versions of one of them replaced."""
        return VoterSet(
            tuple(
                replace(voter, key=old.key) if old.key == voter.key else old for old in self.voters
            )
        )


class VotersAt(NamedTuple):
    offset: Offset  # of the Voters record; BEFORE_THE_LOG for the set the disk was formatted with
    voters: VoterSet


class VoterHistory:
    """Voter sets by the offset of their record.

    Invariant: never empty, offsets ascend. The first entry is below or at the log start, or the
    set that the disk was formatted with.
    """

    __slots__ = ("_entries",)

    def __init__(self, first: VotersAt) -> None:
        self._entries = [first]

    @classmethod
    def formatted_with(cls, voters: VoterSet) -> VoterHistory:
        return cls(VotersAt(BEFORE_THE_LOG, voters))

    @property
    def newest(self) -> VotersAt:
        return self._entries[-1]

    def add(self, offset: Offset, voters: VoterSet) -> None:
        assert offset > self.newest.offset
        self._entries.append(VotersAt(offset, voters))

    def truncate_to(self, end_offset: Offset) -> None:
        """Records at or above `end_offset` are gone."""
        while len(self._entries) > 1 and self._entries[-1].offset >= end_offset:
            self._entries.pop()

    def trim_to(self, start_offset: Offset) -> None:
        """Records below `start_offset` are in a snapshot now; the newest of them still applies."""
        while len(self._entries) > 1 and self._entries[1].offset < start_offset:
            del self._entries[0]

    def at(self, end_offset: Offset) -> VotersAt:
        """The set that applies in a log that ends at `end_offset` (for a snapshot's header)."""
        for entry in reversed(self._entries):
            if entry.offset < end_offset:
                return entry
        return self._entries[0]

    def removal_pending(self, key: ReplicaKey, high_watermark: Offset) -> bool:
        """Whether the newest set removed `key` and is not known to be committed."""
        if len(self._entries) < 2 or self.newest.offset < high_watermark:
            return False
        return not self.newest.voters.contains(key) and self._entries[-2].voters.contains(key)

    def entries(self) -> tuple[VotersAt, ...]:
        return tuple(self._entries)
