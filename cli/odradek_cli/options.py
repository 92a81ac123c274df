"""Options that several commands share, under the same name everywhere.

A command's options are the parameters of its function: that is how typer reads them. So commands,
and only commands, may have more than seven parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from odradek_cli import session
from odradek_cli.errors import CliError, UsageError

DEFAULT_BOOTSTRAP = ""  # resolved by odradek_cli/session.py
COMPLETION_TIMEOUT_S = 1.0  # to connect: a completion must not take longer


def completion_bootstrap(ctx: typer.Context) -> str:
    given: str | None = ctx.find_root().params.get("bootstrap")
    session.begin(given, profile=ctx.find_root().params.get("profile"))
    return ctx.params.get("bootstrap") or session.current().resolved_bootstrap()


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topic names for shell completion; nothing when no broker answers quickly."""
    from odradek_cli.client import connect

    try:
        with connect(completion_bootstrap(ctx), COMPLETION_TIMEOUT_S) as client:
            names = client.metadata().topics
    except CliError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Group names for shell completion; nothing when no broker answers quickly."""
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.groups import list_groups

    try:
        with connect(completion_bootstrap(ctx), COMPLETION_TIMEOUT_S) as client:
            groups = list_groups(client)
    except CliError:
        return []
    return [group.group_id for group in groups if group.group_id.startswith(incomplete)]


def bootstrap_of(given: str) -> str:
    return given or session.current().resolved_bootstrap()


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT[,…]",
        help="Brokers to ask first.",
        callback=bootstrap_of,
        show_default="$ODRADEK_BOOTSTRAP, the profile, or localhost:9092",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
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
            raise UsageError(f"{option} {pair}: expected NAME=VALUE")
        parsed[name.strip()] = value
    return parsed


def confirm(question: str, yes: bool) -> None:
    """Asks before something is destroyed; without a terminal only --yes does it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask: give --yes to do it")
    typer.confirm(question, abort=True)
