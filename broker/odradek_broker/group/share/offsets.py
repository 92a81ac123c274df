"""Which partitions of a share group have state in the share coordinator: records of changes.

An operator may move or delete the start offsets of a group that has no members.
"""

from collections.abc import Mapping

from odradek_broker.group.member_records import MemberRecord
from odradek_broker.group.share import records as rec
from odradek_broker.group.share.group import FIRST_EPOCH, ShareGroup
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicId

Topics = Mapping[TopicId, rec.TopicState]
NOT_EMPTY = "The group is not empty."


def initialized(group: ShareGroup, done: Topics) -> list[MemberRecord]:
    """Moves partitions from initializing to initialized; a new epoch, so that they are assigned."""
    state = rec.StatePartitions(
        _without(group.state.initializing, done), _with(group.state.initialized, done)
    )
    if state == group.state:
        return []
    return [
        rec.state(group.group_id, state),
        rec.group_epoch(group.group_id, group.group_epoch + 1, group.metadata_hash),
    ]


def check_empty(group: ShareGroup) -> None:
    if group.members:
        raise KafkaError(ErrorCode.non_empty_group, NOT_EMPTY)


def altering(group: ShareGroup, topics: Topics) -> tuple[list[MemberRecord], int]:
    """The partitions get a new state, with the epoch that is returned."""
    check_empty(group)
    epoch = max(group.group_epoch, FIRST_EPOCH) + 1
    state = group.state._replace(initializing=_with(group.state.initializing, topics))
    return [
        rec.group_epoch(group.group_id, epoch, group.metadata_hash),
        rec.state(group.group_id, state),
    ], epoch


def deleted(group: ShareGroup, topics: Topics) -> list[MemberRecord]:
    state = rec.StatePartitions(
        {t: one for t, one in group.state.initializing.items() if t not in topics},
        {t: one for t, one in group.state.initialized.items() if t not in topics},
    )
    return [] if state == group.state else [rec.state(group.group_id, state)]


def _with(topics: Topics, more: Topics) -> dict[TopicId, rec.TopicState]:
    merged = dict(topics)
    for topic_id, topic in more.items():
        known = merged.get(topic_id)
        partitions = topic.partitions | (known.partitions if known else frozenset())
        merged[topic_id] = rec.TopicState(topic.name, partitions)
    return merged


def _without(topics: Topics, less: Topics) -> dict[TopicId, rec.TopicState]:
    rest = {}
    for topic_id, topic in topics.items():
        gone = less[topic_id].partitions if topic_id in less else frozenset()
        if topic.partitions - gone:
            rest[topic_id] = rec.TopicState(topic.name, topic.partitions - gone)
    return rest
