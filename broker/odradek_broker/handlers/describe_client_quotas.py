"""DescribeClientQuotas (48), v0–1: the quotas of the entities that match a filter.

A component of the filter matches one name (EXACT), the default of the type (DEFAULT) or any name
and the default (ANY). With `strict`, entities with types that the filter does not name are left
out. Without components: all, unless strict.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaEntity
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 48
VERSIONS = range(0, 2)

EXACT, DEFAULT, ANY = 0, 1, 2


def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        wanted = _filter_of(request.components)
    except KafkaError as error:
        return Struct(error_code=error.code, error_message=error.message, entries=None)
    strict = request.strict
    entries = [
        Struct(
            entity=[Struct(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[Struct(key=key, value=limit) for key, limit in quotas.items()],
        )
        for entity, quotas in ctx.broker.metadata.image.client_quotas.items()
        if _matches(entity, wanted, strict)
    ]
    return Struct(error_code=ErrorCode.none, error_message="", entries=entries)


def _filter_of(components: list[Struct]) -> dict[str, Struct]:
    wanted: dict[str, Struct] = {}
    for component in components:
        kind, match_type = component.entity_type, component.match_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        if match_type not in (EXACT, DEFAULT, ANY):
            raise _invalid(f"Unknown match type {match_type}")
        if match_type == EXACT and component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type != EXACT and component.match is not None:
            name = "MATCH_TYPE_DEFAULT" if match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise _invalid(f"Request specified {name}, but also specified a match string.")
        wanted[kind] = component
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return wanted


def _matches(entity: QuotaEntity, wanted: dict[str, Struct], strict: bool) -> bool:
    names = dict(entity)
    if strict and (len(names) != len(wanted) or not wanted):
        return False
    for kind, component in wanted.items():
        if kind not in names:
            return False
        if component.match_type == EXACT and names[kind] != component.match:
            return False
        if component.match_type == DEFAULT and names[kind] is not None:
            return False
    return True


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, reason)
