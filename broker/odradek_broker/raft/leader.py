"""The leader: it responds to fetches, and derives from them what is committed.

A fetch from offset 120 is an acknowledgement: everything below 120 is durable there. The high
watermark is the highest offset that a majority of the voters has acknowledged. The leader counts
itself up to where it has flushed.
"""

from __future__ import annotations

from odradek_broker.raft import log_writes, transitions
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoterChangeResponse,
)
from odradek_broker.raft.quorum_state import Leadership, ParkedFetch, Progress, QuorumState
from odradek_broker.raft.types import (
    AppendRefused,
    ClientAppend,
    Commit,
    Instruction,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshotChunk,
    Send,
)
from odradek_broker.raft.values import Batch, OffsetAndEpoch, ReplicaKey
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import LeaderEpoch, Offset

# The progress of an observer that has not fetched for this long is dropped.
OBSERVER_SESSION_MS = 300_000
# More replicas than this are served but not tracked, so that memory stays bounded.
REPLICAS_MAX = 1000


def on_fetch(
    state: QuorumState,
    ticket: object,
    request: FetchRequest,
    now_ms: float,
    out: list[Instruction],
) -> None:
    error = refuse(state, request.replica, request.epoch, now_ms, out)
    leadership = state.leadership
    if error is not ErrorCode.none or leadership is None:
        out.append(Reply(ticket, FetchResponse(error, state.leader)))
        return
    progress = _heard_from(state, leadership, request.replica, now_ms)
    position = OffsetAndEpoch(request.fetch_offset, request.last_fetched_epoch)
    if needs_snapshot(state.log, position):
        assert state.log.snapshot is not None
        out.append(Reply(ticket, _response(state, snapshot_id=state.log.snapshot.id)))
        return
    diverging = find_divergence(state.log, position)
    if diverging is not None:
        out.append(Reply(ticket, _response(state, diverging=diverging)))
        return
    _note_position(state.log, progress, position.offset, now_ms)
    advance_high_watermark(state, now_ms, out)
    if state.leadership is None:  # the new high watermark committed its own removal
        out.append(Reply(ticket, FetchResponse(ErrorCode.not_leader_or_follower, state.leader)))
    elif (
        has_new_data(state, request)
        or request.max_wait_ms <= 0
        or request.replica not in leadership.progress
    ):
        _answer_with_records(state, ticket, request, out)
    else:
        older = leadership.waiting.get(request.replica)
        if older is not None:  # the replica gave it up, or it would not fetch again
            out.append(Reply(older.ticket, _response(state)))
        deadline_ms = now_ms + min(request.max_wait_ms, state.config.fetch_max_wait_ms)
        leadership.waiting[request.replica] = ParkedFetch(ticket, request, deadline_ms)


def refuse(
    state: QuorumState,
    replica: ReplicaKey,
    epoch: LeaderEpoch,
    now_ms: float,
    out: list[Instruction],
) -> ErrorCode:
    """The error for a request that only the leader of `epoch` may answer; none if this is it."""
    if replica.id == state.key.id:
        return ErrorCode.invalid_request
    if epoch > state.epoch:
        # The replica may have voted in an epoch that no other node knows. It cannot go back to a
        # lower epoch, so the others adopt the higher one.
        transitions.adopt_epoch(state, epoch, now_ms, out)
    if epoch < state.epoch:
        return ErrorCode.fenced_leader_epoch
    if state.leadership is None:
        return ErrorCode.not_leader_or_follower
    return ErrorCode.none


def needs_snapshot(log: LogView, position: OffsetAndEpoch) -> bool:
    """Whether the records that the replica needs, or its divergence, are before the log start."""
    if log.start.offset == 0:
        return False
    return position.offset < log.start.offset or position.epoch < log.start.epoch


def find_divergence(log: LogView, position: OffsetAndEpoch) -> OffsetAndEpoch | None:
    """None if the replica's log is a prefix of ours; else a position to truncate to or below."""
    if position.offset == 0:
        return None
    end = log.end_of_epoch(position.epoch)
    if end.epoch == position.epoch and position.offset <= end.offset:
        return None
    return end


def has_new_data(state: QuorumState, request: FetchRequest) -> bool:
    return (
        state.log.end_offset > request.fetch_offset or state.high_watermark > request.high_watermark
    )


def append_from_client(
    state: QuorumState, event: ClientAppend, now_ms: float, out: list[Instruction]
) -> None:
    if state.leadership is None or event.epoch != state.epoch:
        out.append(AppendRefused(ErrorCode.not_leader_or_follower, state.leader))
        return
    batch = Batch(state.log.end_offset, event.record_count, state.epoch, data=event.data)
    log_writes.append(state, (batch,), out)
    answer_waiting(state, now_ms, out)


def answer_waiting(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """Responds to parked fetches that have new data, or whose deadline has passed."""
    assert state.leadership is not None
    waiting = state.leadership.waiting
    for replica, fetch in list(waiting.items()):
        if fetch.deadline_ms <= now_ms or has_new_data(state, fetch.request):
            del waiting[replica]
            _answer_with_records(state, fetch.ticket, fetch.request, out)


def advance_high_watermark(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    leadership = state.leadership
    assert leadership is not None
    offset = majority_offset(state, leadership)
    if offset <= state.high_watermark or not may_commit(leadership, offset):
        return
    state.high_watermark = offset
    out.append(Commit(offset))
    change = leadership.voter_change
    if change is not None and change.offset < offset:
        leadership.voter_change = None
        out.append(Reply(change.ticket, VoterChangeResponse(ErrorCode.none, "", state.leader)))
    answer_waiting(state, now_ms, out)
    if not state.is_voter and state.log.voters.newest.offset < offset:
        transitions.resign(state, successors(state), now_ms, out)


def majority_offset(state: QuorumState, leadership: Leadership) -> Offset:
    """The highest offset up to which a majority of the newest voter set has the log."""
    offsets = []
    for voter in state.voters.voters:
        if voter.key == state.key:
            offsets.append(state.log.flushed_offset)
        else:
            progress = leadership.progress.get(voter.key)
            offsets.append(progress.match_offset if progress else -1)
    offsets.sort(reverse=True)
    return offsets[state.voters.majority - 1]


def may_commit(leadership: Leadership, offset: Offset) -> bool:
    """Records of older epochs are committed only together with a record of this epoch.

    A majority may hold a record of an older epoch and still elect a node that has a record of a
    newer epoch in its place. With a record of this epoch after it, no such node can win.
    """
    return offset > leadership.epoch_start_offset


def check_quorum_deadline_ms(state: QuorumState) -> float:
    """When the leader resigns unless a majority fetches; never for a quorum of one."""
    leadership = state.leadership
    assert leadership is not None
    needed = state.voters.majority - state.is_voter
    if needed == 0:
        return float("inf")
    progress = leadership.progress
    heard = [
        progress[key].last_fetch_ms if key in progress else leadership.since_ms
        for key in state.voters.keys
        if key != state.key
    ]
    heard.sort(reverse=True)
    return heard[needed - 1] + state.config.check_quorum_ms


def successors(state: QuorumState) -> tuple[ReplicaKey, ...]:
    """The other voters, the most caught up first."""
    assert state.leadership is not None
    progress = state.leadership.progress

    def match_offset(key: ReplicaKey) -> Offset:
        return progress[key].match_offset if key in progress else -1

    keys = [voter.key for voter in state.other_voters()]
    return tuple(sorted(keys, key=match_offset, reverse=True))


def call_silent_voters(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """Sends BeginQuorumEpoch to voters that do not fetch: they may not know the leader."""
    leadership = state.leadership
    assert leadership is not None
    period_ms = state.config.begin_epoch_ms
    for voter in state.other_voters():
        progress = leadership.progress.get(voter.key)
        if progress is None or progress.last_fetch_ms <= now_ms - period_ms:
            request = BeginQuorumEpochRequest(voter.key, state.key.id, state.epoch, state.endpoints)
            out.append(Send(voter.key.id, state.correlation_id(), request))
    leadership.begin_epoch_at_ms = now_ms + period_ms
    _forget_old_observers(state, leadership, now_ms)


def on_fetch_snapshot(
    state: QuorumState,
    ticket: object,
    request: FetchSnapshotRequest,
    now_ms: float,
    out: list[Instruction],
) -> None:
    error = refuse(state, request.replica, request.epoch, now_ms, out)
    snapshot = state.log.snapshot
    if error is ErrorCode.none:
        assert state.leadership is not None
        _heard_from(state, state.leadership, request.replica, now_ms)
        if snapshot is None or snapshot.id != request.snapshot_id:
            error = ErrorCode.snapshot_not_found
        elif not 0 <= request.position < snapshot.size_bytes:
            error = ErrorCode.position_out_of_range
    if error is not ErrorCode.none:
        refusal = FetchSnapshotResponse(error, state.leader, request.snapshot_id)
        out.append(Reply(ticket, refusal))
        return
    assert snapshot is not None
    response = FetchSnapshotResponse(
        error, state.leader, snapshot.id, snapshot.size_bytes, request.position
    )
    out.append(ReplyWithSnapshotChunk(ticket, response, max(1, request.max_bytes)))


def _heard_from(
    state: QuorumState, leadership: Leadership, replica: ReplicaKey, now_ms: float
) -> Progress:
    progress = leadership.progress.get(replica)
    if progress is None:
        progress = Progress(now_ms)
        if len(leadership.progress) < REPLICAS_MAX or state.voters.contains(replica):
            leadership.progress[replica] = progress
    progress.last_fetch_ms = now_ms
    return progress


def _note_position(log: LogView, progress: Progress, offset: Offset, now_ms: float) -> None:
    progress.match_offset = max(progress.match_offset, offset)
    if offset >= log.end_offset:
        progress.caught_up_ms = now_ms
    elif offset >= progress.end_at_last_fetch >= 0:
        progress.caught_up_ms = progress.last_position_ms
    progress.end_at_last_fetch, progress.last_position_ms = log.end_offset, now_ms


def _forget_old_observers(state: QuorumState, leadership: Leadership, now_ms: float) -> None:
    old = now_ms - OBSERVER_SESSION_MS
    for replica, progress in list(leadership.progress.items()):
        if progress.last_fetch_ms < old and not state.voters.contains(replica):
            del leadership.progress[replica]


def _response(
    state: QuorumState,
    *,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> FetchResponse:
    return FetchResponse(
        error=ErrorCode.none,
        leader=state.leader,
        high_watermark=state.high_watermark,
        log_start_offset=state.log.start.offset,
        diverging=diverging,
        snapshot_id=snapshot_id,
    )


def _answer_with_records(
    state: QuorumState, ticket: object, request: FetchRequest, out: list[Instruction]
) -> None:
    """Empty if there are no records, or if the log was trimmed while the fetch was parked."""
    if state.log.start.offset <= request.fetch_offset < state.log.end_offset:
        out.append(ReplyWithRecords(ticket, _response(state), request.fetch_offset))
    else:
        out.append(Reply(ticket, _response(state)))
