"""AlterClientQuotas (49), v0–1: sets and removes client quotas. Decided by the controller."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 49
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await to_controller(ctx, request, ctx.broker.controller.alter_client_quotas)
    except KafkaError as error:
        return Struct(entries=[refused(error, entity=entry.entity) for entry in request.entries])
