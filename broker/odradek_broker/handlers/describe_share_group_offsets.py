"""DescribeShareGroupOffsets (90), v0–1: start offsets of share groups, and their lag (v1).

A start offset of -1 means that no member has read the partition yet. Without topics, all partitions
with state are described.
"""

from odradek_broker.group.share.records import TopicState
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.share_support import check_enabled
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.struct import Struct

API_KEY = 90
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return Struct(groups=[await _group(ctx, group) for group in request.groups])


async def _group(ctx: RequestContext, asked: Struct) -> Struct:
    group_id, image = asked.group_id, ctx.broker.metadata.image
    try:
        check_enabled(ctx)
        state = await ctx.broker.share_groups.state_of(group_id)
    except KafkaError as error:
        return Struct(
            group_id=group_id, topics=[], error_code=error.code, error_message=error.message or None
        )
    topics: dict[TopicId, TopicState] = {}
    unknown: list[Struct] = []
    if asked.topics is None:
        topics = {t: one for t, one in state.items() if t in image.topics_by_id}
    else:
        for topic in asked.topics:
            known = image.topics.get(topic.topic_name)
            if known is None:
                unknown.append(_unknown(topic))
            else:
                topics[known.id] = TopicState(topic.topic_name, frozenset(topic.partitions))
    answers = await ctx.broker.share_groups.start_offsets(group_id, topics)
    described = [
        Struct(
            topic_name=topic.name,
            topic_id=topic_id,
            partitions=[
                _partition(number, answers[topic_id, number]) for number in sorted(topic.partitions)
            ],
        )
        for topic_id, topic in topics.items()
    ]
    return Struct(
        group_id=group_id, topics=described + unknown, error_code=ErrorCode.none, error_message=None
    )


def _partition(number: int, answer: object) -> Struct:
    if isinstance(answer, KafkaError):
        return _without_offset(number, answer.code, answer.message or None)
    assert isinstance(answer, tuple)
    start, lag = answer
    return Struct(
        partition_index=number,
        start_offset=start.offset,
        leader_epoch=start.leader_epoch,
        lag=lag,
        error_code=ErrorCode.none,
        error_message=None,
    )


def _unknown(topic: Struct) -> Struct:
    code = ErrorCode.unknown_topic_or_partition
    message = "This server does not host this topic-partition."
    return Struct(
        topic_name=topic.topic_name,
        topic_id=None,
        partitions=[_without_offset(number, code, message) for number in topic.partitions],
    )


def _without_offset(number: int, code: ErrorCode, message: str | None) -> Struct:
    return Struct(
        partition_index=number,
        start_offset=0,
        leader_epoch=0,
        lag=-1,
        error_code=code,
        error_message=message,
    )
