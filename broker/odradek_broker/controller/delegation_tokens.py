"""Create, renew and expire delegation tokens (KIP-48). Decides only; see `result.py`.

The broker that a client sent its request to has checked its connection and its rights; here count
the owner and the renewers of a token. Times are wall-clock milliseconds, as in the records.
"""

import base64
from dataclasses import dataclass, replace
from random import Random

from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.delegation_tokens import TokenKey
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import (
    DelegationTokenRecord,
    MetadataRecord,
    RemoveDelegationTokenRecord,
)
from odradek_broker.model.principal import Principal
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

TIME_MAX_MS = 2**63 - 1  # an int64 of the record
# Expired tokens that one decision removes; the next one follows at once, as in Apache Kafka.
REMOVED_MAX = 1000


@dataclass(frozen=True)
class TokenRules:
    """`key` None: delegation tokens are disabled."""

    key: TokenKey | None
    max_lifetime_ms: int
    expiry_time_ms: int
    check_interval_ms: int

    @classmethod
    def of(cls, settings: Settings) -> "TokenRules":
        return cls(
            TokenKey.of(settings),
            settings.int("delegation.token.max.lifetime.ms"),
            settings.int("delegation.token.expiry.time.ms"),
            settings.int("delegation.token.expiry.check.interval.ms"),
        )


@dataclass(frozen=True)
class Asker:
    """Who asks for a change, and when."""

    principal: Principal
    now_ms: int


def create(rules: TokenRules, request: Struct, by: Asker, rng: Random) -> ControllerResult[Struct]:
    """The answer of CreateDelegationToken, with the HMAC. Every broker has checked the renewers."""
    owner = owner_of(request, by.principal)
    if rules.key is None:
        code = ErrorCode.delegation_token_auth_disabled
        return ControllerResult([], creation_answer(code, owner, by.principal))
    lifetime_ms = rules.max_lifetime_ms
    if request.max_lifetime > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime)
    max_timestamp = _later(by.now_ms, lifetime_ms)
    token = DelegationTokenRecord(
        owner=str(owner),
        requester=str(by.principal),
        renewers=tuple(f"{r.principal_type}:{r.principal_name}" for r in request.renewers),
        issue_timestamp=by.now_ms,
        max_timestamp=max_timestamp,
        expiration_timestamp=min(max_timestamp, _later(by.now_ms, rules.expiry_time_ms)),
        token_id=_new_id(rng),
    )
    answer = creation_answer(
        ErrorCode.none, owner, by.principal, token, rules.key.hmac_of(token.token_id)
    )
    return ControllerResult([token], answer)


def owner_of(request: Struct, requester: Principal) -> Principal:
    """Of the token that a CreateDelegationToken request asks for."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def creation_answer(
    code: ErrorCode,
    owner: Principal,
    requester: Principal,
    token: DelegationTokenRecord | None = None,
    hmac: bytes = b"",
) -> Struct:
    return Struct(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp if token else 0,
        expiry_timestamp=token.expiration_timestamp if token else 0,
        max_timestamp=token.max_timestamp if token else 0,
        token_id=token.token_id if token else "",
        hmac=hmac,
    )


def renew(
    image: MetadataImage, rules: TokenRules, request: Struct, by: Asker
) -> ControllerResult[Struct]:
    if rules.key is None:
        return _refused(ErrorCode.delegation_token_auth_disabled)
    token = rules.key.find(image.tokens, bytes(request.hmac))
    if token is None:
        return _refused(ErrorCode.delegation_token_not_found)
    if token.is_expired(by.now_ms):
        return _refused(ErrorCode.delegation_token_expired)
    if not _may_renew(token, by.principal):
        return _refused(ErrorCode.delegation_token_owner_mismatch)
    period_ms = rules.expiry_time_ms
    if request.renew_period > 0:
        period_ms = min(period_ms, request.renew_period)
    return _expires_in(token, by.now_ms, period_ms)


def expire(
    image: MetadataImage, rules: TokenRules, request: Struct, by: Asker
) -> ControllerResult[Struct]:
    """A negative period removes the token, also an expired one."""
    if rules.key is None:
        return _refused(ErrorCode.delegation_token_auth_disabled)
    token = rules.key.find(image.tokens, bytes(request.hmac))
    if token is None:
        return _refused(ErrorCode.delegation_token_not_found)
    if not _may_renew(token, by.principal):
        return _refused(ErrorCode.delegation_token_owner_mismatch)
    period_ms = request.expiry_time_period
    if period_ms < 0:
        answer = Struct(error_code=ErrorCode.none, expiry_timestamp=by.now_ms)
        return ControllerResult([RemoveDelegationTokenRecord(token.token_id)], answer)
    if token.is_expired(by.now_ms):
        return _refused(ErrorCode.delegation_token_expired)
    return _expires_in(token, by.now_ms, period_ms)


def remove_expired(image: MetadataImage, now_ms: int) -> list[MetadataRecord]:
    """The controller calls it every `delegation.token.expiry.check.interval.ms`."""
    expired = [token.token_id for token in image.tokens.values() if token.is_expired(now_ms)]
    return [RemoveDelegationTokenRecord(token_id) for token_id in expired[:REMOVED_MAX]]


def _may_renew(token: DelegationTokenRecord, principal: Principal) -> bool:
    return str(principal) in (token.owner, *token.renewers)


def _expires_in(
    token: DelegationTokenRecord, now_ms: int, period_ms: int
) -> ControllerResult[Struct]:
    at_ms = min(token.max_timestamp, _later(now_ms, period_ms))
    answer = Struct(error_code=ErrorCode.none, expiry_timestamp=at_ms)
    return ControllerResult([replace(token, expiration_timestamp=at_ms)], answer)


def _refused(code: ErrorCode) -> ControllerResult[Struct]:
    return ControllerResult([], Struct(error_code=code, expiry_timestamp=0))


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, TIME_MAX_MS)


def _new_id(rng: Random) -> str:
    """22 characters, like Kafka's: a random UUID in base64, which must not look like an option."""
    while True:
        token_id = base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")
        if not token_id.startswith("-"):
            return token_id
