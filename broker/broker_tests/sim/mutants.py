"""Planted bugs: each replaces one function of the state machine (or of its driver) by a wrong one.

A simulation without findings proves something only if it would have found these bugs. None of
this is reachable from production code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

from broker_tests.sim.raft_disk import RaftDisk
from broker_tests.sim.raft_node import RaftNode
from odradek_broker.raft import (
    election,
    follower,
    leader,
    quorum,
    quorum_state,
    transitions,
    voter_changes,
    voters,
)
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import VoteRequest
from odradek_broker.raft.quorum_state import Leadership, QuorumState
from odradek_broker.raft.states import Cause, Role
from odradek_broker.raft.types import Commit, Instruction, PersistVote
from odradek_broker.raft.values import NodeId, OffsetAndEpoch, ReplicaKey
from odradek_broker.raft.voters import VoterHistory, VotersAt, VoterSet
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import Offset

MISFIT = re.compile(r"^(TypeError|AttributeError|NameError|ImportError)\b", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    name: str
    patches: tuple[tuple[Any, str, Any], ...]  # (module or class, name, replacement)

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, replacement in self.patches:
                stack.enter_context(patch.object(target, name, replacement))
            yield

    def must_be_found(self, failure_of: Callable[[int], str | None], known: int, most: int) -> None:
        """Must be found by the recorded seed or, if the code has changed since, by one nearby."""
        with self.planted():
            for seed in [known, *(seed for seed in range(most) if seed != known)]:
                failure = failure_of(seed)
                if failure is not None:
                    # Otherwise the patch itself does not fit the code any more.
                    assert not MISFIT.search(failure), f"{self.name}: {failure}"
                    return
        raise AssertionError(f"{self.name} was not found in {most} seeds")


# ---------------------------------------------------------------- votes


def _forget_vote(node: RaftNode, instruction: PersistVote) -> None:
    """The epoch is written to disk, the vote is not."""
    node.disk.vote = replace(instruction.vote, voted=None)


def _answer_before_vote_is_durable(
    node: RaftNode, instructions: list[Instruction], at: int
) -> None:
    """The file is written after the answer has left."""
    for instruction in instructions[at:]:
        if isinstance(instruction, PersistVote):
            delay_ms = node._disk_ms(10)
            node.world.after_on(node.node_id, delay_ms, node._persist, instruction)
        else:
            node._carry_out_one(instruction)


def _vote_twice(state: QuorumState, request: VoteRequest, now_ms: float) -> bool:
    if request.pre_vote or state.role is Role.CANDIDATE:
        return _CAN_GRANT_VOTE(state, request, now_ms)
    return state.leader_id is None and election.is_up_to_date(state, request)


_CAN_GRANT_VOTE = election.can_grant_vote


def _take_vote_back(
    state: QuorumState, candidate: ReplicaKey, now_ms: float, out: list[Instruction]
) -> None:
    if state.role in (Role.UNATTACHED, Role.PROSPECTIVE):
        _GRANT_VOTE(state, candidate, now_ms, out)
    elif state.role is not Role.CANDIDATE:
        state.voted = candidate


_GRANT_VOTE = transitions.grant_vote


def _pre_vote_against_live_leader(state: QuorumState, request: VoteRequest, _: float) -> bool:
    if request.pre_vote:
        return state.role is not Role.LEADER and election.is_up_to_date(state, request)
    if state.voted is not None:
        return state.voted == request.candidate
    return state.leader_id is None and election.is_up_to_date(state, request)


def _no_pre_vote(state: QuorumState, cause: Cause, now_ms: float, out: list[Instruction]) -> None:
    _ASK_FOR_PRE_VOTES(state, cause, now_ms, out)
    if state.role in (Role.PROSPECTIVE, Role.PROSPECTIVE_VOTED):
        transitions.stand_for_election(state, now_ms, out)


_ASK_FOR_PRE_VOTES = transitions.ask_for_pre_votes


def _keep_directory_id(node: RaftNode, rng: Random) -> None:
    node.disk = RaftDisk(node.node_id, node.key.directory_id, VoterSet())
    node.checker.forget(node)


# ---------------------------------------------------------------- commits


def _majority_with_own_unflushed(state: QuorumState, leadership: Leadership) -> Offset:
    flushed, state.log.flushed_offset = state.log.flushed_offset, state.log.end_offset
    try:
        return _MAJORITY_OFFSET(state, leadership)
    finally:
        state.log.flushed_offset = flushed


_MAJORITY_OFFSET = leader.majority_offset


def _majority_of_all_replicas(state: QuorumState, leadership: Leadership) -> Offset:
    """Observers count like voters."""
    offsets = [state.log.flushed_offset]
    offsets += [progress.match_offset for progress in leadership.progress.values()]
    offsets.sort(reverse=True)
    offsets += [-1] * len(state.voters)
    return offsets[state.voters.majority - 1]


def _majority_with_removed_leader(state: QuorumState, leadership: Leadership) -> Offset:
    """A leader that removed itself still counts."""
    if state.is_voter:
        return _MAJORITY_OFFSET(state, leadership)
    progress = [leadership.progress.get(key) for key in state.voters.keys]
    offsets = [p.match_offset if p else -1 for p in progress] + [state.log.flushed_offset]
    return sorted(offsets, reverse=True)[state.voters.majority - 1]


def _fetch_before_flush(state: QuorumState) -> bool:
    flushed, state.log.flushed_offset = state.log.flushed_offset, state.log.end_offset
    try:
        return _WANTS_FETCH(state)
    finally:
        state.log.flushed_offset = flushed


_WANTS_FETCH = follower.wants_fetch

# ---------------------------------------------------------------- logs


def _apply_any_answer(state: QuorumState, pending: object, correlation_id: int) -> bool:
    return state.following is not None


def _diverging_by_offset_only(log: LogView, position: OffsetAndEpoch) -> OffsetAndEpoch | None:
    return None if position.offset <= log.end_offset else log.end


def _truncate_to_leaders_offset(log: LogView, diverging: OffsetAndEpoch) -> Offset:
    """Truncates to the leader's offset without checking its own epochs."""
    return min(log.end_offset, diverging.offset)


def _commit_what_is_not_there(
    state: QuorumState, high_watermark: Offset, out: list[Instruction]
) -> None:
    if high_watermark > state.high_watermark:
        state.high_watermark = high_watermark
        out.append(Commit(high_watermark))


def _newest_voters_in_snapshot(history: VoterHistory, end_offset: Offset) -> VotersAt:
    return history.newest


# ---------------------------------------------------------------- voter sets


def _no_wait_for_last_change(state: QuorumState, leadership: Leadership) -> None:
    """Only a record of the own epoch must be committed."""
    if state.high_watermark <= leadership.epoch_start_offset:
        raise voter_changes.RefusedError(ErrorCode.request_timed_out, "not committed yet")


def _no_wait_for_own_epoch(state: QuorumState, leadership: Leadership) -> None:
    """Only the last change must be committed; an own record need not be."""
    if state.log.voters.newest.offset >= state.high_watermark:
        raise voter_changes.RefusedError(ErrorCode.request_timed_out, "not committed yet")


def _lead_again(state: QuorumState, leader_id: NodeId | None, now_ms: float) -> None:
    """A restarted leader goes on in its epoch."""
    if leader_id == state.key.id:
        state.role, state.leader_id = Role.LEADER, leader_id
        state.leadership = Leadership(now_ms, state.log.end_offset, now_ms)
    else:
        _RESUME_ROLE(state, leader_id, now_ms)


_RESUME_ROLE = quorum._resume_role


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object) -> None:
    return None


# The rarest show in about one seed of forty.
SEEDS_TO_FIND_MAX = 300
# A seed that finds it, 0 where none is named; if the code has changed, others are tried too.
FOUND_BY: dict[str, int] = {
    "vote-for-old-log": 1,
    "pre-vote-against-live-leader": 1,
    "stale-reply-applied": 1,
    "no-check-quorum": 2,
    "snapshot-with-newest-voters": 4,
    "leader-again-after-restart": 8,
    "empty-disk-counts-as-old-voter": 9,
    "pre-vote-counted-as-vote": 10,
    "removed-leader-never-stands": 18,
    "two-voter-changes-at-once": 39,
    "voter-change-before-own-commit": 51,
    "answer-before-vote-is-durable": 53,
    "truncate-to-leaders-offset": 96,
}

MUTANTS: tuple[Mutant, ...] = (
    Mutant("vote-not-persisted", ((RaftNode, "_persist", _forget_vote),)),
    Mutant(
        "answer-before-vote-is-durable",
        ((RaftNode, "_carry_out", _answer_before_vote_is_durable),),
    ),
    Mutant(
        "vote-twice",
        (
            (election, "can_grant_vote", _vote_twice),
            (transitions, "grant_vote", _take_vote_back),
        ),
    ),
    Mutant("vote-for-old-log", ((election, "is_up_to_date", _always),)),
    Mutant("pre-vote-counted-as-vote", ((election, "is_of_this_round", _always),)),
    Mutant("no-pre-vote", ((transitions, "ask_for_pre_votes", _no_pre_vote),)),
    Mutant(
        "pre-vote-against-live-leader",
        ((election, "can_grant_vote", _pre_vote_against_live_leader),),
    ),
    Mutant("empty-disk-counts-as-old-voter", ((RaftNode, "wipe", _keep_directory_id),)),
    Mutant("commit-of-older-epoch-by-counting", ((leader, "may_commit", _always),)),
    Mutant("leader-counts-unflushed", ((leader, "majority_offset", _majority_with_own_unflushed),)),
    Mutant("observers-count", ((leader, "majority_offset", _majority_of_all_replicas),)),
    Mutant(
        "removed-leader-counts-itself",
        ((leader, "majority_offset", _majority_with_removed_leader),),
    ),
    Mutant("fetch-before-flush", ((follower, "wants_fetch", _fetch_before_flush),)),
    Mutant("no-truncation", ((leader, "find_divergence", _nothing),)),
    Mutant("diverging-by-offset-only", ((leader, "find_divergence", _diverging_by_offset_only),)),
    Mutant(
        "truncate-to-leaders-offset",
        ((follower, "truncation_offset", _truncate_to_leaders_offset),),
    ),
    Mutant("stale-reply-applied", ((follower, "is_current", _apply_any_answer),)),
    Mutant("commit-what-is-not-there", ((follower, "commit_to", _commit_what_is_not_there),)),
    Mutant("no-snapshot-for-laggards", ((leader, "needs_snapshot", _never),)),
    Mutant(
        "snapshot-with-newest-voters", ((voters.VoterHistory, "at", _newest_voters_in_snapshot),)
    ),
    Mutant(
        "two-voter-changes-at-once",
        ((voter_changes, "check_no_change_pending", _no_wait_for_last_change),),
    ),
    Mutant(
        "voter-change-before-own-commit",
        ((voter_changes, "check_no_change_pending", _no_wait_for_own_epoch),),
    ),
    Mutant(
        "removed-leader-never-stands",
        ((quorum_state.QuorumState, "may_stand", quorum_state.QuorumState.is_voter),),
    ),
    Mutant("leader-again-after-restart", ((quorum, "_resume_role", _lead_again),)),
    Mutant(
        "no-check-quorum",
        ((leader, "check_quorum_deadline_ms", lambda state: float("inf")),),
    ),
)
