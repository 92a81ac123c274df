"""JoinGroup of a classic group. Does no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from odradek_broker.coordinator.result import DeferredResponse
from odradek_broker.group.classic_group import ClassicGroup, join_error
from odradek_broker.group.classic_member import Member, Protocol, most_voted_protocol
from odradek_broker.group.states import GroupState
from odradek_broker.group.turn import Turn
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

# From this version on a dynamic member first gets its id, and joins with it (KIP-394): otherwise a
# client that times out and retries would leave a member behind each time.
MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request, with its client."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[Protocol]
    version: int

    @property
    def names(self) -> set[str]:
        return {protocol.name for protocol in self.protocols}


def join(group: ClassicGroup, turn: Turn, request: Join) -> Struct | DeferredResponse:
    """The response, or a DeferredResponse for it."""
    if not _accepts(group, turn, request.member_id):
        group.pending.discard(request.member_id)
        return join_error("", ErrorCode.group_max_size_reached)
    if group.state is GroupState.DEAD:
        return join_error(request.member_id, ErrorCode.coordinator_not_available)
    if not group.supports_protocols(request.protocol_type, request.names):
        return join_error(request.member_id, ErrorCode.inconsistent_group_protocol)
    if not request.member_id:
        return _join_new(group, turn, request)
    if request.member_id in group.pending and request.group_instance_id is None:
        turn.timers.cancel(("session", group.group_id, request.member_id))
        return _add(group, turn, request, request.member_id)
    return _join_again(group, turn, request)


def _accepts(group: ClassicGroup, turn: Turn, member_id: str) -> bool:
    limit = turn.config.max_size
    if group.state is GroupState.PREPARING_REBALANCE:
        member = group.members.get(member_id)
        if member is not None and member.deferred_join is not None:
            return True
        return sum(m.deferred_join is not None for m in group.members.values()) < limit
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return member_id in group.members or len(group.members) < limit
    return True


def _join_new(group: ClassicGroup, turn: Turn, request: Join) -> Struct | DeferredResponse:
    instance_id = request.group_instance_id
    member_id = f"{instance_id or request.client_id}-{turn.new_uuid()}"
    if instance_id is not None:
        holder = group.static.get(instance_id)
        if holder is None:
            return _add(group, turn, request, member_id)
        return _take_place(group, turn, request, group.members[holder], member_id)
    if request.version >= MEMBER_ID_REQUIRED_SINCE:
        group.pending.add(member_id)
        turn.set_timer(("session", group.group_id, member_id), request.session_timeout_ms)
        return join_error(member_id, ErrorCode.member_id_required)
    return _add(group, turn, request, member_id)


def _add(group: ClassicGroup, turn: Turn, request: Join, member_id: str) -> DeferredResponse:
    deferred = DeferredResponse()
    member = Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
        is_new=True,
        deferred_join=deferred,
    )
    if group.is_empty:
        group.protocol_type = request.protocol_type
    group.add(turn, member)
    if group.state is GroupState.PREPARING_REBALANCE:
        group.new_member_added = True
        group.complete_join_if_all_joined(turn)
    else:
        group.prepare_rebalance(turn)
    return deferred


def _join_again(group: ClassicGroup, turn: Turn, request: Join) -> Struct | DeferredResponse:
    member_id, instance_id = request.member_id, request.group_instance_id
    if instance_id is not None:
        holder = group.static.get(instance_id)
        if holder is None:
            return join_error(member_id, ErrorCode.unknown_member_id)
        if holder != member_id:
            return join_error(member_id, ErrorCode.fenced_instance_id)
    member = group.members.get(member_id)
    if member is None:
        return join_error(member_id, ErrorCode.unknown_member_id)
    unchanged = tuple(member.protocols) == tuple(request.protocols)
    if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
        # The response to its join was lost: the generation stays.
        group.alive(turn, member)
        return group.join_response(member)
    if group.state is GroupState.STABLE and unchanged and member_id != group.leader:
        group.alive(turn, member)
        return group.join_response(member)
    return _update(group, turn, request, member)


def _update(group: ClassicGroup, turn: Turn, request: Join, member: Member) -> DeferredResponse:
    """The member joins (again); the leader does so to request a rebalance."""
    deferred = _wait(group, turn, request, member)
    if group.state is GroupState.PREPARING_REBALANCE:
        group.complete_join_if_all_joined(turn)
    else:
        group.prepare_rebalance(turn)
    return deferred


def _wait(group: ClassicGroup, turn: Turn, request: Join, member: Member) -> DeferredResponse:
    deferred = DeferredResponse()
    if member.deferred_join is not None:
        # The client gave up the old request, or two clients use the same id.
        group.refuse(turn, member, ErrorCode.unknown_member_id)
    member.protocols = request.protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.client_id, member.client_host = request.client_id, request.client_host
    member.deferred_join = deferred
    group.alive(turn, member)
    return deferred


def _take_place(
    group: ClassicGroup, turn: Turn, request: Join, old: Member, member_id: str
) -> Struct | DeferredResponse:
    """A static member returned as a new process (KIP-345)."""
    if group.state is not GroupState.STABLE:
        member = group.replace_static(turn, old, member_id)
        return _update(group, turn, request, member)
    leader_before, was_leader = group.leader, group.leader == old.member_id
    member = group.replace_static(turn, old, member_id)
    member.protocols = request.protocols
    if most_voted_protocol(group.members.values()) != group.protocol:
        return _update(group, turn, request, member)
    member.client_id, member.client_host = request.client_id, request.client_host
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    # No rebalance: it continues with the assignment of the previous process.
    assignments = {name: one.assignment for name, one in group.members.items()}
    turn.records.append(group.metadata_record(turn.now.wall_ms, assignments))
    response = group.join_response(member)
    if was_leader and request.version >= SKIP_ASSIGNMENT_SINCE:
        response.skip_assignment = True
    elif was_leader:
        # An old client that takes itself for the leader would compute a new assignment.
        response.leader = leader_before
        response.members = []
    return response
