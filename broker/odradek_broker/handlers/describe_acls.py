"""DescribeAcls (29), v1–3: refused with SECURITY_DISABLED, because there is no authorizer yet."""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 29
VERSIONS = range(1, 4)


def handle(ctx: RequestContext, request: Struct) -> Struct:  # noqa: ARG001
    return Struct(
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured on the broker",
        resources=[],
    )
