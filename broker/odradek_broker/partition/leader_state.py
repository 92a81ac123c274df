"""The leader's side of replication: progress of its followers, the ISR, the high watermark.

Does no I/O. `partition/partition.py` drives it: `step(state, event, now_ms)` gives instructions,
which the driver carries out in their order. `now_ms` comes from a monotonic clock.

A follower's fetch from offset 120 is an acknowledgement: it has everything below 120, and has
it from this leader, because the fetch carries the leader's epoch and did not diverge. The high
watermark is what all in-sync replicas have:

    leader 1 wrote up to 130 ─┐
    follower 2 fetched 120 ───┼── in sync {1, 2}: high watermark 120
    follower 3 fetched 90 ────┘   3 may join the ISR when it has reached 120

The ISR changes only when the controller agrees (AlterPartition). Until it answers, the leader
counts every replica that may be in the ISR, the *maximal* ISR: the old members and the proposed
ones. So whatever the controller decides, its ISR has all that is below the high watermark
(StrongIsr in the TLA+ model of KIP-320). The rules, each of which is a planted bug in the
simulation:

1. An acknowledgement counts in the leader epoch in which it was given; a new epoch starts with
   none, so the high watermark waits until each in-sync follower has fetched in it.
2. A shrink is in force only when the controller has accepted it; an expansion counts at once.
3. A replica is proposed only when it has reached the high watermark and the offset at which
   this leader's epoch began, only in the incarnation (broker epoch) that fetched, and only while
   it fetches.
4. The high watermark never goes back, and stays while the ISR is below min.insync.replicas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.partition.leader_events import (
    AdvanceHighWatermark,
    CheckIsr,
    Event,
    FollowerFetched,
    FollowerStopped,
    Instructions,
    MinIsrChanged,
    PartitionChanged,
    Proposal,
    ProposalAnswered,
    ProposalLost,
    Propose,
    Written,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset

UNKNOWN_OFFSET: Offset = -1
NEVER_MS: Final = float("-inf")
# An AlterPartition request whose answer was lost may still lie in a socket of the controller.
# For this long after it, a refusal of a later attempt does not prove that it was not carried
# out. Much longer than the sender's timeout; in the meantime the high watermark is careful.
LOST_PROPOSAL_MS: Final = 20_000.0


@dataclass(slots=True)
class Peers:
    """Facts about this broker and the others; one object for all its partitions."""

    node_id: BrokerId
    broker_epoch: int = -1
    lag_time_max_ms: float = 30_000.0
    registered: Mapping[BrokerId, int] = field(default_factory=dict)  # broker epochs
    # Neither fenced nor about to stop: these may join an ISR.
    eligible: frozenset[BrokerId] = frozenset()


class Follower:
    """The progress that one follower acknowledged in this leader epoch."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetched_leader_end",
        "fetched_ms",
        "log_end_offset",
        "log_start_offset",
        "stopped",
    )

    def __init__(self, caught_up_ms: float) -> None:
        self.broker_epoch = -1  # of the incarnation that fetched last
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = caught_up_ms  # when it last had all that there was
        self.fetched_ms = NEVER_MS
        self.fetched_leader_end = UNKNOWN_OFFSET  # the leader's end at `fetched_ms`
        self.stopped = False  # it does not fetch this partition at the moment

    def caught_up(self, leader_end_offset: Offset, now_ms: float, lag_max_ms: float) -> bool:
        return self.log_end_offset >= leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms


class LeaderState:
    """One leader in one epoch. Invariants (`validate`):

    the leader is in the ISR, and the ISR among the replicas
    maximal_isr = isr, and those of the pending proposal
    a pending proposal is for the partition epoch that we know
    high_watermark <= log_end_offset
    """

    __slots__ = (
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "isr",
        "leader_epoch",
        "log_end_offset",
        "lost_ms",
        "maximal_isr",
        "min_insync_replicas",
        "partition_epoch",
        "peers",
        "pending",
        "replicas",
    )

    def __init__(
        self,
        peers: Peers,
        registration: PartitionRegistration,
        *,
        epoch_start_offset: Offset,
        log_end_offset: Offset,
        high_watermark: Offset,
        min_insync_replicas: int,
        now_ms: float,
    ) -> None:
        self.peers = peers
        self.leader_epoch: LeaderEpoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        self.isr = registration.isr  # as the controller committed it
        self.maximal_isr = frozenset(self.isr)
        self.epoch_start_offset = epoch_start_offset
        self.log_end_offset = log_end_offset  # of what counts as written here
        self.high_watermark = high_watermark
        self.min_insync_replicas = min_insync_replicas
        self.pending: Proposal | None = None
        self.lost_ms = NEVER_MS  # when an attempt at `pending` was last lost
        # A member of the ISR gets the benefit of the doubt for as long as a laggard would.
        self.followers = {
            replica: Follower(now_ms if replica in self.isr else NEVER_MS)
            for replica in self.replicas
            if replica != peers.node_id
        }

    @property
    def effective_min_isr(self) -> int:
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def under_min_isr(self) -> bool:
        return len(self.isr) < self.effective_min_isr

    def misses_follower(self, now_ms: float, silent_ms: float) -> bool:
        """Whether a follower that every commit needs has not fetched for this long."""
        oldest_ms = now_ms - silent_ms
        return any(
            max(follower.fetched_ms, follower.caught_up_ms) < oldest_ms
            for replica, follower in self.followers.items()
            if replica in self.maximal_isr
        )

    def commit_error(self) -> ErrorCode:
        """The answer of a write with acks=all when the high watermark has passed it."""
        if len(self.maximal_isr) < self.effective_min_isr:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    def low_watermark(self, log_start_offset: Offset) -> Offset:
        """No live replica has records before it (DeleteRecords waits for that)."""
        live = self.peers.eligible
        starts = [f.log_start_offset for id_, f in self.followers.items() if id_ in live]
        return min([log_start_offset, *starts])

    def validate(self) -> None:
        """Check the invariants; tests call it after each step."""
        node_id = self.peers.node_id
        assert node_id in self.isr
        assert set(self.isr) <= set(self.replicas)
        assert set(self.followers) == set(self.replicas) - {node_id}
        proposed = self.pending.isr_ids if self.pending else ()
        assert self.maximal_isr == {*self.isr, *proposed}
        if self.pending is not None:
            assert self.pending.partition_epoch == self.partition_epoch
            assert self.pending.leader_epoch == self.leader_epoch
            assert node_id in proposed
        assert self.high_watermark <= self.log_end_offset


def step(state: LeaderState, event: Event, now_ms: float) -> Instructions:
    """Raises KafkaError for a fetch by a replica that is refused."""
    return _STEP[type(event)](state, event, now_ms)


# ---------------------------------------------------------------- progress


def _written(state: LeaderState, event: Written, now_ms: float) -> Instructions:
    if event.log_end_offset <= state.log_end_offset:
        return ()
    for follower in state.followers.values():
        # It had everything until now. In a fetch session an idle follower sends nothing, so
        # its last fetch may be long ago.
        if follower.log_end_offset >= state.log_end_offset:
            follower.caught_up_ms = now_ms
    state.log_end_offset = event.log_end_offset
    return _advance(state, now_ms)


def _fetched(state: LeaderState, event: FollowerFetched, now_ms: float) -> Instructions:
    follower = state.followers.get(event.replica_id)
    if follower is None:
        # The epoch is right, so the follower may know of a reassignment that we do not know
        # yet; this answer makes it ask again.
        raise KafkaError(ErrorCode.unknown_leader_epoch)
    epoch = event.broker_epoch
    newest = max(follower.broker_epoch, state.peers.registered.get(event.replica_id, -1))
    if 0 <= epoch < newest:
        raise KafkaError(ErrorCode.not_leader_or_follower, "a fetch from before its restart")
    offset = event.fetch_offset
    if offset >= event.leader_end_offset:
        follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
    elif offset >= follower.fetched_leader_end >= 0:
        # It has now all that there was at its last fetch: so it lags by less than a fetch.
        follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
    moved = offset != follower.log_end_offset
    follower.broker_epoch = epoch
    follower.log_end_offset = offset
    follower.log_start_offset = event.log_start_offset
    follower.fetched_ms = now_ms
    follower.stopped = False
    follower.fetched_leader_end = max(follower.fetched_leader_end, event.leader_end_offset)
    proposed: Instructions = ()
    if state.pending is None and event.replica_id not in state.maximal_isr:
        proposed = _maybe_expand(state, now_ms)
    return proposed + _advance(state, now_ms) if moved else proposed


def _stopped(state: LeaderState, event: FollowerStopped, _: float) -> Instructions:
    follower = state.followers.get(event.replica_id)
    if follower is not None:
        follower.stopped = True
    return ()


def _advance(state: LeaderState, now_ms: float) -> Instructions:
    """Move the high watermark to the lowest end of the logs that are, or may be, in sync."""
    if state.under_min_isr:
        return ()
    lowest = state.log_end_offset
    maximal = state.maximal_isr
    for replica, follower in state.followers.items():
        if follower.log_end_offset < lowest and (
            replica in maximal or _about_to_join(state, replica, follower, now_ms)
        ):
            lowest = follower.log_end_offset
    if lowest <= state.high_watermark:
        return ()
    state.high_watermark = lowest
    return (AdvanceHighWatermark(lowest),)


def _about_to_join(
    state: LeaderState, replica: BrokerId, follower: Follower, now_ms: float
) -> bool:
    """If the high watermark ran away from such a one, it could never join the ISR."""
    peers = state.peers
    return follower.caught_up(state.log_end_offset, now_ms, peers.lag_time_max_ms) and _eligible(
        state, replica, follower
    )


def _eligible(state: LeaderState, replica: BrokerId, follower: Follower) -> bool:
    """Alive, fetching, and the incarnation that is registered is the one that fetched.

    One that stopped fetching may have had everything until a moment ago, and would hold up every
    commit until it is found to lag.
    """
    peers = state.peers
    return (
        replica in peers.eligible
        and not follower.stopped
        and peers.registered.get(replica) == follower.broker_epoch
    )


# ---------------------------------------------------------------- the ISR


def _check_isr(state: LeaderState, _: CheckIsr, now_ms: float) -> Instructions:
    if state.pending is not None:
        return ()
    lag_max_ms = state.peers.lag_time_max_ms
    kept = tuple(
        replica
        for replica in state.isr
        if replica == state.peers.node_id
        or state.followers[replica].caught_up(state.log_end_offset, now_ms, lag_max_ms)
    )
    if kept != state.isr:
        return _propose(state, kept)
    return _maybe_expand(state, now_ms) + _advance(state, now_ms)


def _maybe_expand(state: LeaderState, now_ms: float) -> Instructions:
    """Propose all that have reached the high watermark and the start of our epoch."""
    reached = max(state.high_watermark, state.epoch_start_offset)
    lag_max_ms = state.peers.lag_time_max_ms
    joining = tuple(
        replica
        for replica, follower in state.followers.items()
        if follower.log_end_offset >= reached
        and replica not in state.isr
        and follower.caught_up(state.log_end_offset, now_ms, lag_max_ms)
        and _eligible(state, replica, follower)
    )
    return _propose(state, state.isr + joining) if joining else ()


def _propose(state: LeaderState, isr: tuple[BrokerId, ...]) -> Instructions:
    assert state.pending is None, "one proposal at a time"
    peers = state.peers
    members = tuple(
        (
            replica,
            peers.broker_epoch
            if replica == peers.node_id
            else state.followers[replica].broker_epoch,
        )
        for replica in isr
    )
    proposal = Proposal(state.leader_epoch, state.partition_epoch, members)
    state.pending = proposal
    state.lost_ms = NEVER_MS
    state.maximal_isr = frozenset((*state.isr, *isr))
    return (Propose(proposal),)


def _committed(state: LeaderState, isr: tuple[BrokerId, ...], partition_epoch: int) -> None:
    """The controller's ISR; no proposal for an older partition epoch can succeed any more."""
    state.isr = isr
    state.partition_epoch = partition_epoch
    state.pending = None
    state.maximal_isr = frozenset(isr)


def _partition_changed(state: LeaderState, event: PartitionChanged, now_ms: float) -> Instructions:
    # The same partition epoch is no change. It must not undo a proposal that was made since,
    # because the controller may be accepting that right now.
    if event.partition_epoch <= state.partition_epoch:
        return ()
    state.replicas = event.replicas
    for replica in event.replicas:
        if replica != state.peers.node_id and replica not in state.followers:
            state.followers[replica] = Follower(now_ms if replica in event.isr else NEVER_MS)
    for replica in set(state.followers) - set(event.replicas):
        del state.followers[replica]
    _committed(state, event.isr, event.partition_epoch)
    return _maybe_expand(state, now_ms) + _advance(state, now_ms)


def _min_isr_changed(state: LeaderState, event: MinIsrChanged, now_ms: float) -> Instructions:
    state.min_insync_replicas = event.min_insync_replicas
    return _advance(state, now_ms)


# The controller refused, or made a change that we will get
# through the metadata log: the proposal stays pending until then.
_AWAIT_METADATA: Final = frozenset(
    [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    ]
)
# The controller says that the partition epoch is right and that it changed nothing.
_NOT_DONE: Final = frozenset([ErrorCode.operation_not_attempted, ErrorCode.ineligible_replica])


def _answered(state: LeaderState, event: ProposalAnswered, now_ms: float) -> Instructions:
    if event.proposal != state.pending:
        return ()
    error = event.error
    if error is ErrorCode.none:
        if event.leader_epoch != state.leader_epoch:
            return ()  # metadata will say more
        # An equal partition epoch: our proposal changed nothing.
        if event.partition_epoch >= state.partition_epoch:
            _committed(state, event.isr, event.partition_epoch)
        return _maybe_expand(state, now_ms) + _advance(state, now_ms)
    if error in _AWAIT_METADATA:
        return ()
    if error in _NOT_DONE and now_ms - state.lost_ms > LOST_PROPOSAL_MS:
        state.pending = None
        state.maximal_isr = frozenset(state.isr)
        return _advance(state, now_ms)
    return (Propose(event.proposal, retry=True),)


def _lost(state: LeaderState, event: ProposalLost, now_ms: float) -> Instructions:
    if event.proposal != state.pending:
        return ()
    state.lost_ms = now_ms
    return (Propose(event.proposal, retry=True),)


_STEP: dict[type, Callable[[LeaderState, Any, float], Instructions]] = {
    Written: _written,
    FollowerFetched: _fetched,
    FollowerStopped: _stopped,
    CheckIsr: _check_isr,
    PartitionChanged: _partition_changed,
    MinIsrChanged: _min_isr_changed,
    ProposalAnswered: _answered,
    ProposalLost: _lost,
}
