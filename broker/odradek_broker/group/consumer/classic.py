"""Members of a consumer group that still use the classic protocol.

They exist while a group migrates from one protocol to the other. JoinGroup, SyncGroup and
Heartbeat are translated: a member's generation is its member epoch, no member is the leader,
SyncGroup returns the assignment of the coordinator, and REBALANCE_IN_PROGRESS makes the member
reconcile. Requests are answered at once; none is parked.
"""

from dataclasses import replace

from odradek_broker.group.classic_join import MEMBER_ID_REQUIRED_SINCE, Join
from odradek_broker.group.consumer import embedded
from odradek_broker.group.consumer.context import ConsumerDraft, Context, Decision, Timer, TimerKind
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.consumer.heartbeat import (
    advance,
    check_size,
    fence,
    replace_static,
    static_owner,
)
from odradek_broker.group.consumer.member import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMember,
    MemberState,
)
from odradek_broker.group.consumer.subscription import expressions_to_resolve
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.struct import Struct

PROTOCOL_TYPE = "consumer"


def join(group: ConsumerGroup, request: Join, ctx: Context) -> Decision:
    """JoinGroup. Raises KafkaError, or returns a response that may have an error."""
    member_id = request.member_id or f"{request.client_id}-{ctx.new_id()}"
    check_size(group, member_id, ctx)
    if not _supports(group, request):
        raise KafkaError(
            ErrorCode.inconsistent_group_protocol,
            f"Member {member_id}'s protocols are not supported.",
        )
    if (
        not request.member_id
        and request.group_instance_id is None
        and request.version >= MEMBER_ID_REQUIRED_SINCE
    ):
        return Decision(_join_response(member_id, error=ErrorCode.member_id_required))
    draft = ConsumerDraft(group)
    timers: list[Timer] = []
    member = _joining_member(draft, request, member_id)
    try:
        subscription = embedded.read_subscription(request.protocols[0].metadata)
    except DecodeError as error:
        raise KafkaError(ErrorCode.inconsistent_group_protocol, str(error)) from None
    updated = replace(
        member,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        client_id=request.client_id,
        client_host=request.client_host,
        server_assignor=None,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex=None,
        classic=ClassicMemberMetadata(
            request.session_timeout_ms,
            tuple(ClassicProtocol(p.name, p.metadata) for p in request.protocols),
        ),
    )
    owned = embedded.with_ids(list(subscription.owned_partitions), ctx.image)
    after, more = advance(draft, member, updated, owned, ctx)
    timers += [
        *more,
        Timer(TimerKind.JOIN, member_id),
        Timer(TimerKind.SESSION, member_id, request.session_timeout_ms),
        Timer(TimerKind.SYNC, member_id, request.rebalance_timeout_ms),
    ]
    response = _join_response(member_id, after.member_epoch, request.protocols[0].name)
    return Decision(response, draft.records, timers, expressions_to_resolve(draft.group, ctx))


def _supports(group: ConsumerGroup, request: Join) -> bool:
    """Whether all other members of the classic protocol support one of its assignors."""
    if request.protocol_type != PROTOCOL_TYPE or not request.protocols:
        return False
    common = set(request.names)
    for member in group.classic_members():
        assert member.classic is not None
        if member.member_id != request.member_id:
            common &= {protocol.name for protocol in member.classic.supported_protocols}
    return bool(common)


def _joining_member(draft: ConsumerDraft, request: Join, member_id: str) -> ConsumerGroupMember:
    group = draft.group
    if request.group_instance_id is None:
        return group.members.get(member_id, ConsumerGroupMember(member_id))
    existing = group.static_member(request.group_instance_id)
    if request.member_id:
        return static_owner(existing, member_id, request.group_instance_id)
    if existing is None:
        return ConsumerGroupMember(member_id)
    return replace_static(draft, existing, member_id)


def _join_response(
    member_id: str,
    generation: int = -1,
    protocol: str | None = None,
    error: ErrorCode = ErrorCode.none,
) -> Struct:
    return Struct(
        error_code=error,
        generation_id=generation,
        protocol_type=PROTOCOL_TYPE if protocol else None,
        protocol_name=protocol,
        leader="",
        member_id=member_id,
        members=[],
    )


def sync(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    ctx: Context,
) -> Decision:
    """SyncGroup: the member's assignment; assignments in the request are ignored."""
    member = _classic_member(group, member_id, instance_id, generation)
    assert member.classic is not None
    protocol = member.classic.supported_protocols[0]
    if protocol_type not in (None, PROTOCOL_TYPE) or protocol_name not in (None, protocol.name):
        raise KafkaError(
            ErrorCode.inconsistent_group_protocol,
            f"The protocol type {protocol_type} or name {protocol_name} from member {member_id} "
            "request is not equal to that of the join response.",
        )
    if group.group_epoch > member.member_epoch and (
        member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        # Outdated, but the timer must be set although the request fails: so no exception.
        timer = Timer(TimerKind.JOIN, member_id, member.rebalance_timeout_ms, if_absent=True)
        return Decision(Struct(error_code=ErrorCode.rebalance_in_progress), timers=[timer])
    version = embedded.version_of(protocol.metadata)
    response = Struct(
        error_code=ErrorCode.none,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol.name,
        assignment=embedded.write_assignment(member.assigned, ctx.image, version),
    )
    session_ms = member.classic.session_timeout_ms
    timers = [
        Timer(TimerKind.SYNC, member_id),
        Timer(TimerKind.SESSION, member_id, session_ms),
    ]
    return Decision(response, timers=timers)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> Decision:
    """Heartbeat; the response is an ErrorCode."""
    member = _classic_member(group, member_id, instance_id, generation)
    assert member.classic is not None
    timers = [Timer(TimerKind.SESSION, member_id, member.classic.session_timeout_ms)]
    if (
        member.member_epoch < group.group_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and _more_is_free(group, member))
    ):
        delay_ms = member.rebalance_timeout_ms
        timers.append(Timer(TimerKind.JOIN, member_id, delay_ms, if_absent=True))
        return Decision(ErrorCode.rebalance_in_progress, timers=timers)
    return Decision(ErrorCode.none, timers=timers)


def _more_is_free(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Whether everything it waits for is free: otherwise it would rejoin for each partition."""
    return all(
        group.is_free_for(topic_id, partition, member.member_id)
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions
    )


def leave(
    group: ConsumerGroup, leaving: list[tuple[str, str | None]], ctx: Context
) -> tuple[Decision, list[ErrorCode]]:
    """LeaveGroup: an error code for each (member id, instance id)."""
    gone: list[str] = []
    codes: list[ErrorCode] = []
    for member_id, instance_id in leaving:
        try:
            if instance_id is None:
                member = group.member(member_id)
            else:
                existing = group.static_member(instance_id)
                owner_id = member_id or (existing.member_id if existing else "")
                member = static_owner(existing, owner_id, instance_id)
            _uses_classic(member)
            gone.append(member.member_id)
            codes.append(ErrorCode.none)
        except KafkaError as error:
            codes.append(error.code)
    if not gone:
        return Decision(None), codes
    return fence(group, gone, ctx), codes


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerGroupMember:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = static_owner(group.static_member(instance_id), member_id, instance_id)
    _uses_classic(member)
    if member.member_epoch != generation:
        raise KafkaError(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch "
            f"{member.member_epoch} of member {member_id}.",
        )
    return member


def _uses_classic(member: ConsumerGroupMember) -> None:
    if not member.uses_classic_protocol:
        raise KafkaError(
            ErrorCode.unknown_member_id,
            f"Member {member.member_id} does not use the classic protocol.",
        )
