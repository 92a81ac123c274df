"""AlterClientQuotas: sets and removes quotas of users, client ids and IP addresses.

Checks and messages are Apache Kafka's. An entity changes as a whole or not at all; errors of one
do not affect the others. Apache Kafka also accepts host names for IP quotas, which its controller
resolves; ours accepts addresses only.
"""

import ipaddress
import math
from collections.abc import Mapping

from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    ENTITY_TYPES,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    entity_of,
)
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.image_records import quota_record
from odradek_broker.metadata.records import ClientQuotaRecord
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

# The largest value of a quota's type, and the type's name in messages; None: any number.
_Limit = tuple[float, str] | None
_CLIENT_KEYS: Mapping[str, _Limit] = {
    PRODUCER_BYTE_RATE: (float(2**63 - 1), "a LONG"),
    CONSUMER_BYTE_RATE: (float(2**63 - 1), "a LONG"),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: Mapping[str, _Limit] = {CONNECTION_CREATION_RATE: (float(2**31 - 1), "an INT")}
FRACTION_MAX = 1e-6  # of a number that has to be whole


def alter_client_quotas(image: MetadataImage, request: Struct) -> ControllerResult[Struct]:
    records: list[ClientQuotaRecord] = []
    errors: dict[QuotaEntity, KafkaError | None] = {}
    for entry in request.entries:
        names = {part.entity_type: part.entity_name for part in entry.entity}
        entity = entity_of(names)
        changes: dict[str, float | None] = {}
        repeated = entity in errors
        for op in entry.ops:
            repeated = repeated or op.key in changes
            changes[op.key] = None if op.remove else op.value
        try:
            if repeated:
                raise _invalid(f"Ignoring duplicate entity {_text(entity)}")
            records += _changed(image, entity, changes)
        except KafkaError as error:
            errors[entity] = error
        else:
            errors[entity] = None
    entries = [
        Struct(
            error_code=ErrorCode.none if error is None else error.code,
            error_message=None if error is None else error.message,
            entity=[Struct(entity_type=kind, entity_name=name) for kind, name in entity],
        )
        for entity, error in errors.items()
    ]
    return ControllerResult([] if request.validate_only else records, Struct(entries=entries))


def _changed(
    image: MetadataImage, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> list[ClientQuotaRecord]:
    keys = _keys_for(entity)
    current = image.client_quotas.get(entity, {})
    records = []
    for key, limit in changes.items():
        if limit is not None:
            _check(keys, key, limit)
        if current.get(key) != limit:
            records.append(quota_record(entity, key, limit))
    return records


def _keys_for(entity: QuotaEntity) -> Mapping[str, _Limit]:
    """The quotas that such an entity may have."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return _CLIENT_KEYS
    if USER in names or CLIENT_ID in names:
        raise _invalid(
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId"
        )
    if not _is_address(names[IP]):
        raise _invalid(f"{names[IP]} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _check(keys: Mapping[str, _Limit], key: str, limit: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not limit > 0:  # NaN too
        raise _invalid(f"Quota {key} must be greater than 0")
    whole = keys[key]
    if whole is None:
        return
    largest, type_name = whole
    if limit > largest:
        raise _invalid(f"Proposed value for {key} is too large for {type_name}.")
    if math.fmod(limit, 1.0) > FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _is_address(name: str | None) -> bool:
    try:
        return name is None or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _text(entity: QuotaEntity) -> str:
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, reason)
