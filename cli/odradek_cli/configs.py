"""`odradek configs`: show and change settings of topics, brokers and groups at run time.

odradek configs describe topic orders
odradek configs alter broker 1 --set log.cleaner.threads=2     one broker
odradek configs alter broker --set log.cleaner.threads=2       the default of all brokers
odradek configs alter group billing --set consumer.session.timeout.ms=60000
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.admin.configs import ResourceType
    from odradek_protocol.client.kafka_client import KafkaClient

app = typer.Typer(
    help="Show and change settings of topics, brokers and groups.", no_args_is_help=True
)


class ConfigKind(StrEnum):
    topic = "topic"
    broker = "broker"
    group = "group"


KindArgument = Annotated[ConfigKind, typer.Argument(help="What NAME is.")]
NameArgument = Annotated[
    str,
    typer.Argument(
        help="A topic, a group, or a broker's id. Without it: the default of all brokers.",
        metavar="[NAME]",
    ),
]


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
    name: NameArgument = "",
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also settings at their default.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the settings that were changed, and where each value comes from."""
    from odradek_cli.client import connect, found
    from odradek_protocol.client.admin.configs import ConfigSource, ResourceType, describe_configs

    subject = subject_of(kind, name)
    with connect(bootstrap) as client:
        answers = describe_configs(client, ResourceType[kind.upper()], [name])
    entries = found(subject, answers[name])
    shown: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "value": None if entry.sensitive else entry.value,
            "source": entry.source.name.lower(),
            "read_only": entry.read_only,
        }
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
        if everything or not entry.is_default
        # Asked for the default of all brokers, a broker also sends its own static settings.
        if name or entry.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    ]
    if as_json:
        print_json(shown)
    elif not shown:
        hint = " (--all shows them)" if name else ""
        print(f"{subject}: all settings have their defaults{hint}.")
    else:
        rows = [(s["name"], s["value"], s["source"].replace("_", " ")) for s in shown]
        print_table(["setting", "value", "source"], rows)


@app.command()
def alter(
    kind: KindArgument,
    name: NameArgument = "",
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
        raise UsageError("nothing to alter: give --set, --delete, --append or --subtract")
    subject = subject_of(kind, name)
    with connect(bootstrap) as client:
        apply(client, ResourceType[kind.upper()], name, changes)
    if as_json:
        print_json({kind.value: name, "altered": True})
    else:
        print(f"Altered {subject}.")


def subject_of(kind: ConfigKind, name: str) -> str:
    """The name of the resource in messages; only a broker's name may be left out."""
    if name:
        if kind is ConfigKind.broker and not name.isdecimal():
            raise UsageError(f"broker {name}: expected a broker's id such as 1, or nothing")
        return f"{kind} {name}"
    if kind is not ConfigKind.broker:
        raise UsageError(f"{kind}: expected the name of a {kind}")
    return "default of all brokers"


def apply(client: KafkaClient, kind: ResourceType, name: str, changes: Changes) -> None:
    """Sends the changes as one request: all of them are made, or none."""
    from odradek_protocol.client.admin.configs import ConfigChange, ConfigOperation, alter_configs

    operations = [
        *(ConfigChange(n, ConfigOperation.SET, v) for n, v in changes.set.items()),
        *(ConfigChange(n, ConfigOperation.APPEND, v) for n, v in changes.append.items()),
        *(ConfigChange(n, ConfigOperation.SUBTRACT, v) for n, v in changes.subtract.items()),
        *(ConfigChange(n, ConfigOperation.DELETE) for n in changes.delete),
    ]
    refused = alter_configs(client, kind, {name: operations})
    if name in refused:
        raise CliError(f"{subject_of(ConfigKind(kind.name.lower()), name)}: {refused[name]}")
