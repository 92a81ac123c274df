"""Requests that create or delete partitions, under the quota `controller_mutation_rate`.

The quota is the active controller's: it counts the partitions, and its response names the time to
throttle. The broker to which the client is connected pauses the connection (dispatcher).
"""

from collections.abc import Awaitable, Callable

from odradek_broker.controller.topics import Charge
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import Decide as ToController
from odradek_broker.handlers.throttling import MutationQuota
from odradek_protocol.messages.struct import Struct

Decide = Callable[[Struct, Charge], Awaitable[Struct]]


def limited(ctx: RequestContext, decide: Decide, strict_from: int) -> ToController:
    """`decide` with the client's quota; on the active controller, or forwarded to it."""

    async def decided(request: Struct) -> Struct:
        quota = MutationQuota(ctx, strict_from)
        response = await decide(request, quota.charge)
        response.throttle_time = quota.throttle_ms
        return response

    return decided
