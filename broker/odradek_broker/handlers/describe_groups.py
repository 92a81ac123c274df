"""DescribeGroups (15), v0–6: state, members and assignments of classic groups.

An unknown group is `Dead`; from v6 on also GROUP_ID_NOT_FOUND.
"""

from odradek_broker.handlers.authorization import operations_of
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.acl_codes import AclResource
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 15
VERSIONS = range(0, 7)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    groups = []
    for group_id in request.groups:
        try:
            group = await ctx.broker.groups.describe(group_id, ctx.api_version)
        except KafkaError as error:
            group = Struct(
                error_code=error.code,
                group_id=group_id,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = operations_of(ctx, AclResource.GROUP, group_id)
        groups.append(group)
    return Struct(groups=groups)
