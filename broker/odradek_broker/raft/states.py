"""The roles of a node in the quorum, and every change between them, as one table.

An observer (a node outside the voter set) is not a role: the newest voter set in the log says
so. An observer is only ever Unattached, Voted or Follower; it may vote, because it may be a voter
in a set that it has not fetched yet.

    Unattached    knows the epoch but no leader
    Voted         Unattached, and has voted for another node in this epoch
    Prospective   asks the voters whether it would win (pre-vote); the epoch stays as it is
    ProspectiveVoted   Prospective, and has voted for another node in this epoch
    Candidate     raised the epoch, voted for itself, asks for votes
    Leader        the only one of its epoch
    Resigned      was the leader of this epoch, and sends EndQuorumEpoch to the others
    Follower      fetches from the leader of this epoch
"""

from __future__ import annotations

from enum import Enum

from odradek_broker.raft.errors import IllegalTransitionError


class Role(Enum):
    UNATTACHED = "Unattached"
    VOTED = "Voted"
    PROSPECTIVE = "Prospective"
    PROSPECTIVE_VOTED = "ProspectiveVoted"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    RESIGNED = "Resigned"
    FOLLOWER = "Follower"


class Cause(Enum):
    HIGHER_EPOCH = "a higher epoch was seen"
    LEADER_FOUND = "the leader of this epoch is known"
    VOTE_GRANTED = "it voted for a candidate"
    ELECTION_TIMEOUT = "no leader was found in time"
    FETCH_TIMEOUT = "the leader did not respond in time"
    PRE_VOTES_WON = "a majority granted pre-votes"
    PRE_VOTES_LOST = "no majority granted pre-votes, and no leader is known"
    PRE_VOTES_LOST_TO_LEADER = "no majority granted pre-votes, and a leader is known"
    VOTES_WON = "a majority voted for it"
    VOTES_LOST = "no majority voted for it"
    RESIGN = "it stops, was removed, or lost the majority"
    RESIGNATION_OVER = "its time as a resigned leader ended"


_R, _C = Role, Cause

TRANSITIONS: dict[tuple[Role, Cause], Role] = {
    (_R.UNATTACHED, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.UNATTACHED, _C.LEADER_FOUND): _R.FOLLOWER,
    (_R.UNATTACHED, _C.VOTE_GRANTED): _R.VOTED,
    (_R.UNATTACHED, _C.ELECTION_TIMEOUT): _R.PROSPECTIVE,
    #
    (_R.VOTED, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.VOTED, _C.LEADER_FOUND): _R.FOLLOWER,
    (_R.VOTED, _C.ELECTION_TIMEOUT): _R.PROSPECTIVE_VOTED,
    #
    (_R.PROSPECTIVE, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.PROSPECTIVE, _C.LEADER_FOUND): _R.FOLLOWER,
    (_R.PROSPECTIVE, _C.VOTE_GRANTED): _R.PROSPECTIVE_VOTED,
    (_R.PROSPECTIVE, _C.PRE_VOTES_WON): _R.CANDIDATE,
    (_R.PROSPECTIVE, _C.PRE_VOTES_LOST): _R.UNATTACHED,
    (_R.PROSPECTIVE, _C.PRE_VOTES_LOST_TO_LEADER): _R.FOLLOWER,
    #
    (_R.PROSPECTIVE_VOTED, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.PROSPECTIVE_VOTED, _C.LEADER_FOUND): _R.FOLLOWER,
    (_R.PROSPECTIVE_VOTED, _C.PRE_VOTES_WON): _R.CANDIDATE,
    (_R.PROSPECTIVE_VOTED, _C.PRE_VOTES_LOST): _R.VOTED,
    #
    (_R.CANDIDATE, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.CANDIDATE, _C.LEADER_FOUND): _R.FOLLOWER,
    (_R.CANDIDATE, _C.VOTES_WON): _R.LEADER,
    (_R.CANDIDATE, _C.VOTES_LOST): _R.PROSPECTIVE_VOTED,
    #
    (_R.LEADER, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.LEADER, _C.RESIGN): _R.RESIGNED,
    #
    (_R.RESIGNED, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.RESIGNED, _C.RESIGNATION_OVER): _R.UNATTACHED,
    #
    (_R.FOLLOWER, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.FOLLOWER, _C.FETCH_TIMEOUT): _R.PROSPECTIVE,
}

# Roles that ask for votes: for voters only (see QuorumState.may_stand).
NOMINEES = (_R.PROSPECTIVE, _R.PROSPECTIVE_VOTED, _R.CANDIDATE)
# Roles that ask others for records, or for the leader.
FETCHERS = (_R.UNATTACHED, _R.VOTED, _R.FOLLOWER)


def next_role(role: Role, cause: Cause, *, may_stand: bool) -> Role:
    """The role after `cause`; IllegalTransitionError if the table has no entry."""
    target = TRANSITIONS.get((role, cause))
    if target is None:
        raise IllegalTransitionError(f"no transition from {role.value} because {cause.value}")
    if target in NOMINEES and not may_stand:
        raise IllegalTransitionError(f"an observer cannot become {target.value}")
    return target
