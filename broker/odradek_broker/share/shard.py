"""The state of all share partitions of one partition of `__share_group_state`. Does no I/O.

Decisions check epochs and return records; only `replay` changes state. Two epochs fence: a leader
of a partition that was deposed (`leader_epoch`), and a leader that works with a state from before
an operator reset the offsets of the group (`state_epoch`).

Every `updates_per_snapshot` updates a snapshot replaces them. `redundant_offset` is where the log
may begin: before it there are only records that newer snapshots have made obsolete.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from odradek_broker.coordinator.record_schema import version_of
from odradek_broker.coordinator.result import NOTHING, CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.share import records
from odradek_broker.share.share_partition import StateBatch
from odradek_broker.share.state import UNINITIALIZED, Key, SharePartitionState
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import LeaderEpoch, Offset, ProducerId

logger = logging.getLogger(__name__)

# The texts of Kafka's errors.
FENCED_STATE = (
    "The share coordinator rejected the request because the share-group state epoch did not match."
)
FENCED_LEADER = "The leader epoch in the request is older than the epoch on the broker."
NOT_HOSTED = "This server does not host this topic-partition."
UNINITIALIZED_READ = "Read operation on uninitialized share partition not allowed."
UNINITIALIZED_WRITE = "Write operation on uninitialized share partition not allowed."
NEGATIVE_PARTITION = "The partition id cannot be a negative number."
NO_TOPIC = "The topic id cannot be null."
# A share partition without updates holds the start of the log back; from this many records on it
# gets a new snapshot.
COLD_RECORDS = 1000


@dataclass(slots=True)
class _Kept:
    state: SharePartitionState
    snapshot_offset: Offset
    updates: int = 0  # since the snapshot


class ShareShard:
    """Invariant: every key has a snapshot in the log, at `snapshot_offset`."""

    def __init__(
        self, updates_per_snapshot: Callable[[], int], cold_interval_ms: Callable[[], int]
    ) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._cold_interval_ms = cold_interval_ms
        self._kept: dict[Key, _Kept] = {}
        self._next_offset: Offset = 0
        self._cold_at_ms = float("inf")
        self.image: MetadataImage = EMPTY_IMAGE

    # --- queries ----------------------------------------------------------------------------------

    def get(self, key: Key) -> SharePartitionState | None:
        kept = self._kept.get(key)
        return kept.state if kept is not None else None

    @property
    def redundant_offset(self) -> Offset:
        return min(
            (kept.snapshot_offset for kept in self._kept.values()), default=self._next_offset
        )

    # --- decisions --------------------------------------------------------------------------------

    def initialize(
        self, key: Key, state_epoch: int, start_offset: Offset, now: Moment
    ) -> CoordinatorResult[None]:
        """Creates the state. A larger state epoch with a start offset replaces it: an operator
        moved the group. Unlike in Kafka a request that is repeated never resets a state in use."""
        self._check_key(key)
        self._check_exists(key)
        before = self.get(key)
        if before is not None:
            if before.state_epoch > state_epoch:
                raise KafkaError(ErrorCode.fenced_state_epoch, FENCED_STATE)
            if before.state_epoch == state_epoch or start_offset == UNINITIALIZED:
                return NOTHING  # the request arrived twice or late: the state is in use already
        state = SharePartitionState(
            state_epoch=state_epoch,
            leader_epoch=before.leader_epoch if before is not None else 0,
            snapshot_epoch=before.snapshot_epoch + 1 if before is not None else 0,
            start_offset=start_offset,
            complete=UNINITIALIZED if start_offset == UNINITIALIZED else 0,
            created_ms=now.wall_ms,
            written_ms=now.wall_ms,
        )
        return CoordinatorResult((records.snapshot_record(key, state),), None)

    def read(
        self, key: Key, leader_epoch: LeaderEpoch, now: Moment
    ) -> CoordinatorResult[SharePartitionState]:
        """A read by the leader of the partition, which fences older leaders from now on."""
        self._check_key(key)
        state = self.get(key)
        if state is None:
            raise KafkaError(ErrorCode.invalid_request, UNINITIALIZED_READ)
        if 0 <= leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.fenced_leader_epoch, FENCED_LEADER)
        if leader_epoch <= state.leader_epoch:
            return CoordinatorResult((), state)
        after = state.updated(leader_epoch, UNINITIALIZED, (), state.complete)
        return CoordinatorResult((self._record(key, after, UNINITIALIZED, (), now),), after)

    def summary(self, key: Key) -> SharePartitionState:
        self._check_key(key)
        return self.get(key) or SharePartitionState(leader_epoch=0)

    def write(
        self,
        key: Key,
        epochs: tuple[int, LeaderEpoch],
        start_offset: Offset,
        batches: Sequence[StateBatch],
        complete: int,
        now: Moment,
    ) -> CoordinatorResult[None]:
        """`epochs` are the state epoch and the leader epoch that the leader knows."""
        self._check_key(key)
        state_epoch, leader_epoch = epochs
        state = self.get(key)
        if state is None:
            raise KafkaError(ErrorCode.invalid_request, UNINITIALIZED_WRITE)
        if 0 <= leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.fenced_leader_epoch, FENCED_LEADER)
        if 0 <= state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.fenced_state_epoch, FENCED_STATE)
        new = tuple(batches)
        after = state.updated(leader_epoch, start_offset, new, complete)
        return CoordinatorResult((self._record(key, after, start_offset, new, now),), None)

    def delete(self, key: Key) -> CoordinatorResult[None]:
        self._check_key(key)
        if key not in self._kept:
            return NOTHING
        return CoordinatorResult((records.tombstone(key),), None)

    def _record(
        self,
        key: Key,
        after: SharePartitionState,
        start_offset: Offset,
        batches: tuple[StateBatch, ...],
        now: Moment,
    ) -> CoordinatorRecord:
        if self._kept[key].updates + 1 < self._updates_per_snapshot():
            return records.update_record(key, after, start_offset, batches)
        return self._snapshot(key, after, now)

    def _snapshot(self, key: Key, state: SharePartitionState, now: Moment) -> CoordinatorRecord:
        epoch = state.snapshot_epoch + 1
        state = replace(state, snapshot_epoch=epoch, written_ms=now.wall_ms)
        return records.snapshot_record(key, state)

    def _check_key(self, key: Key) -> None:
        if key.topic_id is None:
            raise KafkaError(ErrorCode.invalid_request, NO_TOPIC)
        if key.partition < 0:
            raise KafkaError(ErrorCode.invalid_request, NEGATIVE_PARTITION)

    def _check_exists(self, key: Key) -> None:
        topic = self.image.topics_by_id.get(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            raise KafkaError(ErrorCode.unknown_topic_or_partition, NOT_HOSTED)

    # --- the Shard protocol -----------------------------------------------------------------------

    def replay(self, offset: Offset, producer_id: ProducerId, record: CoordinatorRecord) -> None:  # noqa: ARG002
        self._next_offset = offset + 1
        try:
            kind = version_of(record.key)
            if kind not in records.KEYS:
                logger.warning(
                    "the record at offset %d is of an unknown type and is skipped", offset
                )
                return
            key = records.key_of(kind, record.key)
            if record.value is None:
                self._kept.pop(key, None)
            elif kind == records.SNAPSHOT_TYPE:
                self._kept[key] = _Kept(records.read_snapshot(record.value), offset)
            elif key in self._kept:
                kept = self._kept[key]
                kept.state = records.replay_update(kept.state, record.value)
                kept.updates += 1
        except DecodeError as error:
            logger.error("the record at offset %d is skipped: %s", offset, error)

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """No record of this topic is part of a transaction."""

    def loaded(
        self,
        leader_epoch: LeaderEpoch,  # noqa: ARG002
        image: MetadataImage,
        now: Moment,
    ) -> CoordinatorResult[None]:
        self.image = image
        self._cold_at_ms = now.monotonic_ms + self._cold_interval_ms()
        return self._of_deleted_topics()

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Nothing here depends on it."""

    def metadata_changed(self, delta: MetadataDelta, now: Moment) -> CoordinatorResult[None]:  # noqa: ARG002
        self.image = delta.after
        return self._of_deleted_topics() if delta.deleted_topics else NOTHING

    def _of_deleted_topics(self) -> CoordinatorResult[None]:
        gone = [key for key in self._kept if key.topic_id not in self.image.topics_by_id]
        return CoordinatorResult([records.tombstone(key) for key in gone], None, atomic=False)

    def next_deadline_ms(self) -> float:
        return self._cold_at_ms

    def expire(self, now: Moment) -> CoordinatorResult[None]:
        """New snapshots of share partitions whose last one is far behind the end of the log."""
        self._cold_at_ms = now.monotonic_ms + self._cold_interval_ms()
        cold = [
            self._snapshot(key, kept.state, now)
            for key, kept in self._kept.items()
            if self._next_offset - kept.snapshot_offset > COLD_RECORDS
        ]
        return CoordinatorResult(cold, None, volatile=True, atomic=False)
