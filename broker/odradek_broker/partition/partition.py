"""One partition that this broker leads: its log, its high watermark, and who waits for it.

Owned by the event loop. A produce request passes through in two steps, because the write is
deferred to the end of the loop pass (one writev per partition however many requests came):

    append()   validates, gives offsets, queues the bytes        during the pass
    settle()   after the writev: high watermark up, waiters told  at the end of the pass

Waiters for a write (acks=1) and for the high watermark (acks=all) stand in two queues, each
ordered by offset, so telling them is popping from the left.
"""

from collections import deque
from typing import TYPE_CHECKING, Protocol

from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from odradek_broker.log.log import Log
    from odradek_broker.log.types import AppendInfo
    from odradek_broker.partition.waiting import FetchTicket


class AckWaiter(Protocol):
    """Someone who waits for an append to be written or committed (a produce request)."""

    def acknowledged(self, index: int, error: ErrorCode) -> None:
        """The `index`-th append of the request is settled."""


class Partition:
    __slots__ = (
        "_commit_waiters",
        "_write_waiters",
        "fetch_waiters",
        "flushing",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: bytes, log: "Log") -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader: BrokerId = BrokerId(-1)
        self.leader_epoch: LeaderEpoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()
        self.fetch_waiters: set[FetchTicket] = set()
        self.flushing = False  # an fsync that acknowledgements wait for is under way
        self._write_waiters: deque[tuple[Offset, AckWaiter, int]] = deque()
        self._commit_waiters: deque[tuple[Offset, AckWaiter, int]] = deque()

    @property
    def high_watermark(self) -> Offset:
        """Consumers see nothing at or past it. Kept by the log, which checkpoints it."""
        return self.log.high_watermark

    def check_leader_epoch(self, current_leader_epoch: LeaderEpoch) -> None:
        """Refuses a client whose metadata is older or newer than ours (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.fenced_leader_epoch)
        raise KafkaError(ErrorCode.unknown_leader_epoch)

    def check_in_sync_replicas(self) -> None:
        """acks=all needs min.insync.replicas, but never more than the partition has replicas."""
        if len(self.isr) < min(self.log.config.min_insync_replicas, len(self.replicas)):
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, and "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )

    def update(self, registration: PartitionRegistration) -> None:
        """Takes over what the controller decided. Told more than once, it stays the same."""
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.replicas = registration.replicas
        self.isr = registration.isr
        self.settle(self.log.written_offset)

    def append(self, records: memoryview, now_ms: int) -> "AppendInfo":
        return self.log.append_as_leader(records, self.leader_epoch, now_ms)

    def when_written(self, offset: Offset, waiter: AckWaiter, index: int) -> None:
        self._write_waiters.append((offset, waiter, index))

    def when_committed(self, offset: Offset, waiter: AckWaiter, index: int) -> None:
        self._commit_waiters.append((offset, waiter, index))

    def settle(self, written: Offset) -> bool:
        """Everything before `written` is written: tells who waited. True if the HW moved."""
        waiters = self._write_waiters
        while waiters and waiters[0][0] < written:
            _, waiter, index = waiters.popleft()
            waiter.acknowledged(index, ErrorCode.none)
        # Alone in the ISR, so what is written is committed; followers come with replication.
        moved = written > self.log.high_watermark
        if moved:
            self.log.high_watermark = written
        waiters = self._commit_waiters
        while waiters and waiters[0][0] < written:
            _, waiter, index = waiters.popleft()
            waiter.acknowledged(index, ErrorCode.none)
        return moved

    def refuse_waiters(self, error: ErrorCode) -> None:
        """The data they wait for will not come: the disk failed or the partition left."""
        for waiters in (self._write_waiters, self._commit_waiters):
            while waiters:
                _, waiter, index = waiters.popleft()
                waiter.acknowledged(index, error)

    def last_fetchable_offset(self, read_committed: bool) -> Offset:
        """Readers see nothing at or past this offset."""
        if not read_committed:
            return self.high_watermark
        return min(self.high_watermark, self.log.last_stable_offset)
