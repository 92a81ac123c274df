"""AlterShareGroupOffsets (91), v0: moves the start offsets of a share group without members.

What is known about single records of these partitions is dropped. A group that does not exist is
created, as in Kafka.
"""

from odradek_broker.coordinator.internal_topics import SHARE_STATE_TOPIC
from odradek_broker.group.share.records import TopicState
from odradek_broker.handlers import internal_topics
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.share_support import check_enabled
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset, TopicId
from odradek_protocol.messages.struct import Struct

API_KEY = 91
VERSIONS = range(0, 1)

NOT_HOSTED = KafkaError(
    ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    image = ctx.broker.metadata.image
    topics: dict[TopicId, TopicState] = {}
    starts: dict[tuple[TopicId, int], Offset] = {}
    errors: dict[tuple[str, int], KafkaError] = {}
    for topic in request.topics:
        known = image.topics.get(topic.topic_name)
        for one in topic.partitions:
            if known is None or one.partition_index not in known.partitions:
                errors[topic.topic_name, one.partition_index] = NOT_HOSTED
            else:
                starts[known.id, one.partition_index] = one.start_offset
        if known is not None:
            numbers = frozenset(p for t, p in starts if t == known.id)
            if numbers:
                topics[known.id] = TopicState(topic.topic_name, numbers)
    try:
        check_enabled(ctx)
        await internal_topics.ensure(ctx, SHARE_STATE_TOPIC)
        failed = await ctx.broker.share_groups.alter_offsets(request.group_id, topics, starts)
    except KafkaError as error:
        return Struct(error_code=error.code, error_message=error.message or None, responses=[])
    errors.update({(topics[t].name, p): error for (t, p), error in failed.items()})
    return Struct(
        error_code=ErrorCode.none,
        error_message=None,
        responses=[
            Struct(
                topic_name=topic.topic_name,
                topic_id=image.topics[topic.topic_name].id
                if topic.topic_name in image.topics
                else None,
                partitions=[
                    _result(index, errors.get((topic.topic_name, index)))
                    for index in (one.partition_index for one in topic.partitions)
                ],
            )
            for topic in request.topics
        ],
    )


def _result(number: int, error: KafkaError | None) -> Struct:
    return Struct(
        partition_index=number,
        error_code=error.code if error else ErrorCode.none,
        error_message=(error.message or None) if error else None,
    )
