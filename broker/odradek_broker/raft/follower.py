"""Fetching: a follower copies the leader's log; a node that knows no leader asks other nodes.

One fetch is in flight at a time, and the next is sent only when everything fetched is durable,
because its offset is the acknowledgement.
"""

from __future__ import annotations

from odradek_broker.raft import log_writes, transitions
from odradek_broker.raft.errors import CommittedDataError
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    UpdateVoterRequest,
)
from odradek_broker.raft.quorum_state import (
    Following,
    PendingFetch,
    QuorumState,
    SnapshotDownload,
)
from odradek_broker.raft.states import FETCHERS
from odradek_broker.raft.types import (
    Commit,
    Instruction,
    LoadSnapshot,
    Report,
    Send,
    SnapshotLoaded,
    WriteSnapshotChunk,
)
from odradek_broker.raft.values import Batch, NodeId, OffsetAndEpoch, SnapshotInfo
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import LeaderEpoch, Offset


def wants_fetch(state: QuorumState) -> bool:
    """Whether a fetch should be sent when `next_fetch_ms` is reached."""
    if state.role not in FETCHERS or state.fetch is not None:
        return False
    if state.following and state.following.download and state.following.download.loading:
        return False
    return state.log.flushed_offset == state.log.end_offset


def fetch_if_due(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    if now_ms < state.next_fetch_ms or not wants_fetch(state):
        return
    to = _whom_to_ask(state, now_ms)
    if to is None:
        state.next_fetch_ms = now_ms + state.config.fetch_timeout_ms
        return
    correlation_id = state.correlation_id()
    deadline_ms = now_ms + state.config.request_timeout_ms
    state.fetch = PendingFetch(correlation_id, to, state.epoch, state.log.end, deadline_ms)
    out.append(Send(to, correlation_id, _fetch_request(state, to)))


def _fetch_request(state: QuorumState, to: NodeId) -> FetchRequest | FetchSnapshotRequest:
    download = state.following.download if state.following else None
    if download is not None and to == state.leader_id:
        return FetchSnapshotRequest(
            replica=state.key,
            epoch=state.epoch,
            snapshot_id=download.id,
            position=download.position,
            max_bytes=state.config.snapshot_chunk_bytes,
        )
    return FetchRequest(
        replica=state.key,
        epoch=state.epoch,
        fetch_offset=state.log.end_offset,
        last_fetched_epoch=state.log.last_epoch,
        high_watermark=state.high_watermark,
        max_wait_ms=state.config.fetch_max_wait_ms,
    )


def _whom_to_ask(state: QuorumState, now_ms: float) -> NodeId | None:
    """The leader; any node while no leader is known, or when an observer's leader is silent."""
    if state.following is not None and (state.may_stand or now_ms < state.deadline_ms):
        return state.leader_id
    asked = dict.fromkeys((*state.voters.ids, *state.bootstrap))
    peers = [node_id for node_id in asked if node_id != state.key.id]
    return state.rng.choice(peers) if peers else None


def give_up_fetch(state: QuorumState, now_ms: float) -> None:
    """No usable response: fetch again after a backoff."""
    state.fetch = None
    state.next_fetch_ms = now_ms + state.config.retry_backoff_ms


def look_for_another_leader(state: QuorumState, fetch: PendingFetch, now_ms: float) -> None:
    """The leader's process is gone: do not wait for the fetch timeout.

    This is safe: pre-votes are granted only by nodes that have lost the leader as well.
    """
    following = state.following
    if following is not None and fetch.to == state.leader_id:
        following.has_fetched = False
        wait_ms = state.rng.random() * state.config.election_timeout_ms / 4  # not all at once
        state.deadline_ms = min(state.deadline_ms, now_ms + (wait_ms if state.is_voter else 0.0))


def on_fetch_response(
    state: QuorumState,
    source: NodeId,
    correlation_id: int,
    response: FetchResponse,
    now_ms: float,
    out: list[Instruction],
) -> None:
    pending = state.fetch
    transitions.learn_leader(state, response.leader, now_ms, out)
    if not is_current(state, pending, correlation_id):
        return
    following = state.following
    if following is None or source != state.leader_id or response.error is not ErrorCode.none:
        give_up_fetch(state, now_ms)
        return
    state.fetch = None
    state.next_fetch_ms = now_ms
    _leader_answered(state, following, now_ms)
    if response.diverging is not None:
        end_offset = truncation_offset(state.log, response.diverging)
        _keep_committed(state, end_offset, response.diverging)
        log_writes.truncate(state, end_offset, out)
    elif response.snapshot_id is not None:
        _keep_committed(state, response.snapshot_id.offset, response.snapshot_id)
        following.download = SnapshotDownload(response.snapshot_id)
    else:
        if response.batches:
            if not _fits(state.log, response.batches, state.epoch):
                out.append(Report(f"records from {source} do not fit the log: not applied"))
                give_up_fetch(state, now_ms)
                return
            log_writes.append(state, response.batches, out)
        commit_to(state, response.high_watermark, out)


def is_current(state: QuorumState, pending: PendingFetch | None, correlation_id: int) -> bool:
    """Whether a response belongs to the fetch in flight, and the log still ends where it did."""
    return (
        pending is not None
        and pending is state.fetch
        and pending.correlation_id == correlation_id
        and pending.end == state.log.end
    )


def truncation_offset(log: LogView, diverging: OffsetAndEpoch) -> Offset:
    """The highest point up to which the logs can be equal: the end of the newest common epoch."""
    ours = log.end_of_epoch(diverging.epoch)
    if ours.epoch == diverging.epoch:
        return min(ours.offset, diverging.offset)
    return ours.offset


def commit_to(state: QuorumState, high_watermark: Offset, out: list[Instruction]) -> None:
    """Takes over the leader's high watermark, up to the end of this log."""
    offset = min(high_watermark, state.log.end_offset)
    if offset > state.high_watermark:
        state.high_watermark = offset
        out.append(Commit(offset))


def on_fetch_snapshot_response(
    state: QuorumState,
    source: NodeId,
    correlation_id: int,
    response: FetchSnapshotResponse,
    now_ms: float,
    out: list[Instruction],
) -> None:
    pending = state.fetch
    transitions.learn_leader(state, response.leader, now_ms, out)
    if not is_current(state, pending, correlation_id):
        return
    following = state.following
    give_up_fetch(state, now_ms)
    if following is None or following.download is None or source != state.leader_id:
        return
    download = following.download
    if response.error is not ErrorCode.none:
        following.download = None  # gone or replaced: the next fetch response names the new one
        return
    if response.snapshot_id != download.id or response.position != download.position:
        return
    _leader_answered(state, following, now_ms)
    state.next_fetch_ms = now_ms
    out.append(WriteSnapshotChunk(download.id, download.position, response.data))
    download.position += len(response.data)
    if download.position >= response.size_bytes:
        download.loading = True
        out.append(LoadSnapshot(SnapshotInfo(download.id, response.size_bytes)))


def on_snapshot_loaded(
    state: QuorumState, event: SnapshotLoaded, now_ms: float, out: list[Instruction]
) -> None:
    state.log.reset_to(event.snapshot, event.voters)
    if state.following is not None:
        state.following.download = None
    state.next_fetch_ms = now_ms
    commit_to(state, event.snapshot.id.offset, out)


def update_own_voter(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """Sends UpdateRaftVoter if the voter set has outdated addresses of this node."""
    following = state.following
    if following is None or not following.has_fetched or now_ms < following.update_voter_ms:
        return
    voter = state.voters.get(state.key.id)
    if voter is None or voter.key != state.key or voter.endpoints == state.endpoints:
        return
    assert state.leader_id is not None
    following.update_voter_ms = now_ms + state.config.fetch_timeout_ms
    request = UpdateVoterRequest(state.epoch, state.as_voter)
    out.append(Send(state.leader_id, state.correlation_id(), request))


def _leader_answered(state: QuorumState, following: Following, now_ms: float) -> None:
    following.has_fetched = True
    following.answered_ms = now_ms
    state.deadline_ms = now_ms + transitions.fetch_timeout_ms(state)


def _keep_committed(state: QuorumState, end_offset: Offset, asked_for: OffsetAndEpoch) -> None:
    if end_offset < state.high_watermark:
        raise CommittedDataError(
            f"leader {state.leader_id} of epoch {state.epoch} asks for {asked_for}, which would "
            f"remove committed records from {end_offset} to {state.high_watermark}"
        )


def _fits(log: LogView, batches: tuple[Batch, ...], epoch: LeaderEpoch) -> bool:
    """Batches continue the log, in ascending epochs, none newer than the leader's."""
    offset, last_epoch = log.end_offset, log.last_epoch
    for batch in batches:
        if batch.base_offset != offset or batch.record_count < 1:
            return False
        if not last_epoch <= batch.epoch <= epoch:
            return False
        offset, last_epoch = batch.end_offset, batch.epoch
    return True
