"""SyncGroup, Heartbeat and LeaveGroup of a classic group. Does no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass

from odradek_broker.coordinator.result import DeferredResponse
from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.states import GroupState
from odradek_broker.group.turn import Turn
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request to a classic group."""

    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]  # by member id; only the leader sends them

    def contradicts(self, group: ClassicGroup) -> bool:
        """Whether the request names another protocol than the group has."""
        return (self.protocol_type is not None and self.protocol_type != group.protocol_type) or (
            self.protocol_name is not None and self.protocol_name != group.protocol
        )


def sync(group: ClassicGroup, turn: Turn, request: Sync) -> Struct | DeferredResponse:
    """The member's assignment, or a DeferredResponse for it. Raises KafkaError.

    The leader's assignments become a record. Nothing changes before it is replayed, so an
    assignment that is too large for the log leaves the group as it was.
    """
    if group.state is GroupState.DEAD:
        raise KafkaError(ErrorCode.coordinator_not_available)
    member_id, assignments = request.member_id, request.assignments
    member = group.validate_member(member_id, request.group_instance_id)
    if request.generation != group.generation:
        raise KafkaError(ErrorCode.illegal_generation)
    if request.contradicts(group):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.rebalance_in_progress)
    group.pending_sync.discard(member_id)
    if group.state is GroupState.STABLE:
        group.alive(turn, member)
        return sync_response(group, member.assignment)
    group.alive(turn, member)
    if member.deferred_sync is not None:
        turn.answer(member.deferred_sync, Struct(error_code=ErrorCode.unknown_member_id))
    if member_id != group.leader:
        member.deferred_sync = DeferredResponse()
        return member.deferred_sync
    member.deferred_sync = None
    turn.records.append(group.metadata_record(turn.now.wall_ms, assignments))
    for other in group.members.values():
        if other.deferred_sync is not None:
            assignment = assignments.get(other.member_id, b"")
            turn.answer(other.deferred_sync, sync_response(group, assignment))
    return sync_response(group, assignments.get(member_id, b""))


def sync_response(group: ClassicGroup, assignment: bytes) -> Struct:
    return Struct(
        error_code=ErrorCode.none,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def heartbeat(
    group: ClassicGroup,
    turn: Turn,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
) -> ErrorCode:
    """Whether the member has to rejoin; raises KafkaError if it is not a member (any more)."""
    if group.state is GroupState.DEAD:
        raise KafkaError(ErrorCode.coordinator_not_available)
    member = group.validate_member(member_id, group_instance_id)
    if generation != group.generation:
        raise KafkaError(ErrorCode.illegal_generation)
    group.alive(turn, member)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def leave(
    group: ClassicGroup, turn: Turn, member_id: str, group_instance_id: str | None
) -> ErrorCode:
    """Removes one member of a LeaveGroup request; its error code."""
    if group_instance_id is not None:
        holder = group.static.get(group_instance_id)
        if holder is None:
            return ErrorCode.unknown_member_id
        if member_id and holder != member_id:
            return ErrorCode.fenced_instance_id
        member_id = holder
    if member_id in group.pending:
        group.pending.remove(member_id)
        turn.timers.cancel(("session", group.group_id, member_id))
        group.complete_join_if_all_joined(turn)
        return ErrorCode.none
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    group.remove(turn, member)
    return ErrorCode.none
