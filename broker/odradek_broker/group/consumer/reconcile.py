"""One member's next step towards its target: revoke first, then assign what is free.

    state                  heartbeat                   next
    STABLE                 anything, target is newer   as below, from its own epoch
    UNREVOKED_PARTITIONS   it still owns some of them  stays
    UNREVOKED_PARTITIONS   it owns none of them        as below, one epoch on
    UNRELEASED_PARTITIONS  anything                    as below

    it has to revoke partitions that it still owns      → UNREVOKED_PARTITIONS, epoch stays
    other members hold partitions of its target         → UNRELEASED_PARTITIONS, target's epoch
    else                                                → STABLE, target's epoch

So a partition is assigned to a member only when no other member has it: at most one owner.
"""

from dataclasses import replace

from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.consumer.member import (
    NOTHING,
    ConsumerGroupMember,
    MemberState,
    Partitions,
    overlaps,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicId


def reconcile(
    group: ConsumerGroup, member: ConsumerGroupMember, owned: Partitions | None
) -> ConsumerGroupMember:
    """`owned` are the partitions in the member's heartbeat; None if it has none."""
    if member.is_reconciled_to(group.target_epoch):
        return member
    epoch = member.member_epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or overlaps(owned, member.pending_revocation):
            return member
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        if owned is None or any(owned.values()):
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        epoch = group.target_epoch
    return _next_assignment(group, member, owned, epoch)


def _next_assignment(
    group: ConsumerGroup, member: ConsumerGroupMember, owned: Partitions | None, epoch: int
) -> ConsumerGroupMember:
    target = group.target_of(member.member_id)
    kept: dict[TopicId, dict[int, int]] = {}
    revoked: dict[TopicId, dict[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        for partition, since in partitions.items():
            side = kept if partition in wanted else revoked
            side.setdefault(topic_id, {})[partition] = since
    if revoked and (owned is None or overlaps(owned, revoked)):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    state = MemberState.STABLE
    for topic_id, wanted in target.items():
        for partition in wanted - kept.get(topic_id, {}).keys():
            if group.is_free_for(topic_id, partition, member.member_id):
                kept.setdefault(topic_id, {})[partition] = group.target_epoch
            else:
                state = MemberState.UNRELEASED_PARTITIONS
    return _moved(member, group.target_epoch, state, kept, {})


def _moved(
    member: ConsumerGroupMember,
    epoch: int,
    state: MemberState,
    assigned: dict[TopicId, dict[int, int]],
    revoked: dict[TopicId, dict[int, int]],
) -> ConsumerGroupMember:
    previous = member.previous_member_epoch if epoch == member.member_epoch else member.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=state,
        assigned=assigned or NOTHING,
        pending_revocation=revoked or NOTHING,
    )
