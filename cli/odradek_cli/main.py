"""The `odradek` command: puts the command groups together and turns errors into one sentence.

Exit codes: 0 done, 1 failed (one line on stderr says what failed and where), 2 wrong usage, 3 and
4 of `cluster health`, 130 interrupted. Clients of Kafka are imported by the commands that use them,
so that `--help` and shell completion answer at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from odradek_cli import (
    acls,
    broker,
    cluster,
    configs,
    groups,
    local,
    partitions,
    pipeline,
    profile,
    quotas,
    session,
    topics,
    transactions,
    users,
)
from odradek_cli.consume import consume
from odradek_cli.demo import demo
from odradek_cli.dump_log import dump_log
from odradek_cli.errors import CliError, UsageError
from odradek_cli.migrate.command import migrate
from odradek_cli.produce import produce
from odradek_cli.quorum import quorum

app = typer.Typer(
    name="odradek",
    help="Kafka on Kubernetes from Python: run brokers, and use any Kafka cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(acls.app, name="acls")
app.add_typer(broker.app, name="broker")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(partitions.app, name="partitions")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(users.app, name="users")
app.add_typer(quotas.app, name="quotas")
app.add_typer(cluster.app, name="cluster")
app.add_typer(profile.app, name="profile")
app.add_typer(local.app, name="local")
app.add_typer(pipeline.app, name="pipeline")
app.command("plan")(local.plan_anywhere)
app.command()(quorum)
app.command()(produce)
app.command()(consume)
app.command()(migrate)
app.command("dump-log")(dump_log)
app.command()(demo)


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
    version: Annotated[  # noqa: ARG001  # its callback prints
        bool,
        typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    """Kafka on Kubernetes from Python: run brokers, and use any Kafka cluster."""
    configured = ctx.invoked_subcommand not in OWN_CLUSTERS
    if not configured and (client_config or profile):
        raise UsageError(
            f"--client-config and --profile: `odradek {ctx.invoked_subcommand}` does not use them"
        )
    session.begin(bootstrap, client_config, profile, configured=configured)


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
