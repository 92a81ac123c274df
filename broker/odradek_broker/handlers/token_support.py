"""Parts that the requests about delegation tokens share.

Tokens can be asked for on some connections only, as in Apache Kafka. Not on a connection that a
token has authenticated (a token would outlive its own expiry), and not without authentication
(plaintext; TLS without a certificate).
"""

from collections.abc import Awaitable, Callable

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.model.principal import ANONYMOUS, Principal
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

REFUSED_MS = -1  # the expiry in the answer to a request that no controller has seen


def token_requests_allowed(ctx: RequestContext) -> bool:
    if ctx.principal.by_token:
        return False
    if ctx.is_forwarded:  # the broker that the client is connected to has looked at the listener
        return True
    listener = ctx.broker.listener_security.get(ctx.listener)
    if listener is None:
        return False
    if listener.sasl is not None:
        return True
    return listener.tls is not None and ctx.principal != ANONYMOUS


async def change_expiry(
    ctx: RequestContext,
    request: Struct,
    change: Callable[[Struct, Principal], Awaitable[Struct]],
) -> Struct:
    """Renews or expires a token: `change` is the controller's, which finds it by its HMAC."""

    async def decide(request: Struct) -> Struct:
        return await change(request, ctx.principal)

    code = ErrorCode.delegation_token_request_not_allowed
    if token_requests_allowed(ctx):
        try:
            return await to_controller(ctx, request, decide)
        except KafkaError as error:
            code = error.code
    return Struct(error_code=code, expiry_timestamp=REFUSED_MS)
