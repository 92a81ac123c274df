"""StreamsGroupDescribe (89), v0: epochs, topology and members of streams groups, with tasks."""

from odradek_broker.group.streams.describe import unknown
from odradek_broker.handlers.authorization import operations_of
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.streams_support import check_enabled
from odradek_protocol.acl_codes import AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 89
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    groups = []
    for group_id in request.group_ids:
        try:
            check_enabled(ctx)
            if not group_id:
                raise KafkaError(ErrorCode.invalid_group_id)
            group = await ctx.broker.streams_groups.describe(group_id)
        except KafkaError as error:
            groups.append(unknown(group_id, error.message or None, error.code))
            continue
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = operations_of(ctx, AclResource.GROUP, group_id)
        groups.append(group)
    return Struct(groups=groups)
