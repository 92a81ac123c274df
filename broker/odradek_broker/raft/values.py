"""The small values of the quorum: replica keys, log positions, batches, control records.

A position in the log is (offset, epoch), where epoch is that of the record *before* the offset:
(120, 7) says "everything below 120, and record 119 was written in epoch 7". Two logs that have
the same position are equal up to it (log matching), which is why fetch, vote, divergence and
snapshot ids all use such pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from odradek_protocol.ids import LeaderEpoch, Offset

if TYPE_CHECKING:
    from odradek_broker.raft.voters import VoterSet

NodeId: TypeAlias = int

# Below every offset: the position of the voter set of a freshly formatted disk.
BEFORE_THE_LOG: Offset = -1

# The only version that we write. Version 0 (voters from a setting) is never used.
KRAFT_VERSION = 1


class OffsetAndEpoch(NamedTuple):
    offset: Offset
    epoch: LeaderEpoch


EMPTY_LOG = OffsetAndEpoch(0, 0)


class ReplicaKey(NamedTuple):
    """A replica is a node *and* its disk: with an empty disk it is another replica."""

    id: NodeId
    directory_id: UUID


class NodeIdentity(NamedTuple):
    """This node, as the other nodes of the quorum know it."""

    key: ReplicaKey
    cluster_id: str
    listener: str  # the name of the listener on which brokers reach each other


class RaftEndpoint(NamedTuple):
    listener: str
    host: str
    port: int


class LeaderAndEpoch(NamedTuple):
    """The leader, as far as the responding node knows; part of every response."""

    leader_id: NodeId | None
    epoch: LeaderEpoch
    endpoints: tuple[RaftEndpoint, ...] = ()

    def at(self, listener: str) -> LeaderAndEpoch:
        """For a node that asked through this listener: it takes the addresses for its own one's."""
        return self._replace(endpoints=tuple(e for e in self.endpoints if e.listener == listener))


class SnapshotInfo(NamedTuple):
    """A snapshot covers everything below `id.offset`, all of it committed."""

    id: OffsetAndEpoch
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of an epoch."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting_voters: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    version: int


@dataclass(frozen=True, slots=True)
class Voters:
    """The voter set that applies from this record on, committed or not."""

    voters: VoterSet


ControlRecord: TypeAlias = LeaderChange | KRaftVersion | Voters


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of records as it is replicated: whole or not at all, of one epoch.

    `data` is the batch as on disk and is never parsed here; `control` holds the decoded records
    of a control batch, because voter sets are among them.
    """

    base_offset: Offset
    record_count: int
    epoch: LeaderEpoch
    control: tuple[ControlRecord, ...] = ()
    data: bytes = b""

    @property
    def end_offset(self) -> Offset:
        return self.base_offset + self.record_count
