"""DescribeUserScramCredentials (50), v0: no user has SCRAM credentials yet."""

from collections import Counter

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 50
VERSIONS = range(0, 1)


def handle(ctx: RequestContext, request: Struct) -> Struct:  # noqa: ARG001
    results = []
    for user, times in Counter(user.name for user in request.users or ()).items():
        code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {user}"
        if times > 1:
            code = ErrorCode.duplicate_resource
            message = (
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{user}"
            )
        results.append(
            Struct(user=user, error_code=code, error_message=message, credential_infos=[])
        )
    return Struct(error_code=ErrorCode.none, error_message="", results=results)
