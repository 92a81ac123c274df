"""ExpireDelegationToken (40), v1–2: the owner or a renewer ends a token at once, or in some time.

Decided by the controller, which finds the token by its HMAC. Sessions that began with the token go
on until the expiry that it had then, as in Kafka.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.token_support import change_expiry
from odradek_protocol.messages.struct import Struct

API_KEY = 40
VERSIONS = range(1, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await change_expiry(ctx, request, ctx.broker.controller.expire_delegation_token)
