"""Options that several commands share, under the same name everywhere.

A command's options are the parameters of its function: that is how typer reads them. So commands,
and only commands, may have more than seven parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from odradek_cli.errors import CliError

DEFAULT_BOOTSTRAP = "localhost:9092"
COMPLETION_TIMEOUT_S = 1.0  # to connect: nobody waits longer for a suggestion


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topic names for shell completion; nothing when no broker answers quickly."""
    from odradek_cli.client import connect

    bootstrap = ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with connect(bootstrap, COMPLETION_TIMEOUT_S) as client:
            names = client.metadata().topics
    except CliError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Group names for shell completion; nothing when no broker answers quickly."""
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.groups import list_groups

    bootstrap = ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with connect(bootstrap, COMPLETION_TIMEOUT_S) as client:
            groups = list_groups(client)
    except CliError:
        return []
    return [group.group_id for group in groups if group.group_id.startswith(incomplete)]


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="ODRADEK_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="Brokers to ask first.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Topic = Annotated[
    str, typer.Argument(help="Name of the topic.", autocompletion=complete_topic, metavar="TOPIC")
]
Topics = Annotated[
    list[str],
    typer.Argument(help="Names of topics.", autocompletion=complete_topic, metavar="TOPIC…"),
]


def parse_pairs(option: str, pairs: Iterable[str]) -> dict[str, str]:
    """["retention.ms=60000"] -> {"retention.ms": "60000"}; the error names the option."""
    parsed = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise CliError(f"{option} {pair}: expected NAME=VALUE")
        parsed[name.strip()] = value
    return parsed
