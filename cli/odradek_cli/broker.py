"""`odradek broker run`: a broker in this process, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Run a broker.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Run a broker."""


@app.command()
def run(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A server.properties file.", metavar="FILE"),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            help="A setting; wins over file and environment. May be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    add_scram_file: Annotated[
        Path | None,
        typer.Option(
            "--add-scram-file",
            help="Users that a new cluster begins with, one line each: "
            "SCRAM-SHA-512=[name=admin,password=...]. Ignored at later starts.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Run one broker.

    Settings have Kafka's own names. They come from the file, then from the environment
    (KAFKA_LOG_DIRS for log.dirs), then from --override. One JSON line on stdout says when the
    broker is ready and at which address.
    """
    from odradek_broker.main import main

    arguments = ["--config", str(config)] if config else []
    if add_scram_file:
        arguments += ["--add-scram-file", str(add_scram_file)]
    sys.exit(main([*arguments, *(f"--override={setting}" for setting in override or [])]))
