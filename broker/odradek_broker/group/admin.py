"""Describe, list and delete groups. Does no I/O."""

from collections.abc import Collection

from odradek_broker.coordinator.result import CoordinatorResult, Moment
from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.records import offset_tombstone
from odradek_broker.group.shard import GroupShard
from odradek_broker.group.states import GroupState
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

DESCRIBE_NOT_FOUND_SINCE = 6


def describe(shard: GroupShard, group_id: str, version: int) -> Struct:
    """The group for DescribeGroups; old versions report an unknown group as Dead."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        unknown = version >= DESCRIBE_NOT_FOUND_SINCE
        kind = "not found" if group is None else "is not a classic group"
        return Struct(
            error_code=ErrorCode.group_id_not_found if unknown else ErrorCode.none,
            error_message=f"Group {group_id} {kind}." if unknown else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=[],
        )
    stable = group.state is GroupState.STABLE
    return Struct(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            Struct(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ],
    )


def list_groups(shard: GroupShard, states: Collection[str], types: Collection[str]) -> list[Struct]:
    """Groups with one of these states and types (in lower case); empty means any."""
    return [
        Struct(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state_name,
            group_type=group.type_name.lower(),
        )
        for group in shard.groups.values()
        if (not states or group.state_name.lower() in states)
        and (not types or group.type_name.lower() in types)
    ]


def delete(shard: GroupShard, now: Moment, group_id: str) -> CoordinatorResult[ErrorCode]:
    """Deletes the group and its offsets; KafkaError unless it exists and has no members."""
    group = shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.group_id_not_found)
    if not group.is_empty:
        raise KafkaError(ErrorCode.non_empty_group)
    turn = shard.turn(now)
    keys = {*shard.offsets.of_group(group_id), *shard.offsets.unstable_keys(group_id)}
    turn.records.extend(offset_tombstone(group_id, key) for key in sorted(keys))
    turn.records.extend(group.tombstones())
    turn.metrics.offset_deletions += len(keys)
    return turn.result(ErrorCode.none, volatile=False, atomic=False)
