"""DeleteShareGroupOffsets (92), v0: a share group without members forgets topics.

A member that subscribes to the topic again starts by share.auto.offset.reset.
"""

from odradek_broker.handlers.alter_share_group_offsets import NOT_HOSTED
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.share_support import check_enabled
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.struct import Struct

API_KEY = 92
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    image = ctx.broker.metadata.image
    ids = {
        topic.topic_name: image.topics[topic.topic_name].id
        for topic in request.topics
        if topic.topic_name in image.topics
    }
    try:
        check_enabled(ctx)
        errors = await ctx.broker.share_groups.delete_offsets(request.group_id, list(ids.values()))
    except KafkaError as error:
        return Struct(error_code=error.code, error_message=error.message or None, responses=[])
    return Struct(
        error_code=ErrorCode.none,
        error_message=None,
        responses=[_result(topic.topic_name, ids, errors) for topic in request.topics],
    )


def _result(name: str, ids: dict[str, TopicId], errors: dict[TopicId, KafkaError]) -> Struct:
    error = errors.get(ids[name]) if name in ids else NOT_HOSTED
    return Struct(
        topic_name=name,
        topic_id=ids.get(name),
        error_code=error.code if error else ErrorCode.none,
        error_message=(error.message or None) if error else None,
    )
