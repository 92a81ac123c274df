"""SaslHandshake (17), v0–1: the client chooses a SASL mechanism.

After v0 the tokens come without Kafka's headers. A mechanism that the listener does not offer is
answered with those that it offers, and the connection is closed. On a listener without SASL, and
after a login whose session does not expire, the answer is ILLEGAL_SASL_STATE, as in Kafka.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.sasl_authenticate import close_later
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 17
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    authentication = ctx.authentication
    if authentication is None or authentication.is_final:
        return Struct(error_code=ErrorCode.illegal_sasl_state, mechanisms=[])
    offered = sorted(authentication.rules.mechanisms)
    if authentication.choose(request.mechanism, raw_tokens=ctx.api_version == 0):
        return Struct(error_code=ErrorCode.none, mechanisms=offered)
    await close_later(
        ctx, authentication, f"SASL mechanism {request.mechanism[:40]!r} is not offered"
    )
    return Struct(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=offered)
