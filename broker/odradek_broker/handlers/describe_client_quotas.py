"""DescribeClientQuotas (48), v0–1: there are no quotas yet, so nothing matches any filter."""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 48
VERSIONS = range(0, 2)

ENTITY_TYPES = frozenset({"user", "client-id", "ip"})
EXACT, DEFAULT, ANY = 0, 1, 2


def handle(ctx: RequestContext, request: Struct) -> Struct:  # noqa: ARG001
    try:
        _check(request.components)
    except KafkaError as error:
        return Struct(error_code=error.code, error_message=error.message, entries=None)
    return Struct(error_code=ErrorCode.none, error_message="", entries=[])


def _check(components: list[Struct]) -> None:
    seen = set()
    for component in components:
        kind = component.entity_type
        if component.match_type not in (EXACT, DEFAULT, ANY):
            reason = f"Unknown match type {component.match_type}"
            raise KafkaError(ErrorCode.invalid_request, reason)
        if component.match_type == EXACT and component.match is None:
            reason = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise KafkaError(ErrorCode.invalid_request, reason)
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        if kind in seen:
            reason = f"Entity type {kind} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.invalid_request, reason)
        seen.add(kind)
