"""Events that go into the quorum state machine and instructions that come out of it.

All are frozen: an event can be put into a trace, an instruction can be compared in a test.
How the driver must treat them is in the package's docstring; what travels between nodes is in
messages.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from odradek_broker.raft.messages import (
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
)
from odradek_broker.raft.values import (
    Batch,
    LeaderAndEpoch,
    NodeId,
    OffsetAndEpoch,
    SnapshotInfo,
)
from odradek_broker.raft.vote_state import VoteState
from odradek_broker.raft.voters import VotersAt
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import LeaderEpoch, Offset

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Every other event lets time pass as well."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """`ticket` is the driver's: it comes back in exactly one reply, maybe many steps later."""

    ticket: object
    request: Request


@dataclass(frozen=True, slots=True)
class ReceivedResponse:
    source: NodeId
    correlation_id: int  # of the `Send` that it answers
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No response will come, because the connection broke.

    `refused`: the address refuses connections, so the process there is gone.
    """

    correlation_id: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class ClientAppend:
    """The controller writes one batch, in the epoch in which it believes that it is the leader."""

    epoch: LeaderEpoch
    record_count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Flushed:
    """The log below `end_offset` is durable, as requested by the `Flush` of that generation."""

    end_offset: Offset
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotCreated:
    """The state machine above wrote a snapshot of committed records to disk."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """The records that the latest snapshot covers may be deleted from the log."""


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """`LoadSnapshot` is done: the log is empty and starts where the snapshot ends.

    The driver passes it in as the very next event.
    """

    snapshot: SnapshotInfo
    voters: VotersAt  # from the snapshot's header


@dataclass(frozen=True, slots=True)
class Resign:
    """The process is about to stop (or was asked to hand over)."""


Event: TypeAlias = (
    Tick
    | ReceivedRequest
    | ReceivedResponse
    | RequestFailed
    | ClientAppend
    | Flushed
    | SnapshotCreated
    | AdvanceLogStart
    | SnapshotLoaded
    | Resign
)

# ---------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class PersistVote:
    """Always first in its list; everything after it waits until the file is durable."""

    vote: VoteState


@dataclass(frozen=True, slots=True)
class Send:
    to: NodeId  # a voter, the leader, or the number of a bootstrap server
    correlation_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    ticket: object
    response: Response


@dataclass(frozen=True, slots=True)
class ReplyWithRecords:
    """`response` with `batches` read from the log, from `from_offset` on."""

    ticket: object
    response: FetchResponse
    from_offset: Offset


@dataclass(frozen=True, slots=True)
class ReplyWithSnapshotChunk:
    """`response` with up to `max_bytes` of the snapshot file from its `position` on."""

    ticket: object
    response: FetchSnapshotResponse
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Write batches. Those that this node made as leader have no offset and epoch in their bytes
    yet, and its control batches have no bytes yet."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """The response to a `ClientAppend` of a node that is not the leader of that epoch."""

    error: ErrorCode
    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Remove everything at and above `end_offset` (always a batch boundary)."""

    end_offset: Offset


@dataclass(frozen=True, slots=True)
class Flush:
    """Start an fsync; pass in `Flushed` with both numbers when it has ended."""

    end_offset: Offset
    generation: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything below `high_watermark` is final."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class BecameLeader:
    """This node leads, once `Commit` passes `epoch_start_offset` (the end of older epochs)."""

    epoch: LeaderEpoch
    epoch_start_offset: Offset


@dataclass(frozen=True, slots=True)
class LostLeadership:
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class VotersChanged:
    voters: VotersAt


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Write to the file of a snapshot that is downloaded; position 0 starts over."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """The download is complete: make it durable, then replace the log by it."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class TrimLog:
    """Remove everything below `start_offset`."""

    start_offset: Offset


@dataclass(frozen=True, slots=True)
class Report:
    """A message for the log of this process."""

    message: str


Instruction: TypeAlias = (
    PersistVote
    | Send
    | Reply
    | ReplyWithRecords
    | ReplyWithSnapshotChunk
    | AppendBatches
    | AppendRefused
    | TruncateLog
    | Flush
    | Commit
    | BecameLeader
    | LostLeadership
    | LeaderChanged
    | VotersChanged
    | WriteSnapshotChunk
    | LoadSnapshot
    | TrimLog
    | Report
)
