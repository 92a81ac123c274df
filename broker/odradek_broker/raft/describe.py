"""The content of DescribeQuorum (kafka-metadata-quorum, kafka-python's describe_metadata_quorum).

Only the leader can answer it. Times are ages: the state machine has no wall clock, the handler
turns them into timestamps.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.values import NodeId, ReplicaKey
from odradek_protocol.ids import LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    key: ReplicaKey
    log_end_offset: Offset  # -1 if it has not fetched from this leader
    last_fetch_age_ms: float | None
    caught_up_age_ms: float | None


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    leader_id: NodeId
    epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]


def describe(state: QuorumState, now_ms: float) -> QuorumStatus | None:
    """None if this node does not lead."""
    if state.leadership is None:
        return None
    voters = state.voters
    observers = [key for key in state.leadership.progress if not voters.contains(key)]
    if not state.is_voter:
        observers.append(state.key)
    return QuorumStatus(
        leader_id=state.key.id,
        epoch=state.epoch,
        high_watermark=state.high_watermark,
        voters=tuple(_status(state, key, now_ms) for key in voters.keys),
        observers=tuple(_status(state, key, now_ms) for key in sorted(observers)),
    )


def _status(state: QuorumState, key: ReplicaKey, now_ms: float) -> ReplicaStatus:
    assert state.leadership is not None
    if key == state.key:
        return ReplicaStatus(key, state.log.end_offset, 0.0, 0.0)
    progress = state.leadership.progress.get(key)
    if progress is None:
        return ReplicaStatus(key, -1, None, None)
    never = progress.caught_up_ms == float("-inf")
    return ReplicaStatus(
        key,
        progress.match_offset,
        now_ms - progress.last_fetch_ms,
        None if never else now_ms - progress.caught_up_ms,
    )
