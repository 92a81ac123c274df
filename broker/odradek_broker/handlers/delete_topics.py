"""DeleteTopics (20), v1–6: deletes topics by name, in v6 also by id. Decided by the controller.

Clients before v3 do not know TOPIC_DELETION_DISABLED; they get INVALID_REQUEST.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_broker.handlers.mutations import limited
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 20
VERSIONS = range(1, 7)
# Clients know THROTTLING_QUOTA_EXCEEDED from this version on.
STRICT_FROM = 5


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        response = await to_controller(
            ctx, request, limited(ctx, ctx.broker.controller.delete_topics, STRICT_FROM)
        )
    except KafkaError as error:
        by_name = [refused(error, name=name) for name in request.topic_names]
        by_id = [refused(error, name=t.name, topic_id=t.topic_id) for t in request.topics]
        return Struct(responses=by_name + by_id)
    if ctx.api_version < 3:
        for answer in response.responses:
            if answer.error_code is ErrorCode.topic_deletion_disabled:
                answer.error_code = ErrorCode.invalid_request
    return response
