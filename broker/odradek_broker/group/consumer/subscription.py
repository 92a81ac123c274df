"""Subscriptions and existing topics: when a group needs a new epoch."""

from collections.abc import Mapping

from odradek_broker.group.consumer import records as rec
from odradek_broker.group.consumer.context import ConsumerDraft, Context, Decision
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_protocol.ids import Offset

# Groups with expressions match new topics at most this often, as in Kafka, so that a cluster that
# creates topics all day does not keep its coordinators busy.
REGEX_REFRESH_MIN_INTERVAL_MS = 10_000


def bump_if_changed(draft: ConsumerDraft, subscription_changed: bool, ctx: Context) -> None:
    """A new group epoch if the subscription or the subscribed topics have changed.

    `seen_topics` holds the topics of the last check, so that a heartbeat without changes is cheap.
    It is set only when nothing has to be written, because a write may fail.
    """
    group = draft.group
    if not subscription_changed and group.group_epoch and draft.seen_topics is ctx.image.topics:
        return
    metadata_hash = group.hash_of_topics(ctx.image)
    if (
        subscription_changed
        or group.group_epoch == 0
        or (metadata_hash != group.metadata_hash and group.members)
    ):
        draft.add(rec.group_epoch(group.group_id, group.group_epoch + 1, metadata_hash))
    else:
        draft.seen_topics = ctx.image.topics


def expressions_in_use(group: ConsumerGroup) -> frozenset[str]:
    return frozenset(
        member.subscribed_topic_regex
        for member in group.members.values()
        if member.subscribed_topic_regex is not None
    )


def drop_unused_regexes(draft: ConsumerDraft) -> None:
    if not draft.group.regexes:
        return
    for expression in draft.group.regexes.keys() - expressions_in_use(draft.group):
        draft.add(rec.tombstone(rec.REGEX, draft.group.group_id, expression))


def expressions_to_resolve(group: ConsumerGroup, ctx: Context) -> frozenset[str]:
    """All expressions of the group, if one is new, topics changed, or the last match is old."""
    in_use = expressions_in_use(group)
    if not in_use or in_use <= group.resolving:
        return frozenset()
    if in_use - group.regexes.keys():
        return in_use
    age_ms = ctx.now_ms - min(group.regexes[expression].timestamp for expression in in_use)
    checked_ms = ctx.now_ms - group.regexes_checked_ms
    if age_ms >= ctx.config.regex_refresh_interval_ms <= checked_ms:
        return in_use
    behind = any(group.regexes[expression].version < ctx.image.offset for expression in in_use)
    return in_use if behind and checked_ms >= REGEX_REFRESH_MIN_INTERVAL_MS else frozenset()


def regexes_resolved(
    group: ConsumerGroup,
    matched: Mapping[str, tuple[str, ...]],
    version: Offset,
    ctx: Context,
) -> Decision:
    """Records the topics that match, as of the metadata at offset `version`."""
    draft = ConsumerDraft(group)
    in_use = expressions_in_use(group)
    for expression, topics in matched.items():
        known = group.regexes.get(expression)
        if expression in in_use and (known is None or known.topics != topics):
            resolved = rec.ResolvedRegex(topics, version, ctx.now_ms)
            draft.add(rec.regex(group.group_id, expression, resolved))
    if draft.records:
        bump_if_changed(draft, True, ctx)
    return Decision(None, draft.records)
