"""The connections on which delegation tokens can be asked for, as in Apache Kafka.

Not on a connection that a token has authenticated (a token would outlive its own expiry), and not
without authentication (plaintext; TLS without a certificate).
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.principal import ANONYMOUS

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
