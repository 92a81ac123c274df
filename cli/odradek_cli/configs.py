"""`odradek configs`: show and change settings of topics and brokers at run time."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.admin.configs import ResourceType
    from odradek_protocol.client.kafka_client import KafkaClient

app = typer.Typer(help="Show and change settings of topics and brokers.", no_args_is_help=True)


class Kind(StrEnum):
    topic = "topic"
    broker = "broker"


KindArgument = Annotated[Kind, typer.Argument(help="What NAME is: a topic or a broker.")]
NameArgument = Annotated[str, typer.Argument(help="A topic's name or a broker's id.")]


@dataclass
class Changes:
    """Changes of single settings that are made together; false if there are none."""

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
        bool, typer.Option("--all", "-a", help="Also settings at their default.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the settings that were changed, and where each value comes from."""
    from odradek_cli.client import connect, found
    from odradek_protocol.client.admin.configs import ResourceType, describe_configs

    with connect(bootstrap) as client:
        answers = describe_configs(client, ResourceType[kind.upper()], [name])
    entries = found(f"{kind} {name}", answers[name])
    shown: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "value": None if entry.sensitive else entry.value,
            "source": entry.source.name.lower(),
            "read_only": entry.read_only,
        }
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
        if everything or not entry.is_default
    ]
    if as_json:
        print_json(shown)
    elif not shown:
        print(f"{kind} {name}: all settings have their defaults (--all shows them).")
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
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.configs import ResourceType

    changes = Changes(
        set=parse_pairs("--set", set_ or []),
        append=parse_pairs("--append", append or []),
        subtract=parse_pairs("--subtract", subtract or []),
        delete=delete or [],
    )
    if not changes:
        raise CliError("nothing to alter: give --set, --delete, --append or --subtract")
    with connect(bootstrap) as client:
        apply(client, ResourceType[kind.upper()], name, changes)
    if as_json:
        print_json({kind.value: name, "altered": True})
    else:
        print(f"Altered {kind} {name}.")


def apply(client: KafkaClient, kind: ResourceType, name: str, changes: Changes) -> None:
    """Sends the changes as one request: all of them are made, or none."""
    from odradek_cli.client import raise_first
    from odradek_protocol.client.admin.configs import ConfigChange, ConfigOperation, alter_configs

    operations = [
        *(ConfigChange(n, ConfigOperation.SET, v) for n, v in changes.set.items()),
        *(ConfigChange(n, ConfigOperation.APPEND, v) for n, v in changes.append.items()),
        *(ConfigChange(n, ConfigOperation.SUBTRACT, v) for n, v in changes.subtract.items()),
        *(ConfigChange(n, ConfigOperation.DELETE) for n in changes.delete),
    ]
    raise_first(kind.name.lower(), alter_configs(client, kind, {name: operations}))
