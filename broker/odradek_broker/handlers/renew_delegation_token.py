"""RenewDelegationToken (39), v1–2: the owner or a renewer gives a token more time.

It never lives longer than the maximum that was fixed when it was created.

Decided by the controller, which finds the token by its HMAC.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.token_support import REFUSED_MS, token_requests_allowed
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 39
VERSIONS = range(1, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    async def decide(request: Struct) -> Struct:
        return await ctx.broker.controller.renew_delegation_token(request, ctx.principal)

    code = ErrorCode.delegation_token_request_not_allowed
    if token_requests_allowed(ctx):
        try:
            return await to_controller(ctx, request, decide)
        except KafkaError as error:
            code = error.code
    return Struct(error_code=code, expiry_timestamp=REFUSED_MS)
