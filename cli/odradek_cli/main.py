"""The `odradek` command: its global options; turns errors into one sentence.

Exit codes: 0 done, 1 failed (one line on stderr says what failed and where), 2 wrong usage, 3 and
4 of `cluster health`, 130 interrupted. Commands are imported when they are used (lazy_group.py),
so that `--help` and shell completion answer at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from odradek_cli import session
from odradek_cli.errors import CliError, UsageError
from odradek_cli.lazy_group import LazyGroup
from odradek_cli.local_clusters import bootstrap_of
from odradek_cli.local_users import PROPERTIES, credentials_file

app = typer.Typer(
    name="odradek",
    cls=LazyGroup,
    rich_markup_mode=None,  # importing rich takes longer than anything else that `--help` does
    help="Kafka on Kubernetes from Python: run brokers, and use any Kafka cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"odradek {version('odradek')}")
        raise typer.Exit


# They start or name clusters themselves: settings of the user's own cluster must not apply to them.
OWN_CLUSTERS = ("broker", "demo", "local", "migrate", "pipeline", "plan")


@app.callback()
def options(
    ctx: typer.Context,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT[,…]",
            help="Brokers to ask first; also after the command.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="A cluster of `odradek profile list`."),
    ] = None,
    client_config: Annotated[
        Path | None,
        typer.Option(
            "--client-config",
            metavar="FILE",
            help="Settings of the client, in Java's properties format.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="Log in as this KafkaUser of --file."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="DIR",
            help="Manifests of a local runtime: use its cluster, or with --user one of its users.",
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001  # its callback prints
        bool,
        typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    """Kafka on Kubernetes from Python: run brokers, and use any Kafka cluster."""
    configured = ctx.invoked_subcommand not in OWN_CLUSTERS
    if not configured and (client_config or profile or user or files):
        raise UsageError(
            f"--client-config, --profile, --user and --file: `odradek {ctx.invoked_subcommand}` "
            "does not use them"
        )
    if files and profile:
        raise UsageError("--file and --profile: give one of them")
    if user is not None and not files:
        raise UsageError("--user needs --file: odradek --user NAME -f DIR …")
    if user is not None and files:
        if client_config is not None:
            raise UsageError("--user and --client-config: give one of them")
        client_config = credentials_file(user, files, None, PROPERTIES)
    elif files and bootstrap is None:
        bootstrap = bootstrap_of(files, with_login=client_config is not None)
    session.begin(bootstrap, client_config, profile, files or (), configured=configured)


def main() -> None:
    try:
        app(prog_name="odradek")
    except CliError as error:
        print(f"odradek: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, for example `head`, has ended
        sys.stderr.close()
        sys.exit(0)
