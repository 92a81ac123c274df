"""Converts a classic group to a consumer group while its members go on consuming, and back.

Upgrade: a member of the consumer protocol joins. Each classic member is taken over with its last
assignment, and the generation becomes the epoch. Members with a parked JoinGroup or SyncGroup have
to join again, and are then served by `classic.py`.

Downgrade: the last member of the consumer protocol leaves. The others become one generation of a
classic group, which then rebalances.
"""

from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.group.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from odradek_broker.group.consumer import embedded
from odradek_broker.group.consumer import records as rec
from odradek_broker.group.consumer.context import ConsumerDraft, Context, Timer, TimerKind
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.consumer.member import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMember,
    Partitions,
)
from odradek_broker.group.records import group_metadata_record
from odradek_broker.group.turn import Turn
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.struct import Struct


def upgraded(group: ClassicGroup, ctx: Context) -> ConsumerDraft:
    """The records that make it a consumer group; KafkaError if that is not allowed."""
    draft = ConsumerDraft(ConsumerGroup(group.group_id))
    if not group.members:
        return draft
    reason = None
    if not ctx.config.migration_policy.upgrade_enabled:
        reason = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > ctx.config.max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _refused(group, reason)
    try:
        members = [_taken_over(group, member_id, ctx.image) for member_id in group.members]
    except DecodeError:
        raise _refused(group, "the embedded consumer protocol is malformed") from None
    group_id = group.group_id
    for member, _ in members:
        draft.add(rec.member_metadata(group_id, member))
    epoch = max(group.generation, 1)
    draft.add(rec.group_epoch(group_id, epoch, draft.group.hash_of_topics(ctx.image)))
    for member, target in members:
        draft.add(rec.target_member(group_id, member.member_id, target))
    draft.add(rec.target_epoch(group_id, epoch, 0))
    for member, _ in members:
        draft.add(rec.current_member(group_id, member))
    return draft


def _refused(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def _taken_over(
    group: ClassicGroup, member_id: str, image: MetadataImage
) -> tuple[ConsumerGroupMember, Partitions]:
    classic = group.members[member_id]
    metadata = classic.metadata(group.protocol) or classic.protocols[0].metadata
    subscription = embedded.read_subscription(metadata)
    assigned = embedded.read_assignment(classic.assignment, image)
    epoch = max(group.generation, 1)
    member = ConsumerGroupMember(
        member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=classic.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=classic.rebalance_timeout_ms,
        client_id=classic.client_id,
        client_host=classic.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned={topic_id: dict.fromkeys(p, epoch) for topic_id, p in assigned.items()},
        classic=ClassicMemberMetadata(
            classic.session_timeout_ms,
            tuple(ClassicProtocol(name, data) for name, data in classic.protocols),
        ),
    )
    return member, assigned


def part_with_classic(group: ClassicGroup, turn: Turn) -> list[Timer]:
    """Members with parked requests must join again; sessions continue under other timer keys."""
    timers = []
    for member in group.members.values():
        group.refuse(turn, member, ErrorCode.rebalance_in_progress)
        turn.timers.cancel(("session", group.group_id, member.member_id))
        timers.append(Timer(TimerKind.SESSION, member.member_id, member.session_timeout_ms))
    for kind in ("join", "sync"):
        turn.timers.cancel((kind, group.group_id))
    return timers


def may_downgrade(group: ConsumerGroup, leaving: list[str], ctx: Context) -> bool:
    """Whether there are members, all of the classic protocol."""
    left = [member for member in group.members.values() if member.member_id not in leaving]
    return (
        bool(left)
        and all(member.uses_classic_protocol for member in left)
        and ctx.config.migration_policy.downgrade_enabled
        and len(left) <= ctx.config.classic_max_size
    )


def downgraded(
    group: ConsumerGroup, leaving: list[str], ctx: Context
) -> tuple[list[rec.ConsumerGroupRecord], CoordinatorRecord]:
    """The tombstones of the consumer group, and the classic group without leaving members."""
    left = [member for member in group.members.values() if member.member_id not in leaving]
    common = {p.name for p in _protocols(left[0])}
    for member in left[1:]:
        common &= {p.name for p in _protocols(member)}
    protocol = next(p.name for p in _protocols(left[0]) if p.name in common)
    members = [_as_classic(member, protocol, ctx.image) for member in left]
    value = Struct(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.group_epoch,
        protocol=protocol,
        leader=left[0].member_id,
        current_state_timestamp=ctx.now_ms,
        members=members,
    )
    return group.tombstone_records(), group_metadata_record(group.group_id, value)


def _protocols(member: ConsumerGroupMember) -> tuple[ClassicProtocol, ...]:
    assert member.classic is not None
    return member.classic.supported_protocols


def _as_classic(member: ConsumerGroupMember, protocol: str, image: MetadataImage) -> Struct:
    assert member.classic is not None
    metadata = next(p.metadata for p in _protocols(member) if p.name == protocol)
    version = embedded.version_of(metadata)
    return Struct(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.classic.session_timeout_ms,
        subscription=metadata,
        assignment=embedded.write_assignment(member.assigned, image, version),
    )
