"""RenewDelegationToken (39), v1–2: the owner or a renewer gives a token more time.

It never lives longer than the maximum that was fixed when it was created.

Decided by the controller, which finds the token by its HMAC.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.token_support import change_expiry
from odradek_protocol.messages.struct import Struct

API_KEY = 39
VERSIONS = range(1, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await change_expiry(ctx, request, ctx.broker.controller.renew_delegation_token)
