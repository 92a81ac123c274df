"""OffsetDelete (47), v0: deletes a group's offsets of topics that no member subscribes to."""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 47
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    topics = ctx.broker.metadata.image.topics
    keys = [
        (topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if topic.name in topics and one.partition_index in topics[topic.name].partitions
    ]
    try:
        codes = await ctx.broker.groups.delete_offsets(request.group_id, keys)
    except KafkaError as error:
        return Struct(error_code=error.code, topics=[])
    unknown = ErrorCode.unknown_topic_or_partition
    return Struct(
        error_code=ErrorCode.none,
        topics=[
            Struct(
                name=topic.name,
                partitions=[
                    Struct(
                        partition_index=one.partition_index,
                        error_code=codes.get((topic.name, one.partition_index), unknown),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
