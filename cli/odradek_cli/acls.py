"""`odradek acls`: who may do what with which resource."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, confirm
from odradek_cli.output import print_listed

if TYPE_CHECKING:
    from odradek_protocol.acl_codes import AclResource
    from odradek_protocol.client.admin.acls import AclEntry

app = typer.Typer(help="List, add and remove ACLs.", no_args_is_help=True)

CLUSTER_NAME = "kafka-cluster"
RESOURCES = "--topic, --group, --transactional-id, --cluster, --token and --user-principal"


class What(StrEnum):
    """The operations of an ACL, as they are written on the command line."""

    all = "all"
    read = "read"
    write = "write"
    create = "create"
    delete = "delete"
    alter = "alter"
    describe = "describe"
    cluster_action = "cluster-action"
    describe_configs = "describe-configs"
    alter_configs = "alter-configs"
    idempotent_write = "idempotent-write"
    create_tokens = "create-tokens"
    describe_tokens = "describe-tokens"


Principal = Annotated[str | None, typer.Option("--principal", help="For example User:alice.")]
Host = Annotated[str | None, typer.Option("--host", help="An address, or * for all.")]
TopicName = Annotated[str | None, typer.Option("--topic", help="A topic, or * for all.")]
GroupName = Annotated[str | None, typer.Option("--group", help="A group, or * for all.")]
TransactionalId = Annotated[
    str | None, typer.Option("--transactional-id", help="A transactional id, or * for all.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
TokenId = Annotated[
    str | None, typer.Option("--token", help="A delegation token by its id, or * for all.")
]
OfUser = Annotated[
    str | None,
    typer.Option(
        "--user-principal",
        help="A user whose tokens others may create or describe: User:alice, or * for all.",
    ),
]
Prefixed = Annotated[
    bool, typer.Option("--prefixed", help="The name is a prefix: all names that begin with it.")
]


@app.command("list")
def list_(
    topic: TopicName = None,
    group: GroupName = None,
    transactional_id: TransactionalId = None,
    cluster: OfCluster = False,
    token: TokenId = None,
    user: OfUser = None,
    principal: Principal = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show ACLs: all of them, or those of one resource or principal."""
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.acls import AclSelection, list_acls

    found = _resource(topic, group, transactional_id, cluster, token, user)
    selection = AclSelection(principal=principal)
    if found is not None:
        selection = AclSelection(kind=found[0], name=found[1], principal=principal)
    with connect(bootstrap) as client:
        _show(list_acls(client, selection), as_json=as_json)


@app.command()
def add(
    principal: Annotated[str, typer.Option("--principal", help="For example User:alice.")],
    operation: Annotated[list[What], typer.Option("--operation", help="May be repeated.")],
    topic: TopicName = None,
    group: GroupName = None,
    transactional_id: TransactionalId = None,
    cluster: OfCluster = False,
    token: TokenId = None,
    user: OfUser = None,
    prefixed: Prefixed = False,
    host: Annotated[str, typer.Option("--host", help="An address, or * for all.")] = "*",
    deny: Annotated[
        bool, typer.Option("--deny", help="Deny instead of allow; deny wins over allow.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Allow (or deny) a principal operations on one resource."""
    from odradek_cli.client import connect
    from odradek_protocol.acl_codes import AclOperation, AclPermission, PatternType
    from odradek_protocol.client.admin.acls import AclEntry, add_acls

    kind, name = _needed(_resource(topic, group, transactional_id, cluster, token, user))
    if ":" not in principal:
        raise CliError(f"--principal {principal}: must be TYPE:NAME, for example User:alice")
    entries = [
        AclEntry(
            kind,
            name,
            PatternType.PREFIXED if prefixed else PatternType.LITERAL,
            principal,
            host,
            AclOperation[one.name.upper()],
            AclPermission.DENY if deny else AclPermission.ALLOW,
        )
        for one in operation
    ]
    with connect(bootstrap) as client:
        add_acls(client, entries)
    _show(entries, as_json=as_json)


@app.command()
def remove(
    topic: TopicName = None,
    group: GroupName = None,
    transactional_id: TransactionalId = None,
    cluster: OfCluster = False,
    token: TokenId = None,
    user: OfUser = None,
    prefixed: Prefixed = False,
    principal: Principal = None,
    operation: Annotated[What | None, typer.Option("--operation", help="Only these.")] = None,
    host: Host = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Remove the ACLs of one resource, or those of them that match."""
    from odradek_cli.client import connect
    from odradek_protocol.acl_codes import AclOperation, PatternType
    from odradek_protocol.client.admin.acls import AclSelection, remove_acls

    kind, name = _needed(_resource(topic, group, transactional_id, cluster, token, user))
    selection = AclSelection(
        kind,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        AclOperation.ANY if operation is None else AclOperation[operation.name.upper()],
    )
    confirm(f"Remove the ACLs of {kind.name.lower()} {name}?", yes)
    with connect(bootstrap) as client:
        _show(remove_acls(client, selection), as_json=as_json)


def _resource(
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    token: str | None,
    user: str | None,
) -> tuple[AclResource, str] | None:
    from odradek_protocol.acl_codes import AclResource

    given = {
        AclResource.TOPIC: topic,
        AclResource.GROUP: group,
        AclResource.TRANSACTIONAL_ID: transactional_id,
        AclResource.CLUSTER: CLUSTER_NAME if cluster else None,
        AclResource.DELEGATION_TOKEN: token,
        AclResource.USER: user,
    }
    named = [(kind, name) for kind, name in given.items() if name is not None]
    if len(named) > 1:
        raise CliError(f"give one of {RESOURCES}")
    return named[0] if named else None


def _needed(resource: tuple[AclResource, str] | None) -> tuple[AclResource, str]:
    if resource is None:
        raise CliError(f"name the resource: one of {RESOURCES}")
    return resource


def _show(entries: list[AclEntry], *, as_json: bool) -> None:
    rows = [
        {
            "resource": entry.kind.name.lower(),
            "name": entry.name,
            "pattern": entry.pattern.name.lower(),
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation.name.lower(),
            "permission": entry.permission.name.lower(),
        }
        for entry in entries
    ]
    print_listed(rows, as_json, list(rows[0]) if rows else [], "No ACLs.")
