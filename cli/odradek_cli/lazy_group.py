"""The command groups of `odradek`: a module is imported when its command is used.

`odradek --help` and the completion of a command's name show the table below, so that they import
no command at all; a test compares the table with the modules. `odradek topics list` imports
`topics` only, which halves the time until it asks its cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

# command: (module, its Typer app or function, help), in the order in which `--help` shows them;
# a module of this package, or of one that stands on it
COMMANDS = {
    "topics": ("topics", "app", "Create, list, describe, alter and delete topics."),
    "produce": ("produce", "produce", "Write one record per line to a topic."),
    "consume": (
        *("consume", "consume"),
        "Print the records of a topic; new ones as they come, until Ctrl-C.",
    ),
    "groups": ("groups", "app", "List, describe, reset and delete consumer groups; see their lag."),
    "share-groups": (
        *("share_groups", "app"),
        "List, describe, reset and delete share groups (queues); see their lag.",
    ),
    "transactions": ("transactions", "app", "List, describe and abort transactions."),
    "configs": ("configs", "app", "Show and change settings of topics, brokers and groups."),
    "cluster": ("cluster", "app", "Show the brokers and the health of a cluster."),
    "partitions": ("partitions", "app", "Move replicas between brokers; elect leaders."),
    "rebalance": ("rebalance", "app", "Balance replicas and leaders over the brokers."),
    "capacity": (
        *("capacity", "capacity"),
        "When disks are full, what the loss of a rack does, how many brokers for more load.",
    ),
    "quorum": (
        *("quorum", "quorum"),
        "Show the leader, the voters and the observers of the metadata quorum.",
    ),
    "users": ("users", "app", "List, create and delete users with a password (SASL/SCRAM)."),
    "acls": ("acls", "app", "List, add and remove ACLs."),
    "tokens": ("tokens", "app", "Create, list, renew and expire delegation tokens."),
    "quotas": (
        *("quotas", "app"),
        "List, set and remove limits of users, client ids and addresses.",
    ),
    "profile": ("profile", "app", "Name clusters, and choose one of them."),
    "broker": ("broker", "app", "Run a broker."),
    "local": ("local", "app", "Run clusters on this machine from manifests."),
    "pipeline": ("pipeline", "app", "Run data pipelines on Spark."),
    "plan": (
        *("local", "plan_anywhere"),
        "Show the changes that the manifests would make, and why; change nothing. -f -: stdin.",
    ),
    "migrate": (
        *("migrate.command", "migrate"),
        "Copy topics, records and group offsets to another cluster, and verify them.",
    ),
    "top": (
        *("odradek_console.top", "top"),
        "Show the health and the load of a cluster in the terminal; for any Kafka cluster.",
    ),
    "console": (
        *("odradek_console.command", "console"),
        "Show a cluster, its records and its groups in a browser; for any Kafka cluster.",
    ),
    "dump-log": (
        *("dump_log", "dump_log"),
        "Show the batches, records and index entries of log files, and check them.",
    ),
    "demo": (
        *("demo", "demo"),
        "Show a broker at work: produce, consume, kill -9, check, measure. Leaves nothing behind.",
    ),
}


def load(name: str) -> TyperCommand | TyperGroup:
    """The command with its options; imports its module."""
    module, attribute, _ = COMMANDS[name]
    name_of_module = module if module.startswith("odradek_") else f"odradek_cli.{module}"
    found = getattr(import_module(name_of_module), attribute)
    holder = typer.Typer(rich_markup_mode=None)
    holder.callback()(lambda: None)  # a group, even with one command
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    group = cast(TyperGroup, typer.main.get_command(holder))
    return cast("TyperCommand | TyperGroup", group.commands[name])


class LazyGroup(TyperGroup):
    """Lists COMMANDS; imports the one that is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (_, _, text) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=text, rich_markup_mode=None))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """As typer does, with the whole help of each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and load(str(name)), rest
