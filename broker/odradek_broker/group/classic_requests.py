"""Requests of the members of classic groups as decisions on a shard. Does no I/O."""

from collections.abc import Sequence

from odradek_broker.coordinator.result import CoordinatorResult, Moment
from odradek_broker.group import classic_sync
from odradek_broker.group.classic_group import ClassicGroup, join_error
from odradek_broker.group.classic_join import Join, join
from odradek_broker.group.consumer import requests as consumer_requests
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.shard import GroupShard
from odradek_broker.group.streams.group import StreamsGroup
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct


def join_group(shard: GroupShard, now: Moment, request: Join) -> CoordinatorResult[Struct]:
    """The first member that joins without a member id creates the group."""
    group = shard.groups.get(request.group_id)
    if group is None:
        if request.member_id:
            return CoordinatorResult((), join_error(request.member_id, ErrorCode.unknown_member_id))
        group = shard.groups[request.group_id] = ClassicGroup(request.group_id)
    if isinstance(group, ConsumerGroup):
        return consumer_requests.classic_join(shard, now, group, request)
    if isinstance(group, StreamsGroup) and group.is_empty and not request.member_id:
        # An application that goes back to the classic protocol. The client tries again; by then the
        # records are replayed.
        turn = shard.turn(now)
        turn.records.extend(group.tombstones())
        again = join_error(request.member_id, ErrorCode.coordinator_load_in_progress)
        return turn.result(again, volatile=False)
    if not isinstance(group, ClassicGroup):  # a group of another kind, or with members
        code = ErrorCode.inconsistent_group_protocol
        return CoordinatorResult((), join_error(request.member_id, code))
    turn = shard.turn(now)
    answer = join(group, turn, request)
    shard.forget_if_unused(request.group_id)
    return turn.result(answer, volatile=True)


def sync_group(shard: GroupShard, now: Moment, request: Struct) -> CoordinatorResult[Struct]:
    """Raises KafkaError if the member may not sync."""
    consumers = shard.groups.get(request.group_id)
    if isinstance(consumers, ConsumerGroup):
        return consumer_requests.classic_sync(shard, now, consumers, request)
    group = shard.classic(request.group_id, unknown=ErrorCode.unknown_member_id)
    turn = shard.turn(now)
    sync = classic_sync.Sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {one.member_id: one.assignment for one in request.assignments},
    )
    return turn.result(classic_sync.sync(group, turn, sync), volatile=False)


def heartbeat(shard: GroupShard, now: Moment, request: Struct) -> CoordinatorResult[ErrorCode]:
    """Raises KafkaError if it is not a member."""
    consumers = shard.groups.get(request.group_id)
    if isinstance(consumers, ConsumerGroup):
        return consumer_requests.classic_heartbeat(shard, now, consumers, request)
    group = shard.classic(request.group_id, unknown=ErrorCode.unknown_member_id)
    turn = shard.turn(now)
    error = classic_sync.heartbeat(
        group, turn, request.member_id, request.group_instance_id, request.generation_id
    )
    return turn.result(error, volatile=True)


def leave_group(
    shard: GroupShard, now: Moment, group_id: str, members: Sequence[tuple[str, str | None]]
) -> CoordinatorResult[list[ErrorCode]]:
    """`members` are member ids and instance ids; an error code for each."""
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return consumer_requests.classic_leave(shard, now, group, list(members))
    if not isinstance(group, ClassicGroup):
        return CoordinatorResult((), [ErrorCode.unknown_member_id] * len(members))
    turn = shard.turn(now)
    codes = [classic_sync.leave(group, turn, *member) for member in members]
    shard.forget_if_unused(group_id)
    return turn.result(codes, volatile=True)
