"""The common part of ConsumerGroupDescribe and ShareGroupDescribe: one answer per group."""

from collections.abc import Awaitable, Callable

from odradek_broker.group.describing import undescribed
from odradek_broker.handlers.authorization import operations_of
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.acl_codes import AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct


async def describe_each(
    ctx: RequestContext,
    request: Struct,
    describe: Callable[[str], Awaitable[Struct]],
    no_message: str | None,
) -> Struct:
    """`no_message`: the error message of a refusal that has none."""
    groups = []
    for group_id in request.group_ids:
        if not group_id:
            groups.append(undescribed(group_id, None, ErrorCode.invalid_group_id))
            continue
        try:
            group = await describe(group_id)
        except KafkaError as error:
            groups.append(undescribed(group_id, error.message or no_message, error.code))
            continue
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = operations_of(ctx, AclResource.GROUP, group_id)
        groups.append(group)
    return Struct(groups=groups)
