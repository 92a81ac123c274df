"""DescribeDelegationToken (41), v1–3: the tokens that the client may see, with their HMACs.

Every broker answers from its image. Without further rights these are the tokens that the client
owns, has requested or may renew; others need DESCRIBE on the token, or DESCRIBE_TOKENS on its
owner.
"""

from odradek_broker.handlers.authorization import Check
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.token_support import token_requests_allowed
from odradek_broker.metadata.delegation_tokens import TokenKey
from odradek_broker.metadata.records import DelegationTokenRecord
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 41
VERSIONS = range(1, 4)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    if not token_requests_allowed(ctx):
        return Struct(error_code=ErrorCode.delegation_token_request_not_allowed, tokens=[])
    key = TokenKey.of(ctx.broker.settings)
    if key is None:
        return Struct(error_code=ErrorCode.delegation_token_auth_disabled, tokens=[])
    tokens = list(ctx.broker.metadata.image.tokens.values())
    if request.owners is not None:
        owners = [f"{one.principal_type}:{one.principal_name}" for one in request.owners]
        tokens = [token for token in tokens if any(map(token.concerns, owners))]
    check = Check(ctx) if ctx.broker.authorizer is not None else None
    return Struct(
        error_code=ErrorCode.none,
        tokens=[_described(token, key) for token in tokens if _shows(ctx, check, token)],
    )


def _shows(ctx: RequestContext, check: Check | None, token: DelegationTokenRecord) -> bool:
    return (
        check is None
        or token.concerns(str(ctx.principal))
        or check.allows(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token.token_id)
        or check.allows(AclOperation.DESCRIBE_TOKENS, AclResource.USER, token.owner)
    )


def _described(token: DelegationTokenRecord, key: TokenKey) -> Struct:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":")
    renewers = (renewer.partition(":") for renewer in token.renewers)
    return Struct(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=key.hmac_of(token.token_id),
        renewers=[Struct(principal_type=kind, principal_name=name) for kind, _, name in renewers],
    )
