"""CreateAcls and DeleteAcls, with the errors of Apache Kafka. Decides only; see `result.py`."""

from collections.abc import Iterable
from random import Random
from uuid import UUID

from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from odradek_broker.model.acl import CLUSTER_NAME, Acl, AclFilter, from_code
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

# Kafka's limit of the records that one request may cause.
RECORDS_PER_REQUEST_MAX = 10_000


def create_acls(image: MetadataImage, request: Struct, rng: Random) -> ControllerResult[Struct]:
    """An ACL that exists already is a success without a record."""
    if len(request.creations) > RECORDS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"Cannot create more than {RECORDS_PER_REQUEST_MAX} ACLs in one request",
        )
    records: list[MetadataRecord] = []
    new: set[Acl] = set()
    results = []
    for creation in request.creations:
        acl = _acl_of(creation)
        message = _reason_against(acl)
        if message is None and acl not in image.acl_ids and acl not in new:
            new.add(acl)
            records.append(AccessControlEntryRecord(_random_uuid(rng), *acl))
        code = ErrorCode.none if message is None else ErrorCode.invalid_request
        results.append(Struct(error_code=code, error_message=message or ""))
    return ControllerResult(records, Struct(results=results))


def _acl_of(creation: Struct) -> Acl:
    return Acl(
        from_code(AclResource, creation.resource_type),
        creation.resource_name,
        from_code(PatternType, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        from_code(AclOperation, creation.operation),
        from_code(AclPermission, creation.permission_type),
    )


def _reason_against(acl: Acl) -> str | None:
    if acl.resource_type is AclResource.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type in (AclResource.UNKNOWN, AclResource.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    return None


def delete_acls(image: MetadataImage, request: Struct) -> ControllerResult[Struct]:
    """Every filter gets the ACLs that it matches, also those that an earlier one matched too."""
    removed: dict[UUID, MetadataRecord] = {}
    results = []
    for asked in request.filters:
        found = filter_of(asked)
        message = _unknown_part(found)
        matching = [] if message else list(matching_acls(image, found))
        if len(removed) + len(matching) > RECORDS_PER_REQUEST_MAX:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete "
                "operation.",
            )
        for acl_id, _ in matching:
            removed[acl_id] = RemoveAccessControlEntryRecord(acl_id)
        code = ErrorCode.invalid_request if message else ErrorCode.none
        results.append(
            Struct(
                error_code=code,
                error_message=message or "",
                matching_acls=[_matched(acl) for _, acl in matching],
            )
        )
    return ControllerResult(list(removed.values()), Struct(filter_results=results))


def filter_of(asked: Struct) -> AclFilter:
    """The filter of a DescribeAcls request, or one of a DeleteAcls request."""
    return AclFilter(
        from_code(AclResource, asked.resource_type_filter),
        asked.resource_name_filter,
        from_code(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        from_code(AclOperation, asked.operation),
        from_code(AclPermission, asked.permission_type),
    )


def matching_acls(image: MetadataImage, wanted: AclFilter) -> Iterable[tuple[UUID, Acl]]:
    return ((acl_id, acl) for acl_id, acl in image.acls.items() if wanted.matches(acl))


def _unknown_part(wanted: AclFilter) -> str | None:
    if wanted.resource_type is AclResource.UNKNOWN or wanted.pattern_type is PatternType.UNKNOWN:
        return "Unknown patternFilter."
    if wanted.operation is AclOperation.UNKNOWN or wanted.permission is AclPermission.UNKNOWN:
        return "Unknown entryFilter."
    return None


def _matched(acl: Acl) -> Struct:
    return Struct(
        error_code=ErrorCode.none,
        error_message="",
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _random_uuid(rng: Random) -> UUID:
    return UUID(int=rng.getrandbits(128), version=4)
