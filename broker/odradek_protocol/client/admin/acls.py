"""List, add and remove ACLs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_protocol.acl_codes import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from odradek_protocol.client.errors import raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import AnyBroker, Controller
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct


@dataclass(frozen=True)
class AclSelection:
    """Selects entries; a field that is not given matches everything."""

    kind: AclResource = AclResource.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


__all__ = [
    "AclEntry",
    "AclSelection",
    "add_acls",
    "list_acls",
    "remove_acls",
    "remove_entries",
]


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
    """Removes the entries that the selection matches, and returns them."""
    return _remove(client, [selection])


def remove_entries(client: KafkaClient, entries: Iterable[AclEntry]) -> list[AclEntry]:
    """Removes exactly these, and returns those that existed."""
    exactly = [
        AclSelection(e.kind, e.name, e.pattern, e.principal, e.host, e.operation, e.permission)
        for e in entries
    ]
    return _remove(client, exactly)


def _remove(client: KafkaClient, selections: Iterable[AclSelection]) -> list[AclEntry]:
    request = Struct(filters=[_filter(selection) for selection in selections])
    results = client.call(Controller(), ApiKey.DELETE_ACLS, request).filter_results
    for result in results:
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
        for result in results
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
