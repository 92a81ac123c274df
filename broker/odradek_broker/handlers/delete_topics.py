"""DeleteTopics (20), v1–6: decided by the controller; by name, or by id in v6.

Before v3 there is no TOPIC_DELETION_DISABLED; such clients get INVALID_REQUEST.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.errors import ErrorCode
from odradek_broker.wire.struct import Struct

API_KEY = 20
VERSIONS = range(1, 7)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    response = await ctx.broker.controller.delete_topics(request)
    if ctx.api_version < 3:
        for answer in response.responses:
            if answer.error_code is ErrorCode.topic_deletion_disabled:
                answer.error_code = ErrorCode.invalid_request
    return response
