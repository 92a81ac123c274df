"""The target assignment: computed by the group's assignor, written as records."""

from odradek_broker.group.consumer import records as rec
from odradek_broker.group.consumer.assignors import ASSIGNORS, MemberSpec
from odradek_broker.group.consumer.context import ConsumerDraft, Context, Timer, TimerKind
from odradek_protocol.ids import TopicId


def maybe_assign(draft: ConsumerDraft, ctx: Context) -> list[Timer]:
    """A new target if the group's epoch is ahead of it; delayed if the last one is too recent.

    group.consumer.assignment.interval.ms coalesces the changes of a group whose members all start
    at once into a few assignments.
    """
    group = draft.group
    if group.group_epoch <= group.target_epoch or not group.members:
        return []
    age_ms = ctx.now_ms - group.target_timestamp_ms
    if group.target_epoch > 0 and 0 <= age_ms < ctx.config.assignment_interval_ms:
        delay_ms = ctx.config.assignment_interval_ms - age_ms
        return [Timer(TimerKind.ASSIGNMENT, delay_ms=delay_ms, if_absent=True)]
    assign(draft, ctx)
    return [Timer(TimerKind.ASSIGNMENT)]


def assign(draft: ConsumerDraft, ctx: Context) -> None:
    """Records for the members whose target changes, then the target's new epoch."""
    group = draft.group
    topics = ctx.image.topics
    ids_of: dict[frozenset[str], frozenset[TopicId]] = {}  # most members have the same subscription
    specs: dict[str, MemberSpec] = {}
    for member in group.members.values():
        names = group.topics_of(member)
        if names not in ids_of:
            ids_of[names] = frozenset(topics[name].id for name in names if name in topics)
        specs[member.member_id] = MemberSpec(
            ids_of[names], group.target_of(member.member_id), member.instance_id
        )
    counts = {
        topic_id: len(ctx.image.topics_by_id[topic_id].partitions)
        for topic_ids in ids_of.values()
        for topic_id in topic_ids
    }
    assignor = ASSIGNORS[group.preferred_assignor(default=ctx.config.assignors[0])]
    for member_id, target in assignor(specs, counts).items():
        if member_id not in group.target or target != group.target[member_id]:
            draft.add(rec.target_member(group.group_id, member_id, target))
    draft.add(rec.target_epoch(group.group_id, group.group_epoch, ctx.now_ms))
