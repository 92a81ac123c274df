"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete as decisions. Does no I/O.

The handlers have checked that the topics of a request exist.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from odradek_broker.coordinator.result import CoordinatorResult, Moment
from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.records import (
    Key,
    OffsetAndMetadata,
    offset_commit_record,
    offset_tombstone,
)
from odradek_broker.group.shard import GroupShard
from odradek_protocol.error_codes import ErrorCode, KafkaError

T = TypeVar("T")

Decide = Callable[[GroupShard, Moment], CoordinatorResult[T]]


@dataclass(frozen=True, slots=True)
class CommitRequest:
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    offsets: Sequence[tuple[Key, int, int, str | None]]  # key, offset, leader epoch, metadata
    transactional: bool = False
    retention_ms: int = -1  # from old clients; -1: the broker's setting


def commit(
    shard: GroupShard, now: Moment, request: CommitRequest
) -> CoordinatorResult[list[ErrorCode]]:
    """An error code per offset. KafkaError if the member may not commit at all."""
    turn = shard.turn(now)
    group = shard.groups.get(request.group_id)
    check = None
    if group is not None:
        check = group.validate_offset_commit(
            turn,
            request.member_id,
            request.group_instance_id,
            request.generation,
            transactional=request.transactional,
        )
    elif request.generation >= 0:
        raise KafkaError(ErrorCode.group_id_not_found)
    expires_ms = now.wall_ms + request.retention_ms if request.retention_ms >= 0 else -1
    codes = []
    for key, offset, leader_epoch, metadata in request.offsets:
        if len((metadata or "").encode()) > turn.config.offset_metadata_max_bytes:
            codes.append(ErrorCode.offset_metadata_too_large)
            continue
        if check is not None and (code := check(shard.image, key)) is not ErrorCode.none:
            codes.append(code)
            continue
        value = OffsetAndMetadata(offset, leader_epoch, metadata or "", now.wall_ms, expires_ms)
        turn.records.append(offset_commit_record(request.group_id, key, value))
        codes.append(ErrorCode.none)
    turn.metrics.offset_commits += len(turn.records)
    return turn.result(codes, volatile=False)


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    key: Key
    value: OffsetAndMetadata | None
    error: ErrorCode = ErrorCode.none


def fetch(
    shard: GroupShard,
    group_id: str,
    keys: Sequence[Key] | None,
    *,
    member_id: str | None = None,
    member_epoch: int = -1,
    require_stable: bool = False,
) -> list[FetchedOffset]:
    """The offsets of these partitions, or all offsets of the group (`keys` is None)."""
    group = shard.groups.get(group_id)
    if group is not None:
        group.validate_offset_fetch(member_id, member_epoch)
    offsets = shard.offsets  # an unknown group has no offsets; that is not an error
    if keys is None:
        keys = list(offsets.of_group(group_id))
    found = []
    for key in keys:
        if require_stable and offsets.is_unstable(group_id, key):
            found.append(FetchedOffset(key, None, ErrorCode.unstable_offset_commit))
        else:
            found.append(FetchedOffset(key, offsets.get(group_id, key)))
    return found


def delete(
    shard: GroupShard, now: Moment, group_id: str, keys: Sequence[Key]
) -> CoordinatorResult[list[ErrorCode]]:
    """An error code per offset: GROUP_SUBSCRIBED_TO_TOPIC for those in use."""
    turn = shard.turn(now)
    group = shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.group_id_not_found)
    if isinstance(group, ClassicGroup) and not group.is_empty and group.protocol_type != "consumer":
        # It is unknown which topics its members subscribe to.
        raise KafkaError(ErrorCode.non_empty_group)
    codes = []
    for key in keys:
        if group.is_subscribed(key[0]):
            codes.append(ErrorCode.group_subscribed_to_topic)
            continue
        codes.append(ErrorCode.none)
        if shard.offsets.get(group_id, key) or shard.offsets.is_unstable(group_id, key):
            turn.records.append(offset_tombstone(group_id, key))
            turn.metrics.offset_deletions += 1
    return turn.result(codes, volatile=False, atomic=False)
