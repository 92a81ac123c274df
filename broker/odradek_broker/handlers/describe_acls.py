"""DescribeAcls (29), v1–3: every broker answers from its image, grouped by resource pattern.

SECURITY_DISABLED without an authorizer.
"""

from odradek_broker.controller.acls import filter_of, matching_acls
from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.acl import Acl
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 29
VERSIONS = range(1, 4)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    if ctx.broker.authorizer is None:
        return Struct(
            error_code=ErrorCode.security_disabled,
            error_message="No Authorizer is configured on the broker",
            resources=[],
        )
    patterns: dict[tuple[int, str, int], list[Acl]] = {}
    for _, acl in matching_acls(ctx.broker.metadata.image, filter_of(request)):
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        patterns.setdefault(key, []).append(acl)
    return Struct(
        error_code=ErrorCode.none,
        error_message="",
        resources=[
            Struct(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    Struct(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in patterns.items()
        ],
    )
