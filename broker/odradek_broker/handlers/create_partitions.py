"""CreatePartitions (37), v0–3: adds partitions to topics. Decided by the controller."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_broker.handlers.mutations import limited
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 37
VERSIONS = range(0, 4)
# Clients know THROTTLING_QUOTA_EXCEEDED from this version on.
STRICT_FROM = 3


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await to_controller(
            ctx, request, limited(ctx, ctx.broker.controller.create_partitions, STRICT_FROM)
        )
    except KafkaError as error:
        return Struct(results=[refused(error, name=topic.name) for topic in request.topics])
