"""DeleteAcls (31), v1–3: decided by the controller; SECURITY_DISABLED without an authorizer."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 31
VERSIONS = range(1, 4)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    async def decide(request: Struct) -> Struct:
        if ctx.broker.authorizer is None:
            raise KafkaError(ErrorCode.security_disabled, "No Authorizer is configured.")
        return await ctx.broker.controller.delete_acls(request)

    try:
        return await to_controller(ctx, request, decide)
    except KafkaError as error:
        results = [refused(error, matching_acls=[]) for _ in request.filters]
        return Struct(filter_results=results)
