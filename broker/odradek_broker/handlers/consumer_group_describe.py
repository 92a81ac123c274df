"""ConsumerGroupDescribe (69), v0–1: epochs and members, with current and target assignments.

GROUP_ID_NOT_FOUND for classic groups too: clients then send DescribeGroups.
"""

from odradek_broker.group.consumer.describe import unknown
from odradek_broker.handlers.authorization import operations_of
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.acl_codes import AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 69
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    groups = []
    for group_id in request.group_ids:
        if not group_id:
            groups.append(unknown(group_id, None, ErrorCode.invalid_group_id))
            continue
        try:
            group = await ctx.broker.consumer_groups.describe(group_id)
        except KafkaError as error:
            groups.append(unknown(group_id, error.message or "", error.code))
            continue
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = operations_of(ctx, AclResource.GROUP, group_id)
        groups.append(group)
    return Struct(groups=groups)
