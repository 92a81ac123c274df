"""ConsumerGroupHeartbeat: a member joins (epoch 0), stays, or leaves (epoch -1 or -2).

One pass: find or create the member → write what changed about it → check the topics → a new group
epoch if either changed → a new target if the epoch is ahead of it → bring this member one step
closer to its target → respond, with the assignment if it is new or was requested.
"""

from dataclasses import replace

from odradek_broker.group.consumer import records as rec
from odradek_broker.group.consumer import regex
from odradek_broker.group.consumer.context import (
    ConsumerDraft,
    Context,
    Decision,
    Timer,
    TimerKind,
    cancel_timers,
)
from odradek_broker.group.consumer.group import ConsumerGroup, plain
from odradek_broker.group.consumer.member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    NOTHING,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
    Partitions,
    is_subset,
    owned_in_request,
)
from odradek_broker.group.consumer.reconcile import reconcile
from odradek_broker.group.consumer.subscription import (
    bump_if_changed,
    drop_unused_regexes,
    expressions_to_resolve,
)
from odradek_broker.group.consumer.target import maybe_assign
from odradek_broker.group.member_epochs import check_epoch
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

MEMBER_ID_BY_CLIENT_SINCE = 1


def validate(request: Struct, api_version: int, assignors: tuple[str, ...]) -> None:
    """Validates a request independently of the group, in Kafka's order."""
    epoch = request.member_epoch
    if api_version >= MEMBER_ID_BY_CLIENT_SINCE or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH:
        _not_blank(request.member_id, "MemberId can't be empty.")
    _not_blank(request.group_id, "GroupId can't be empty.")
    _not_blank(request.instance_id, "InstanceId can't be empty.")
    _not_blank(request.rack_id, "RackId can't be empty.")
    reason = None
    if epoch == 0:
        if request.rebalance_timeout == -1:
            reason = "RebalanceTimeoutMs must be provided in first request."
        elif request.topic_partitions is None or request.topic_partitions:
            reason = "TopicPartitions must be empty when (re-)joining."
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            reason = (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        reason = "InstanceId can't be null."
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        reason = "MemberEpoch is invalid."
    if reason is not None:
        raise KafkaError(ErrorCode.invalid_request, reason)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _not_blank(value: str | None, message: str) -> None:
    if value is not None and not value.strip():
        raise KafkaError(ErrorCode.invalid_request, message)


def heartbeat(
    draft: ConsumerDraft, request: Struct, client_id: str, client_host: str, ctx: Context
) -> Decision:
    """The heartbeat of a member that joins or stays; see `leave` for the others."""
    check_size(draft.group, request.member_id, ctx)
    owned = owned_in_request(request.topic_partitions)
    member_id = request.member_id or ctx.new_id()
    member, timers = _subscribed_member(draft, request, member_id, owned)
    updated = replace(
        member,
        instance_id=_either(request.instance_id, member.instance_id),
        rack_id=_either(request.rack_id, member.rack_id),
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if request.rebalance_timeout == -1
            else request.rebalance_timeout
        ),
        server_assignor=_either(request.server_assignor, member.server_assignor),
        subscribed_topic_names=(
            member.subscribed_topic_names
            if request.subscribed_topic_names is None
            else frozenset(request.subscribed_topic_names)
        ),
        subscribed_topic_regex=(
            _either(request.subscribed_topic_regex, member.subscribed_topic_regex) or None
        ),
        client_id=client_id,
        client_host=client_host,
        classic=None,
    )
    expression = updated.subscribed_topic_regex
    if expression is not None and expression != member.subscribed_topic_regex:
        regex.check(expression)
    after, more = advance(draft, member, updated, owned, ctx)
    session_ms = ctx.config.session_timeout_ms
    timers += [*more, Timer(TimerKind.SESSION, member_id, session_ms)]
    timers += rebalance_timers(member, after)
    response = Struct(
        throttle_time=0,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval=ctx.config.heartbeat_interval_ms,
        assignment=None,
    )
    if (
        _is_full(request)
        or after.assigned.keys() != member.assigned.keys()
        or (plain(after.assigned) != plain(member.assigned))
    ):
        response.assignment = _assignment(after.assigned)
    return Decision(response, draft.records, timers, expressions_to_resolve(draft.group, ctx))


def advance(
    draft: ConsumerDraft,
    member: ConsumerGroupMember,
    updated: ConsumerGroupMember,
    owned: Partitions | None,
    ctx: Context,
) -> tuple[ConsumerGroupMember, list[Timer]]:
    """Writes the updated member and what follows from it, and reconciles it; see above."""
    group_id = draft.group.group_id
    is_new = updated.member_id not in draft.group.members
    if is_new or updated != member:
        draft.add(rec.member_metadata(group_id, updated))
    drop_unused_regexes(draft)
    before = frozenset() if is_new else draft.group.topics_of(member)
    bump_if_changed(draft, before != draft.group.topics_of(updated), ctx)
    timers = maybe_assign(draft, ctx)
    after = reconcile(draft.group, updated, owned)
    if is_new or after != updated:
        draft.add(rec.current_member(group_id, after))
    return after, timers


def check_size(group: ConsumerGroup, member_id: str, ctx: Context) -> None:
    if len(group.members) >= ctx.config.max_size and member_id not in group.members:
        raise KafkaError(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {ctx.config.max_size} "
            "members.",
        )


def rebalance_timers(before: ConsumerGroupMember, after: ConsumerGroupMember) -> list[Timer]:
    """A member that must revoke partitions has its rebalance timeout for it."""
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        if before.state is after.state and before.member_epoch == after.member_epoch:
            return []
        delay_ms = after.rebalance_timeout_ms
        return [Timer(TimerKind.REBALANCE, after.member_id, delay_ms, after.member_epoch)]
    return [Timer(TimerKind.REBALANCE, after.member_id)] if before.state != after.state else []


def _either(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


def _is_full(request: Struct) -> bool:
    """A full request: the member joins, or did not get our last response."""
    return request.member_epoch == 0 or (
        request.rebalance_timeout != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _assignment(assigned: OwnedPartitions) -> Struct:
    return Struct(
        topic_partitions=[
            Struct(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assigned.items())
        ]
    )


def _subscribed_member(
    draft: ConsumerDraft, request: Struct, member_id: str, owned: Partitions | None
) -> tuple[ConsumerGroupMember, list[Timer]]:
    group, joins = draft.group, request.member_epoch == 0
    if request.instance_id is None:
        if joins and member_id not in group.members:
            return ConsumerGroupMember(member_id), []
        member = group.member(member_id)
        _check_epoch(member, request.member_epoch, owned)
        return member, []
    existing = group.static_member(request.instance_id)
    if not joins:
        member = static_owner(existing, member_id, request.instance_id)
        _check_epoch(member, request.member_epoch, owned)
        return member, []
    if existing is None:
        return group.members.get(member_id, ConsumerGroupMember(member_id)), []
    if existing.member_id == member_id:
        return existing, []
    if (
        not existing.uses_classic_protocol
        and existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH
    ):
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the "
            f"group because the instance id is owned by {existing.member_id} member.",
        )
    return replace_static(draft, existing, member_id), cancel_timers(existing.member_id)


def replace_static(
    draft: ConsumerDraft, existing: ConsumerGroupMember, member_id: str
) -> ConsumerGroupMember:
    """The instance returns with a new member id, and keeps the old one's partitions."""
    group_id = draft.group.group_id
    target = draft.group.target_of(existing.member_id)
    member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    draft.add(*rec.member_tombstones(group_id, existing.member_id))
    draft.add(
        rec.member_metadata(group_id, member),
        rec.target_member(group_id, member_id, target),
        rec.current_member(group_id, member),
    )
    return member


def _check_epoch(member: ConsumerGroupMember, received: int, owned: Partitions | None) -> None:
    def owns_no_more() -> bool:
        return owned is not None and is_subset(owned, member.assigned)

    check_epoch("consumer", member, received, owns_no_more)


def static_owner(
    existing: ConsumerGroupMember | None, member_id: str, instance_id: str
) -> ConsumerGroupMember:
    if existing is None:
        message = f"Instance id {instance_id} is unknown."
        raise KafkaError(ErrorCode.unknown_member_id, message)
    if existing.member_id != member_id:
        raise KafkaError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{existing.member_id}.",
        )
    return existing


def leave(group: ConsumerGroup, request: Struct, ctx: Context) -> Decision:
    """Leaves for good (-1), or as a static member that may return within its session (-2)."""
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        existing = group.static_member(request.instance_id)
        member = static_owner(existing, request.member_id, request.instance_id)
    response = Struct(
        throttle_time=0,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=member.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval=0,
        assignment=None,
    )
    if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is not None:
        gone = replace(
            member, member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH, pending_revocation=NOTHING
        )
        return Decision(response, [rec.current_member(group.group_id, gone)])
    decision = fence(group, [member.member_id], ctx)
    decision.response = response
    return decision


def fence(group: ConsumerGroup, member_ids: list[str], ctx: Context) -> Decision:
    """Removes members; the next heartbeat of another member computes the new target."""
    draft = ConsumerDraft(group)
    timers: list[Timer] = []
    for member_id in member_ids:
        draft.add(*rec.member_tombstones(group.group_id, member_id))
        timers += cancel_timers(member_id)
    drop_unused_regexes(draft)
    bump_if_changed(draft, True, ctx)
    return Decision(None, draft.records, timers)
