"""List, add and remove ACLs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.client.errors import raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import AnyBroker, Controller
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct


@dataclass(frozen=True, order=True)
class AclEntry:
    """Who may (or may not) do what with a resource; `name` is "*" for all resources of the kind."""

    kind: AclResource
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


@dataclass(frozen=True)
class AclSelection:
    """Selects entries; what is not given matches everything."""

    kind: AclResource = AclResource.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


def list_acls(client: KafkaClient, selection: AclSelection) -> list[AclEntry]:
    answer = client.call(AnyBroker(), ApiKey.DESCRIBE_ACLS, _filter(selection))
    raise_error_in(answer)
    return sorted(
        AclEntry(
            AclResource(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    )


def add_acls(client: KafkaClient, entries: Iterable[AclEntry]) -> None:
    """Raises the first error; an entry that exists already is none."""
    creations = [
        Struct(
            resource_type=entry.kind,
            resource_name=entry.name,
            resource_pattern_type=entry.pattern,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for entry in entries
    ]
    answer = client.call(Controller(), ApiKey.CREATE_ACLS, Struct(creations=creations))
    for result in answer.results:
        raise_error_in(result)


def remove_acls(client: KafkaClient, selection: AclSelection) -> list[AclEntry]:
    """Removes what the selection matches, and returns it."""
    request = Struct(filters=[_filter(selection)])
    (result,) = client.call(Controller(), ApiKey.DELETE_ACLS, request).filter_results
    raise_error_in(result)
    return sorted(
        AclEntry(
            AclResource(acl.resource_type),
            acl.resource_name,
            PatternType(acl.pattern_type),
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
        )
        for acl in result.matching_acls
    )


def _filter(selection: AclSelection) -> Struct:
    return Struct(
        resource_type_filter=selection.kind,
        resource_name_filter=selection.name,
        pattern_type_filter=selection.pattern,
        principal_filter=selection.principal,
        host_filter=selection.host,
        operation=selection.operation,
        permission_type=selection.permission,
    )
