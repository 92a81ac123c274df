"""`odradek quotas`: limits of users, client ids and IP addresses.

    odradek quotas set --user alice --producer-byte-rate 1048576
    odradek quotas set --user alice --client-id reports --consumer-byte-rate 5000000
    odradek quotas set --default-client-id --request-percentage 50
    odradek quotas set --ip 10.0.0.7 --connection-creation-rate 5
    odradek quotas list
    odradek quotas remove --user alice                         all quotas of this entity
    odradek quotas remove --user alice --key producer_byte_rate

Bytes are per second and per broker. The most specific entity decides: docs/how-to/quotas.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.admin.quotas import Entity

app = typer.Typer(
    help="List, set and remove limits of users, client ids and addresses.", no_args_is_help=True
)

User = Annotated[str | None, typer.Option("--user", "-u", help="The quota is for this user.")]
ClientId = Annotated[
    str | None, typer.Option("--client-id", "-c", help="The quota is for this client id.")
]
Ip = Annotated[str | None, typer.Option("--ip", help="The quota is for this IP address.")]
DefaultUser = Annotated[
    bool, typer.Option("--default-user", help="For all users without a quota of their own.")
]
DefaultClientId = Annotated[
    bool,
    typer.Option("--default-client-id", help="For all client ids without a quota of their own."),
]
DefaultIp = Annotated[
    bool, typer.Option("--default-ip", help="For all addresses without a quota of their own.")
]


@app.command("list")
def list_quotas(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List all quotas."""
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin import quotas

    with connect(bootstrap) as client, about("quotas"):
        listed = quotas.list_quotas(client)
    found: list[dict[str, Any]] = [
        {"entity": entity, "quotas": dict(sorted(values.items()))}
        for entity, values in sorted(listed, key=lambda one: _text(one[0]))
    ]
    if as_json:
        print_json(found)
    elif not found:
        print("There are no quotas.")
    else:
        rows = [
            (_text(one["entity"]), key, f"{limit:g}" if limit < 1e6 else f"{limit:.0f}")
            for one in found
            for key, limit in one["quotas"].items()
        ]
        print_table(["entity", "quota", ">limit"], rows)


@app.command("set")
def set_quotas(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    default_ip: DefaultIp = False,
    producer_byte_rate: Annotated[
        float | None, typer.Option("--producer-byte-rate", help="Bytes per second.")
    ] = None,
    consumer_byte_rate: Annotated[
        float | None, typer.Option("--consumer-byte-rate", help="Bytes per second.")
    ] = None,
    request_percentage: Annotated[
        float | None, typer.Option("--request-percentage", help="Percent of one thread's time.")
    ] = None,
    controller_mutation_rate: Annotated[
        float | None,
        typer.Option("--controller-mutation-rate", help="Partitions per second."),
    ] = None,
    connection_creation_rate: Annotated[
        float | None,
        typer.Option(
            "--connection-creation-rate", help="New connections per second from an IP address."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set quotas; others of the same entity keep their values."""
    given = {
        "producer_byte_rate": producer_byte_rate,
        "consumer_byte_rate": consumer_byte_rate,
        "request_percentage": request_percentage,
        "controller_mutation_rate": controller_mutation_rate,
        "connection_creation_rate": connection_creation_rate,
    }
    limits = {key: limit for key, limit in given.items() if limit is not None}
    if not limits:
        raise UsageError("nothing to set: give a limit, for example --producer-byte-rate")
    entity = _entity(
        {"user": user, "client-id": client_id, "ip": ip},
        {"user": default_user, "client-id": default_client_id, "ip": default_ip},
    )
    _alter(bootstrap, entity, limits)
    if as_json:
        print_json({"entity": entity, "quotas": limits})
    else:
        print(f"Set {', '.join(limits)} of {_text(entity)}.")


@app.command()
def remove(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    default_ip: DefaultIp = False,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="Only this quota; repeatable.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Remove quotas of an entity: all, or those named."""
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin import quotas

    entity = _entity(
        {"user": user, "client-id": client_id, "ip": ip},
        {"user": default_user, "client-id": default_client_id, "ip": default_ip},
    )
    with connect(bootstrap) as client, about(_text(entity)):
        known = next((v for e, v in quotas.list_quotas(client) if e == entity), {})
    doomed = key or sorted(known)
    missing = [name for name in doomed if name not in known]
    if missing or not doomed:
        raise CliError(f"{_text(entity)}: there is no quota {', '.join(missing)}".rstrip())
    _alter(bootstrap, entity, dict.fromkeys(doomed))
    if as_json:
        print_json({"entity": entity, "removed": doomed})
    else:
        print(f"Removed {', '.join(doomed)} of {_text(entity)}.")


def _alter(bootstrap: str, entity: Entity, changes: Mapping[str, float | None]) -> None:
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin.quotas import alter_quotas

    with connect(bootstrap) as client, about(_text(entity)):
        alter_quotas(client, entity, changes)


def _entity(names: dict[str, str | None], defaults: dict[str, bool]) -> dict[str, str | None]:
    for kind, name in names.items():
        if name is not None and defaults[kind]:
            raise UsageError(f"give --{kind} or --default-{kind}, not both")
    entity = {k: name for k, name in names.items() if name is not None or defaults[k]}
    if not entity:
        raise UsageError("name an entity: --user, --client-id, --ip or one of their defaults")
    return entity


def _text(entity: Entity) -> str:
    """user alice, client-id (default)"""
    order = ("user", "client-id", "ip")
    kinds = sorted(entity, key=lambda kind: order.index(kind) if kind in order else len(order))
    return ", ".join(f"{kind} {entity[kind] or '(default)'}" for kind in kinds)
