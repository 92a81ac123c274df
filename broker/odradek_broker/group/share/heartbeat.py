"""ShareGroupHeartbeat: a member joins (epoch 0), stays, or leaves (epoch -1).

One pass: find or create the member → write what changed about it → a new group epoch if
subscriptions or topics changed → record partitions whose state has to be initialized → a new target
if the epoch is ahead of it → the member takes its target → respond.

`Context` and `Decision` are for share groups what those of `group/consumer/context.py` are for
consumer groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from odradek_broker.group.draft import Draft
from odradek_broker.group.member_records import MemberRecord, tombstone
from odradek_broker.group.share import records as rec
from odradek_broker.group.share.assignor import assign
from odradek_broker.group.share.config import ShareGroupConfig
from odradek_broker.group.share.group import FIRST_EPOCH, NO_PARTITIONS, ShareGroup, ShareMember
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.struct import Struct

LEAVE_GROUP_MEMBER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Context:
    image: MetadataImage
    config: ShareGroupConfig
    now_ms: int  # wall clock: written to records, and compared with theirs


@dataclass(slots=True)
class Decision:
    response: Any
    records: list[MemberRecord] = field(default_factory=list)
    # Partitions whose state has to be initialized, with this state epoch.
    initialize: Mapping[TopicId, rec.TopicState] = field(default_factory=dict)
    state_epoch: int = 0
    assign_in_ms: int | None = None  # compute the target later


ShareDraft = Draft[ShareGroup, MemberRecord]


def validate(request: Struct) -> None:
    """Validates a request independently of the group, in Kafka's order."""
    reason = None
    if not request.member_id.strip():
        raise KafkaError(ErrorCode.invalid_request)
    if not request.group_id.strip():
        reason = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        reason = "RackId can't be empty."
    elif request.member_epoch == 0 and not request.subscribed_topic_names:
        reason = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH:
        reason = "MemberEpoch is invalid."
    if reason is not None:
        raise KafkaError(ErrorCode.invalid_request, reason)


def heartbeat(
    draft: ShareDraft, request: Struct, client_id: str, client_host: str, ctx: Context
) -> Decision:
    group_id = draft.group.group_id
    member = _member(draft.group, request, ctx)
    names = request.subscribed_topic_names
    updated = replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if names is None else frozenset(names),
        client_id=client_id,
        client_host=client_host,
    )
    is_new = member.member_id not in draft.group.members
    if is_new or updated != member:
        draft.add(updated.metadata_record(group_id))
    bump_if_changed(draft, is_new or updated.topics != member.topics, ctx)
    decision = Decision(None, state_epoch=draft.group.group_epoch)
    decision.initialize = _initialize(draft, ctx)
    decision.assign_in_ms = maybe_assign(draft, ctx)
    after = _taken(draft.group, draft.group.members[member.member_id])
    if is_new or after != updated:
        draft.add(after.current_record(group_id))
    decision.records = draft.records
    decision.response = Struct(
        throttle_time=0,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval=ctx.config.heartbeat_interval_ms,
        assignment=None,
    )
    if request.member_epoch == 0 or names is not None or after.assigned != member.assigned:
        topics = rec.structs_of(after.assigned)
        decision.response.assignment = Struct(topic_partitions=topics)
    return decision


def _member(group: ShareGroup, request: Struct, ctx: Context) -> ShareMember:
    member_id, epoch = request.member_id, request.member_epoch
    if epoch == 0 and member_id not in group.members:
        if len(group.members) >= ctx.config.max_size:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                f"The share group has reached its maximum capacity of {ctx.config.max_size} "
                "members.",
            )
        return ShareMember(member_id)
    member = group.member(member_id)
    if epoch not in (0, member.member_epoch, member.previous_member_epoch):
        size = "greater" if epoch > member.member_epoch else "smaller"
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The share group member has a {size} member epoch ({epoch}) than the one known by "
            f"the group coordinator ({member.member_epoch}). The member must abandon all its "
            "partitions and rejoin.",
        )
    return member


def bump_if_changed(draft: ShareDraft, subscription_changed: bool, ctx: Context) -> None:
    """A new group epoch if the subscription or the subscribed topics have changed."""
    group = draft.group
    metadata_hash = group.hash_of_topics(ctx.image)
    if subscription_changed or (metadata_hash != group.metadata_hash and group.members):
        epoch = max(group.group_epoch, FIRST_EPOCH) + 1
        draft.add(rec.group_epoch(group.group_id, epoch, metadata_hash))


def _initialize(draft: ShareDraft, ctx: Context) -> Mapping[TopicId, rec.TopicState]:
    """Records partitions as initializing; those that are so for long are tried again."""
    group = draft.group
    missing = group.uninitialized(ctx.image)
    if not missing:
        return {}
    under_way = ctx.now_ms - group.initializing_since_ms < ctx.config.initialize_retry_ms
    if under_way and all(
        topic_id in group.state.initializing
        and topic.partitions <= group.state.initializing[topic_id].partitions
        for topic_id, topic in missing.items()
    ):
        return {}
    draft.add(rec.state(group.group_id, group.state._replace(initializing=missing)))
    return missing


def maybe_assign(draft: ShareDraft, ctx: Context) -> int | None:
    """A new target if the group's epoch is ahead of it; if the last one is too recent, the delay
    after which to try again (share.assignment.interval.ms)."""
    group = draft.group
    if group.group_epoch <= group.target_epoch or not group.members:
        return None
    age_ms = ctx.now_ms - group.target_timestamp_ms
    if group.target_epoch > 0 and 0 <= age_ms < ctx.config.assignment_interval_ms:
        return ctx.config.assignment_interval_ms - age_ms
    subscriptions = {member.member_id: member.topics for member in group.members.values()}
    for member_id, target in assign(subscriptions, group.assignable(ctx.image)).items():
        if member_id not in group.target or target != group.target[member_id]:
            draft.add(rec.target_member(group.group_id, member_id, target))
    draft.add(rec.target_epoch(group.group_id, group.group_epoch, ctx.now_ms))
    return None


def _taken(group: ShareGroup, member: ShareMember) -> ShareMember:
    """The member after it has taken its target assignment."""
    if member.member_epoch == group.target_epoch:
        return member
    return replace(
        member,
        member_epoch=group.target_epoch,
        previous_member_epoch=member.member_epoch,
        assigned=group.target.get(member.member_id, NO_PARTITIONS),
    )


def leave(group: ShareGroup, member_id: str, ctx: Context) -> Decision:
    decision = fence(group, group.member(member_id).member_id, ctx)
    decision.response = Struct(
        throttle_time=0,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=member_id,
        member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
        heartbeat_interval=0,
        assignment=None,
    )
    return decision


def fence(group: ShareGroup, member_id: str, ctx: Context) -> Decision:
    """Removes a member; the next heartbeat of another one computes the new target."""
    draft = ShareDraft(group)
    for kind in (rec.CURRENT_MEMBER, rec.TARGET_MEMBER, rec.MEMBER):
        draft.add(tombstone(kind, group.group_id, member_id))
    bump_if_changed(draft, True, ctx)
    return Decision(None, draft.records)
