"""The state of a node of the quorum; changed by `step` only.

What belongs to one role lives in an object of its own (`Election`, `Leadership`, `Following`)
that exists only while the node has that role.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from odradek_broker.raft.config import QuorumConfig
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import FetchRequest
from odradek_broker.raft.states import FETCHERS, NOMINEES, Role
from odradek_broker.raft.values import (
    LeaderAndEpoch,
    NodeId,
    OffsetAndEpoch,
    RaftEndpoint,
    ReplicaKey,
)
from odradek_broker.raft.vote_state import VoteState
from odradek_broker.raft.voters import Voter, VoterSet
from odradek_protocol.ids import LeaderEpoch, Offset


@dataclass(slots=True)
class PendingFetch:
    """The one fetch in flight, and the end of the log when it was sent.

    Its response is applied only if the log still ends there: a late response with a divergence
    at 50 would erase records that were acknowledged since.
    """

    correlation_id: int
    to: NodeId
    epoch: LeaderEpoch
    end: OffsetAndEpoch
    deadline_ms: float


@dataclass(slots=True)
class Election:
    """A round of pre-votes or votes; responses with another correlation id are of older rounds."""

    correlation_id: int
    # Invariant: keys are voters; each counts once, by its first response.
    votes: dict[NodeId, bool]
    lost: bool = False  # a candidate waits out its backoff

    def granted(self) -> tuple[NodeId, ...]:
        return tuple(node_id for node_id, granted in self.votes.items() if granted)


@dataclass(slots=True)
class SnapshotDownload:
    id: OffsetAndEpoch
    position: int = 0
    loading: bool = False  # complete; `SnapshotLoaded` is awaited


@dataclass(slots=True)
class Following:
    # The leader answered at least once: pre-votes are refused until the fetch timeout.
    has_fetched: bool = False
    answered_ms: float = 0.0  # when it last did
    download: SnapshotDownload | None = None
    update_voter_ms: float = 0.0  # earliest time of the next UpdateRaftVoter


@dataclass(slots=True)
class Progress:
    """The leader's view of another replica, from that replica's fetches."""

    last_fetch_ms: float
    # Everything below is durable there and equal to our log; -1 before the first valid fetch.
    # Never decreases within an epoch: a replica that lost data has another directory id.
    match_offset: Offset = -1
    # The last time at which it had the whole log; -inf if never.
    caught_up_ms: float = float("-inf")
    # Our end at its last valid fetch: when it fetches from there, it was caught up at that time.
    end_at_last_fetch: Offset = -1
    last_position_ms: float = 0.0


@dataclass(slots=True)
class ParkedFetch:
    """A fetch that waits for new data."""

    ticket: object
    request: FetchRequest
    deadline_ms: float


@dataclass(slots=True)
class PendingVoterChange:
    """A request that waits for the commit of the newest voter set."""

    ticket: object
    offset: Offset
    deadline_ms: float


@dataclass(slots=True)
class Leadership:
    since_ms: float
    # The end of the log before the first record of this epoch. Until the high watermark is past
    # it, a majority may hold records of older epochs that a later leader could still remove.
    epoch_start_offset: Offset
    begin_epoch_at_ms: float
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    # Invariant: at most one per replica.
    waiting: dict[ReplicaKey, ParkedFetch] = field(default_factory=dict)
    voter_change: PendingVoterChange | None = None


@dataclass(slots=True)
class Resignation:
    """The voters that have not confirmed EndQuorumEpoch yet, and the best successors."""

    preferred: tuple[ReplicaKey, ...]
    unacknowledged: list[NodeId]
    send_at_ms: float


@dataclass(slots=True)
class QuorumState:
    key: ReplicaKey
    endpoints: tuple[RaftEndpoint, ...]
    config: QuorumConfig
    rng: Random
    bootstrap: tuple[NodeId, ...]  # nodes to ask when no voter is known or responds
    log: LogView

    epoch: LeaderEpoch = 0  # never decreases, not even across restarts
    leader_id: NodeId | None = None  # of this epoch; itself while Leader and while Resigned
    leader_endpoints: tuple[RaftEndpoint, ...] = ()
    voted: ReplicaKey | None = None  # in this epoch
    persisted: VoteState = field(default_factory=VoteState)

    role: Role = Role.UNATTACHED
    # When the role times out: election, fetch or resignation timeout.
    deadline_ms: float = 0.0
    election: Election | None = None  # iff nominee
    leadership: Leadership | None = None  # iff leader
    resignation: Resignation | None = None  # iff resigned
    following: Following | None = None  # iff follower
    fetch: PendingFetch | None = None  # only Unattached, Voted, Follower
    next_fetch_ms: float = 0.0
    election_retries: int = 0

    high_watermark: Offset = 0  # never decreases while the process runs
    next_correlation_id: int = 0

    @property
    def voters(self) -> VoterSet:
        return self.log.voters.newest.voters

    @property
    def is_voter(self) -> bool:
        return self.log.voters.newest.voters.contains(self.key)

    @property
    def may_stand(self) -> bool:
        """Whether this node may ask for votes: a voter, or a voter whose removal is uncommitted.

        If a leader writes its own removal and crashes before it is committed, no other log is as
        new as its own, so no other node can be elected. It stands (without a vote of its own),
        commits its removal and leaves.
        """
        return self.is_voter or self.log.voters.removal_pending(self.key, self.high_watermark)

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader for responses to others; a resigned leader does not name itself."""
        if self.role is Role.RESIGNED:
            return LeaderAndEpoch(None, self.epoch)
        return LeaderAndEpoch(self.leader_id, self.epoch, self.leader_endpoints)

    @property
    def as_voter(self) -> Voter:
        return Voter(self.key, self.endpoints)

    def vote_state(self) -> VoteState:
        return VoteState(self.epoch, self.leader_id, self.voted)

    def correlation_id(self) -> int:
        self.next_correlation_id += 1
        return self.next_correlation_id

    def other_voters(self) -> tuple[Voter, ...]:
        return tuple(voter for voter in self.voters.voters if voter.key.id != self.key.id)

    def validate(self) -> None:
        """Asserts the invariants between two steps (tests call it after each)."""
        role = self.role
        assert (self.election is not None) == (role in NOMINEES), role
        assert (self.leadership is not None) == (role is Role.LEADER), role
        assert (self.resignation is not None) == (role is Role.RESIGNED), role
        assert (self.following is not None) == (role is Role.FOLLOWER), role
        assert self.fetch is None or role in FETCHERS, role
        assert (self.leader_id == self.key.id) == (role in (Role.LEADER, Role.RESIGNED)), role
        assert role is not Role.FOLLOWER or self.leader_id is not None
        assert role not in (Role.VOTED, Role.PROSPECTIVE_VOTED) or self.voted is not None
        assert role is not Role.UNATTACHED or (self.voted is None and self.leader_id is None)
        assert role is not Role.CANDIDATE or self.voted == self.key
        assert role not in NOMINEES or self.may_stand
        assert self.log.last_epoch <= self.epoch
        assert self.log.start.offset <= self.high_watermark <= self.log.end_offset
        assert self.persisted == self.vote_state()
        if self.leadership is not None:
            assert self.log.last_epoch == self.epoch
            assert all(p.match_offset <= self.log.end_offset for p in self.progress_of_voters())
        self.log.validate()

    def progress_of_voters(self) -> list[Progress]:
        assert self.leadership is not None
        progress = self.leadership.progress
        return [progress[voter.key] for voter in self.voters.voters if voter.key in progress]
