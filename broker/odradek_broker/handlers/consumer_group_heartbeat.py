"""ConsumerGroupHeartbeat (68), v0–1: join a group of the consumer protocol, stay in it, leave it.

The one request of members of KIP-848's protocol: it has their subscription and the partitions that
they own, the response has the partitions that they should own. From v1 on the client generates its
member id, and may subscribe with a regular expression (RE2); with an authorizer, the expression
matches topics that the client may describe. A classic group is converted online when a member of
this protocol joins it.
"""

from collections.abc import Callable

from odradek_broker.handlers.authorization import Check
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 68
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await ctx.broker.consumer_groups.heartbeat(
            request, ctx.api_version, ctx.client_id or "", f"/{ctx.client_host}", _may_describe(ctx)
        )
    except KafkaError as error:
        return Struct(
            error_code=error.code,
            error_message=error.message,
            member_id=None,
            member_epoch=0,
            assignment=None,
        )


def _may_describe(ctx: RequestContext) -> Callable[[str], bool] | None:
    if ctx.broker.authorizer is None:
        return None
    check = Check(ctx)
    # Filtering topics that the member may not describe is no denied request: not logged, as in
    # Kafka.
    return lambda name: check.allows(
        AclOperation.DESCRIBE, AclResource.TOPIC, name, log_denied=False
    )
