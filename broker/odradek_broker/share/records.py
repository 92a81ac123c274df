"""Records of `__share_group_state` in Apache Kafka's encoding, so that its tools read them.

Type 0 is a snapshot: the whole state of a share partition. Type 1 is an update: what changed since
the snapshot with the same snapshot epoch. The topic is not compacted, because updates of one key
add up; the shard has everything before the oldest snapshot that it needs deleted.
"""

from odradek_broker.coordinator.record_schema import F, RecordSchema
from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.share.share_partition import StateBatch
from odradek_broker.share.state import Key, SharePartitionState
from odradek_protocol.messages.struct import Struct

SNAPSHOT_TYPE, UPDATE_TYPE = 0, 1
VALUE_VERSION = 0

_KEY = (F("group_id", "string"), F("topic_id", "uuid"), F("partition", "int32"))
_BATCHES = F(
    "state_batches",
    "StateBatch",
    items=(
        F("first_offset", "int64"),
        F("last_offset", "int64"),
        F("delivery_state", "int8"),
        F("delivery_count", "int16"),
    ),
)
_COMPLETE = F("delivery_complete_count", "int32", tag=0, default=-1)
KEYS = {
    SNAPSHOT_TYPE: RecordSchema("ShareSnapshotKey", range(0, 1), _KEY),
    UPDATE_TYPE: RecordSchema("ShareUpdateKey", range(1, 2), _KEY),
}
SNAPSHOT = RecordSchema(
    "ShareSnapshotValue",
    range(0, 1),
    (
        F("snapshot_epoch", "int32"),
        F("state_epoch", "int32"),
        F("leader_epoch", "int32"),
        F("start_offset", "int64"),
        F("create_timestamp", "int64"),
        F("write_timestamp", "int64"),
        _BATCHES,
        _COMPLETE,
    ),
    flexible_from=0,
)
UPDATE = RecordSchema(
    "ShareUpdateValue",
    range(0, 1),
    (
        F("snapshot_epoch", "int32"),
        F("leader_epoch", "int32"),
        F("start_offset", "int64"),
        _BATCHES,
        _COMPLETE,
    ),
    flexible_from=0,
)


def key_of(record_type: int, data: bytes) -> Key:
    read = KEYS[record_type].read(data)
    return Key(read.group_id, read.topic_id, read.partition)


def snapshot_record(key: Key, state: SharePartitionState) -> CoordinatorRecord:
    value = Struct(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=_structs(state.batches),
        delivery_complete_count=state.complete,
    )
    return CoordinatorRecord(_key(SNAPSHOT_TYPE, key), SNAPSHOT.write(VALUE_VERSION, value))


def update_record(
    key: Key,
    after: SharePartitionState,
    start_offset: int,
    batches: tuple[StateBatch, ...],
) -> CoordinatorRecord:
    """`after` is the state with the update; `start_offset` is -1 if it stays."""
    value = Struct(
        snapshot_epoch=after.snapshot_epoch,
        leader_epoch=after.leader_epoch,
        start_offset=start_offset,
        state_batches=_structs(batches),
        delivery_complete_count=after.complete,
    )
    return CoordinatorRecord(_key(UPDATE_TYPE, key), UPDATE.write(VALUE_VERSION, value))


def tombstone(key: Key) -> CoordinatorRecord:
    return CoordinatorRecord(_key(SNAPSHOT_TYPE, key), None)


def read_snapshot(data: bytes) -> SharePartitionState:
    read = SNAPSHOT.read(data)
    return SharePartitionState(
        state_epoch=read.state_epoch,
        leader_epoch=read.leader_epoch,
        snapshot_epoch=read.snapshot_epoch,
        start_offset=read.start_offset,
        batches=_batches(read.state_batches),
        complete=read.delivery_complete_count,
        created_ms=read.create_timestamp,
        written_ms=read.write_timestamp,
    )


def replay_update(before: SharePartitionState, data: bytes) -> SharePartitionState:
    read = UPDATE.read(data)
    if read.snapshot_epoch != before.snapshot_epoch:
        return before  # of an older snapshot: it is in the newer one
    return before.updated(
        read.leader_epoch,
        read.start_offset,
        _batches(read.state_batches),
        read.delivery_complete_count,
    )


def _key(record_type: int, key: Key) -> bytes:
    return KEYS[record_type].write(
        record_type,
        Struct(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
    )


def _structs(batches: tuple[StateBatch, ...]) -> list[Struct]:
    return [
        Struct(first_offset=b.first, last_offset=b.last, delivery_state=b.state,
               delivery_count=b.deliveries)
        for b in batches
    ]  # fmt: skip


def _batches(read: object) -> tuple[StateBatch, ...]:
    assert isinstance(read, list | tuple)
    return tuple(
        StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in read
    )
