"""The `odradek` command: puts the command groups together and turns errors into one sentence.

Exit codes: 0 done, 1 failed (one line on stderr says what failed and where), 2 wrong usage,
130 interrupted. Clients of Kafka are imported by the commands that use them, so that `--help` and
shell completion answer at once.
"""

from __future__ import annotations

import sys

import typer

from odradek_cli import (
    broker,
    cluster,
    configs,
    groups,
    local,
    partitions,
    pipeline,
    topics,
    transactions,
)
from odradek_cli.consume import consume
from odradek_cli.demo import demo
from odradek_cli.dump_log import dump_log
from odradek_cli.errors import CliError
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
app.add_typer(broker.app, name="broker")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(partitions.app, name="partitions")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(cluster.app, name="cluster")
app.add_typer(local.app, name="local")
app.add_typer(pipeline.app, name="pipeline")
app.command("plan")(local.plan_anywhere)
app.command()(quorum)
app.command()(produce)
app.command()(consume)
app.command()(migrate)
app.command("dump-log")(dump_log)
app.command()(demo)


def main() -> None:
    try:
        app(prog_name="odradek")
    except CliError as error:
        print(f"odradek: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, for example `head`, has ended
        sys.stderr.close()
        sys.exit(0)
