"""`odradek configs`: settings of topics and brokers, read and changed while they run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(help="Show and change settings of topics and brokers.", no_args_is_help=True)


class Kind(StrEnum):
    topic = "topic"
    broker = "broker"


KindArgument = Annotated[Kind, typer.Argument(help="What the name is.")]
NameArgument = Annotated[str, typer.Argument(help="A topic's name or a broker's id.")]


@dataclass
class Changes:
    """What one alteration does to each named setting; false when it does nothing."""

    set: dict[str, str] = field(default_factory=dict)
    append: dict[str, str] = field(default_factory=dict)
    subtract: dict[str, str] = field(default_factory=dict)
    delete: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.set or self.append or self.subtract or self.delete)


@app.command()
def describe(
    kind: KindArgument,
    name: NameArgument,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those at their default.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the settings that were changed, and where each value comes from."""
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    from odradek_cli.client import connect, settle

    admin = connect(bootstrap)
    resource = ConfigResource(ResourceType[kind.upper()], name)
    entries = settle(f"{kind} {name}", admin.describe_configs([resource])[resource])
    shown: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": ConfigSource(entry.source).name.lower(),
            "read_only": entry.is_read_only,
        }
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
        if everything or not entry.is_default
    ]
    if as_json:
        print_json(shown)
    elif not shown:
        print(f"{kind} {name}: everything at its default (--all shows it).")
    else:
        rows = [(s["name"], s["value"], s["source"].replace("_", " ")) for s in shown]
        print_table(["setting", "value", "source"], rows)


@app.command()
def alter(
    kind: KindArgument,
    name: NameArgument,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="New value; repeatable."),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "-d", metavar="NAME", help="Back to the default; repeatable."),
    ] = None,
    append: Annotated[
        list[str] | None,
        typer.Option("--append", metavar="NAME=VALUE", help="Add to a list; repeatable."),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option("--subtract", metavar="NAME=VALUE", help="Take from a list; repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings; the others keep their values."""
    from confluent_kafka.admin import ResourceType

    from odradek_cli.client import connect

    changes = Changes(
        set=parse_pairs("--set", set_ or []),
        append=parse_pairs("--append", append or []),
        subtract=parse_pairs("--subtract", subtract or []),
        delete=delete or [],
    )
    if not changes:
        raise CliError("nothing to alter: give --set, --delete, --append or --subtract")
    apply(connect(bootstrap), ResourceType[kind.upper()], name, changes)
    if as_json:
        print_json({kind.value: name, "altered": True})
    else:
        print(f"Altered {kind} {name}.")


def apply(admin: AdminClient, resource_type: Any, name: str, changes: Changes) -> None:
    """Sends the changes as one request: all of them hold, or none."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    from odradek_cli.client import settle

    operations = [
        *((n, v, AlterConfigOpType.SET) for n, v in changes.set.items()),
        *((n, v, AlterConfigOpType.APPEND) for n, v in changes.append.items()),
        *((n, v, AlterConfigOpType.SUBTRACT) for n, v in changes.subtract.items()),
        *((n, None, AlterConfigOpType.DELETE) for n in changes.delete),
    ]
    entries = [
        ConfigEntry(name_, value, incremental_operation=operation)
        for name_, value, operation in operations
    ]
    resource = ConfigResource(resource_type, name, incremental_configs=entries)
    what = f"{resource_type.name.lower()} {name}"
    settle(what, admin.incremental_alter_configs([resource])[resource])
