"""CreateDelegationToken (38), v1–3: a new token for the client, or (v3) for another owner.

Decided by the controller. A token for another owner needs CREATE_TOKENS on that user. Owner and
renewers must be users. The answer has the HMAC, the secret of the token.
"""

from odradek_broker.controller.delegation_tokens import creation_answer, owner_of
from odradek_broker.handlers.authorization import may
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.token_support import REFUSED_MS, token_requests_allowed
from odradek_broker.model.principal import USER
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 38
VERSIONS = range(1, 4)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    async def decide(request: Struct) -> Struct:
        return await ctx.broker.controller.create_delegation_token(request, ctx.principal)

    code = _error_in(ctx, request)
    if code is ErrorCode.none:
        try:
            return await to_controller(ctx, request, decide)
        except KafkaError as error:
            code = error.code
    answer = creation_answer(code, owner_of(request, ctx.principal), ctx.principal)
    answer.issue_timestamp = answer.expiry_timestamp = answer.max_timestamp = REFUSED_MS
    return answer


def _error_in(ctx: RequestContext, request: Struct) -> ErrorCode:
    if not token_requests_allowed(ctx):
        return ErrorCode.delegation_token_request_not_allowed
    owner = owner_of(request, ctx.principal)
    if owner != ctx.principal and not may(
        ctx, AclOperation.CREATE_TOKENS, AclResource.USER, str(owner)
    ):
        return ErrorCode.delegation_token_authorization_failed
    kinds = {owner.type, *(renewer.principal_type for renewer in request.renewers)}
    return ErrorCode.none if kinds == {USER} else ErrorCode.invalid_principal_type
