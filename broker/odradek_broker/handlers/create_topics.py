"""CreateTopics (19), v2–7: decided by the controller; a new topic is ready when this answers.

Version 5 and later tell the topic's effective configuration. Left out: throttling by quota.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.messages import refused
from odradek_broker.model.errors import KafkaError
from odradek_broker.wire.struct import Struct

API_KEY = 19
VERSIONS = range(2, 8)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await ctx.broker.controller.create_topics(request)
    except KafkaError as error:
        return Struct(topics=[refused(error, name=topic.name) for topic in request.topics])
