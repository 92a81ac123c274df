"""Changes of the voter set: one voter at a time, as a record in the log.

A new set applies as soon as it is written. The next change is refused until the last one is
committed, and the first change of a leader until it has committed a record of its own epoch:
otherwise two leaders could hold sets whose majorities have no voter in common.
"""

from __future__ import annotations

from odradek_broker.raft import leader, log_writes
from odradek_broker.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from odradek_broker.raft.quorum_state import Leadership, PendingVoterChange, QuorumState
from odradek_broker.raft.types import Instruction, Reply
from odradek_broker.raft.values import KRAFT_VERSION, Voters
from odradek_broker.raft.voters import VoterSet
from odradek_protocol.error_codes import ErrorCode

VoterChange = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


class RefusedError(Exception):
    """The change cannot be made (yet); nothing was written."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def on_voter_change(
    state: QuorumState,
    ticket: object,
    request: VoterChange,
    now_ms: float,
    out: list[Instruction],
) -> None:
    try:
        leadership = _leadership(state, request)
        check_no_change_pending(state, leadership)
        voters = _changed(state, leadership, request, now_ms)
        _check_can_commit(state, leadership, voters, now_ms)
    except RefusedError as error:
        answer = VoterChangeResponse(error.code, str(error), state.leader)
        out.append(Reply(ticket, answer))
        return
    offset = log_writes.append_control(state, (Voters(voters),), out)
    if isinstance(request, UpdateVoterRequest):  # no majority changed: nothing to wait for
        out.append(Reply(ticket, VoterChangeResponse(ErrorCode.none, "", state.leader)))
    else:
        timeout_ms = state.config.request_timeout_ms
        if isinstance(request, AddVoterRequest):
            timeout_ms = request.timeout_ms
        leadership.voter_change = PendingVoterChange(ticket, offset, now_ms + timeout_ms)
    leader.answer_waiting(state, now_ms, out)


def check_no_change_pending(state: QuorumState, leadership: Leadership) -> None:
    if state.high_watermark <= leadership.epoch_start_offset:
        raise RefusedError(
            ErrorCode.request_timed_out,
            f"the leader has not committed a record of its epoch {state.epoch} yet",
        )
    newest = state.log.voters.newest
    if newest.offset >= state.high_watermark:
        raise RefusedError(
            ErrorCode.request_timed_out,
            f"the voter change at offset {newest.offset} is not committed yet "
            f"(high watermark {state.high_watermark})",
        )


def _check_can_commit(
    state: QuorumState, leadership: Leadership, voters: VoterSet, now_ms: float
) -> None:
    """A set whose majority is silent would end this leadership at once, maybe for good."""
    oldest_ms = now_ms - state.config.fetch_timeout_ms
    in_touch = 0
    for key in voters.keys:
        progress = leadership.progress.get(key)
        in_touch += key == state.key or (
            progress is not None and progress.last_fetch_ms > oldest_ms
        )
    if in_touch < voters.majority:
        raise RefusedError(
            ErrorCode.request_timed_out,
            f"of the voters {voters.keys} only {in_touch} have fetched from the leader lately",
        )


def expire(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """Responds to a change that was not committed in time; it stays in the log."""
    assert state.leadership is not None
    change = state.leadership.voter_change
    if change is not None and change.deadline_ms <= now_ms:
        state.leadership.voter_change = None
        message = f"the voter change at offset {change.offset} was not committed in time"
        answer = VoterChangeResponse(ErrorCode.request_timed_out, message, state.leader)
        out.append(Reply(change.ticket, answer))


def _leadership(state: QuorumState, request: VoterChange) -> Leadership:
    if state.leadership is None:
        raise RefusedError(ErrorCode.not_leader_or_follower, "this node does not lead")
    if isinstance(request, UpdateVoterRequest) and request.epoch != state.epoch:
        raise RefusedError(ErrorCode.fenced_leader_epoch, f"the epoch is {state.epoch}")
    return state.leadership


def _changed(
    state: QuorumState, leadership: Leadership, request: VoterChange, now_ms: float
) -> VoterSet:
    voters = state.voters
    if isinstance(request, RemoveVoterRequest):
        if not voters.contains(request.key):
            raise RefusedError(
                ErrorCode.voter_not_found, f"{request.key} is not one of {voters.keys}"
            )
        if len(voters) == 1:
            raise RefusedError(ErrorCode.invalid_request, "the last voter cannot be removed")
        return voters.without(request.key)
    voter = request.voter
    if not voter.kraft_version_min <= KRAFT_VERSION <= voter.kraft_version_max:
        raise RefusedError(
            ErrorCode.invalid_request,
            f"{voter.key} does not support kraft.version {KRAFT_VERSION}",
        )
    if isinstance(request, UpdateVoterRequest):
        if not voters.contains(voter.key):
            raise RefusedError(
                ErrorCode.voter_not_found, f"{voter.key} is not one of {voters.keys}"
            )
        return voters.with_updated(voter)
    if voters.get(voter.key.id) is not None:
        raise RefusedError(
            ErrorCode.duplicate_voter, f"node {voter.key.id} is already one of {voters.keys}"
        )
    # A voter that has to fetch the whole log first would delay every commit.
    progress = leadership.progress.get(voter.key)
    if progress is None or progress.caught_up_ms <= now_ms - state.config.fetch_timeout_ms:
        raise RefusedError(ErrorCode.request_timed_out, f"{voter.key} is not caught up")
    return voters.with_voter(voter)
