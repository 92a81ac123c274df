"""One partition on this broker: its log, its role, and the requests that wait for it.

Owned by the event loop. It leads (`leading` is the leader's state), follows (`following` is the
follower's), or does neither, while the partition has no leader. A produce request passes
through in two steps, because the write is deferred to the end of the loop pass (one writev per
partition however many requests came):

    append()   validates, gives offsets, queues the bytes                   during the pass
    settle()   after the writev, and whenever the high watermark moved:     at the end of it
               completes the waiting requests

Waiters for a write (acks=1) and for the high watermark (acks=all) stand in two queues, each
ordered by offset, so telling them is popping from the left. Fetches wait in two sets: followers
want every write, consumers only what is committed.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from odradek_broker.log.producer_state import EPOCH_PER_TRANSACTION_FROM
from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.partition import leader_events, leader_state
from odradek_broker.partition.follower_state import FollowerState
from odradek_broker.partition.leader_state import LeaderState, Peers
from odradek_broker.partition.load import ReplicaLoad
from odradek_broker.partition.verification import Verifications
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition

if TYPE_CHECKING:
    from odradek_broker.log.log import Log
    from odradek_broker.log.producer_state import EndTxnMarker
    from odradek_broker.log.types import AppendInfo
    from odradek_broker.partition.waiting import ProgressListener
    from odradek_protocol.byte_range import ByteRange
    from odradek_protocol.varint import Buffer


WRITTEN: Final = ErrorCode.none  # cached: looking up an enum member is slow


class AckWaiter(Protocol):
    """Waits for an append to be written or committed (a produce request)."""

    def acknowledged(self, index: int, error: ErrorCode) -> None:
        """The `index`-th append of the request is settled."""


class Partition:
    """Invariants: at most one of `leading` and `following` is set, and its epoch is
    `leader_epoch`; a partition that does not lead has no append waiters."""

    __slots__ = (
        "_commit_waiters",
        "_consumer_listeners",
        "_deletion_waiters",
        "_follower_listeners",
        "_told",
        "_write_waiters",
        "flushing",
        "following",
        "leader",
        "leader_epoch",
        "leading",
        "load",
        "log",
        "registration",
        "topic_id",
        "topic_partition",
        "verifications",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: bytes, log: "Log") -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.load = ReplicaLoad()
        self.leader: BrokerId = BrokerId(-1)
        self.leader_epoch: LeaderEpoch = -1
        self.leading: LeaderState | None = None
        self.following: FollowerState | None = None
        self.registration: PartitionRegistration | None = None  # as last published
        self._consumer_listeners: set[ProgressListener] = set()
        self._follower_listeners: set[ProgressListener] = set()
        self.verifications = Verifications()  # of transactional batches to append
        self.flushing = False  # an fsync that acknowledgements wait for is under way
        self._write_waiters: deque[tuple[Offset, AckWaiter, int]] = deque()
        self._commit_waiters: deque[tuple[Offset, AckWaiter, int]] = deque()
        # DeleteRecords waits until no live replica has records before an offset.
        self._deletion_waiters: list[tuple[Offset, AckWaiter, int]] = []
        # Offsets that fetch waiters have seen: high watermark, written offset, log start.
        self._told = (log.high_watermark, log.written_offset, log.log_start_offset)

    # --- role ----------------------------------------------------------------------------

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        return self.registration.replicas if self.registration else ()

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """As far as this broker knows; the leader knows first."""
        if self.leading is not None:
            return self.leading.isr
        return self.registration.isr if self.registration else ()

    @property
    def partition_epoch(self) -> int:
        """The newest known one, from the metadata log or from the controller's response."""
        published = self.registration.partition_epoch if self.registration else -1
        return max(published, self.leading.partition_epoch if self.leading else -1)

    def directory_known_as(self, broker_id: BrokerId) -> UUID | None:
        """The log directory of this broker's replica, as registered in the metadata."""
        registration = self.registration
        if registration is None or broker_id not in registration.replicas:
            return None
        return registration.directories[registration.replicas.index(broker_id)]

    def lead(
        self, registration: PartitionRegistration, peers: Peers, now_ms: float
    ) -> leader_events.Instructions:
        """Become the leader, or the leader of a new epoch."""
        log = self.log
        self._leave_role()
        self._take(registration)
        # Every later epoch that a follower may ask about has to be known, also if nothing is
        # ever written in it.
        log.epochs.assign(registration.leader_epoch, log.log_end_offset)
        self.leading = LeaderState(
            peers,
            registration,
            epoch_start_offset=log.log_end_offset,
            log_end_offset=max(self.written_offset, log.high_watermark),
            high_watermark=log.high_watermark,
            min_insync_replicas=log.config.min_insync_replicas,
            now_ms=now_ms,
        )
        return leader_state.step(self.leading, leader_events.CheckIsr(), now_ms)

    def follow(self, registration: PartitionRegistration, backoff_max_ms: float) -> None:
        """Become a follower, or the follower of a new epoch; there may be no leader to follow."""
        self._leave_role()
        self._take(registration)
        self.refuse_waiters(ErrorCode.not_leader_or_follower)
        if registration.leader >= 0:
            self.following = FollowerState(
                registration.leader, registration.leader_epoch, backoff_max_ms
            )

    def take_no_role(self, registration: PartitionRegistration) -> None:
        """The log cannot be used; clients get the id of the new leader."""
        self.leading = self.following = None
        self._take(registration)

    def end_role(self, error: ErrorCode) -> None:
        """Neither lead nor follow any more; requests that wait get the error."""
        self.leading = self.following = None
        self.refuse_waiters(error)

    def _leave_role(self) -> None:
        self.log.write_pending()
        self.leading = self.following = None
        self.verifications.give_up(ErrorCode.not_leader_or_follower)

    def _take(self, registration: PartitionRegistration) -> None:
        self.registration = registration
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch

    def check_leader_epoch(self, current_leader_epoch: LeaderEpoch) -> None:
        """Refuses a client whose metadata is older or newer than ours (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.fenced_leader_epoch)
        raise KafkaError(ErrorCode.unknown_leader_epoch)

    def led_here(self, current_leader_epoch: LeaderEpoch = -1) -> LeaderState:
        """The leader's state; refuses if this broker does not lead, or in another epoch."""
        self.check_leader_epoch(current_leader_epoch)
        if self.leading is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        return self.leading

    @property
    def must_flush(self) -> bool:
        """Whether `flush.messages` asks for an fsync before anything more is acknowledged."""
        log = self.log
        return log.written_offset - log.recovery_point >= log.config.flush_messages

    @property
    def written_offset(self) -> Offset:
        """The end of what this replica may say it has."""
        return self.log.recovery_point if self.must_flush else self.log.written_offset

    # --- appending -----------------------------------------------------------------------

    def check_in_sync_replicas(self) -> None:
        """acks=all needs min.insync.replicas, but never more than the partition has replicas."""
        state = self.led_here()
        if state.under_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic_partition} has {len(state.isr)} in-sync replicas, and "
                f"min.insync.replicas is {state.min_insync_replicas}",
            )

    def append(self, records: "ByteRange | Buffer", now_ms: int) -> "AppendInfo":
        if self.leading is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        return self.log.append_as_leader(records, self.leader_epoch, now_ms)

    def append_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        marker: "EndTxnMarker",
        transaction_version: int,
        now_ms: int,
    ) -> "AppendInfo":
        """End a producer's transaction here. Batches of it that are not verified yet come late."""
        if self.leading is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        info = self.log.append_control(
            producer_id, producer_epoch, marker, self.leader_epoch, now_ms, transaction_version
        )
        # With an epoch per transaction the marker has the epoch of the next one, whose batches
        # may wait already: the coordinator confirms them when this one has ended everywhere.
        ended = producer_epoch - (transaction_version >= EPOCH_PER_TRANSACTION_FROM)
        self.verifications.end(producer_id, ended)
        return info

    def append_own(self, records: bytes, now_ms: int) -> "AppendInfo":
        """As `append`, for batches that this broker built itself: their contents are trusted."""
        if self.leading is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        info = self.log.append_as_leader(records, self.leader_epoch, now_ms, from_client=False)
        self.load.appended(len(records), info.last_offset - info.first_offset + 1)
        return info

    def when_written(self, offset: Offset, waiter: AckWaiter, index: int) -> None:
        self._write_waiters.append((offset, waiter, index))

    def when_committed(self, offset: Offset, waiter: AckWaiter, index: int) -> None:
        self._commit_waiters.append((offset, waiter, index))

    def when_deleted(self, offset: Offset, waiter: AckWaiter, index: int) -> None:
        """Acknowledged when the log starts at `offset` or later on all live replicas."""
        self._deletion_waiters.append((offset, waiter, index))

    def give_up_deletion(self, waiter: AckWaiter) -> None:
        self._deletion_waiters = [one for one in self._deletion_waiters if one[1] is not waiter]

    @property
    def awaits_deletion(self) -> bool:
        return bool(self._deletion_waiters)

    def subscribe(self, listener: "ProgressListener", *, follower: bool) -> None:
        """A reader waits for progress; it stays subscribed until it unsubscribes."""
        if follower:
            self._follower_listeners.add(listener)
        else:
            self._consumer_listeners.add(listener)

    def unsubscribe(self, listener: "ProgressListener") -> None:
        self._follower_listeners.discard(listener)
        self._consumer_listeners.discard(listener)

    # --- answering waiters ----------------------------------------------------------------

    def settle(self) -> None:
        """Acknowledge producers whose records are written, or committed, by now."""
        state = self.leading
        if state is None:
            return
        waiters = self._write_waiters
        while waiters and waiters[0][0] < state.log_end_offset:
            _, waiter, index = waiters.popleft()
            waiter.acknowledged(index, WRITTEN)
        waiters = self._commit_waiters
        while waiters and waiters[0][0] < state.high_watermark:
            _, waiter, index = waiters.popleft()
            waiter.acknowledged(index, state.commit_error())
        if self._deletion_waiters:
            self._settle_deletions(state.low_watermark(self.log.log_start_offset))

    def _settle_deletions(self, low_watermark: Offset) -> None:
        waiting, self._deletion_waiters = self._deletion_waiters, []
        for offset, waiter, index in waiting:
            if offset <= low_watermark:
                waiter.acknowledged(index, ErrorCode.none)
            else:
                self._deletion_waiters.append((offset, waiter, index))

    def take_awake(self) -> "set[ProgressListener]":
        """Waiting fetches for which high watermark, written offset or log start have changed."""
        log = self.log
        high_watermark, told = log.high_watermark, self._told
        now = (high_watermark, log.written_offset, log.log_start_offset)
        if now == told:
            return set()
        self._told = now
        if high_watermark != told[0] and self._consumer_listeners:
            return self._consumer_listeners | self._follower_listeners
        # A waiting follower gets a new high watermark too, because its consumers wait for it, and
        # a new log start, because it deletes as well.
        return self._follower_listeners

    def all_fetch_waiters(self) -> "set[ProgressListener]":
        return self._consumer_listeners | self._follower_listeners

    def refuse_waiters(self, error: ErrorCode) -> None:
        """The data they wait for will not come: the disk failed or the partition left."""
        self.verifications.give_up(error)
        waiting = [*self._write_waiters, *self._commit_waiters, *self._deletion_waiters]
        self._write_waiters.clear()
        self._commit_waiters.clear()
        self._deletion_waiters.clear()
        for _, waiter, index in waiting:
            waiter.acknowledged(index, error)

    # --- reading -------------------------------------------------------------------------

    @property
    def high_watermark(self) -> Offset:
        """Consumers see nothing at or past it. Kept by the log, which checkpoints it."""
        return self.log.high_watermark

    def last_fetchable_offset(self, read_committed: bool) -> Offset:
        """Readers see nothing at or past this offset."""
        if not read_committed:
            return self.high_watermark
        return min(self.high_watermark, self.log.last_stable_offset)

    def validate(self) -> None:
        """Check the invariants; tests call it after each step."""
        assert self.leading is None or self.following is None
        for state in (self.leading, self.following):
            assert state is None or state.leader_epoch == self.leader_epoch
        if self.leading is not None:
            self.leading.validate()
            assert self.leading.high_watermark == self.log.high_watermark
        else:
            assert not self._write_waiters
            assert not self._commit_waiters
