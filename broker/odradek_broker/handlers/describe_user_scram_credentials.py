"""DescribeUserScramCredentials (50), v0: mechanisms and iterations of users, never keys or salt."""

from collections import Counter

from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.scram import ScramImage
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 50
VERSIONS = range(0, 1)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    """Without users in the request: all of them."""
    scram = ctx.broker.metadata.image.scram
    if request.users:
        asked = Counter(user.name for user in request.users)
        results = [_result(scram, user, times) for user, times in asked.items()]
    else:
        results = [_result(scram, user) for user in {key.user for key in scram.credentials}]
    return Struct(error_code=ErrorCode.none, error_message="", results=results)


def _result(scram: ScramImage, user: str, times: int = 1) -> Struct:
    credentials = scram.of_user(user)
    if times > 1:
        code = ErrorCode.duplicate_resource
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif not credentials:
        code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {user}"
    else:
        infos = [
            Struct(mechanism=int(mechanism), iterations=credential.iterations)
            for mechanism, credential in credentials.items()
        ]
        return Struct(
            user=user, error_code=ErrorCode.none, error_message="", credential_infos=infos
        )
    return Struct(user=user, error_code=code, error_message=message, credential_infos=[])
