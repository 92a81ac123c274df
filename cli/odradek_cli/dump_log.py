"""`odradek dump-log`: the content of a partition's files, like Kafka's DumpLogSegments.

Works on the files alone, of our broker or of Apache Kafka; no broker is asked and nothing changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import AsJson
from odradek_cli.output import plain


def dump_log(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Files (.log, .index, .timeindex, .txnindex, .snapshot) or partition directories.",
            metavar="PATH…",
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Also the records of each batch.")
    ] = False,
    data: Annotated[
        bool, typer.Option("--data", "-d", help="Also keys and values (implies --records).")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Print only what is wrong; exit code 1 if anything is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the batches, records and index entries of log files, and check them."""
    from odradek_broker.log.dump import DumpOptions, RowKind, dump_file, format_row

    options = DumpOptions(deep=records or data or verify, print_data=data, verify_only=verify)
    problems = 0
    for path in files_of(paths):
        if not as_json and not verify:
            print(f"Dumping {path}")
        try:
            for row in dump_file(path, options):
                invalid = row.kind is RowKind.BATCH and row.fields["isvalid"] is False
                wrong = invalid or row.kind is RowKind.PROBLEM
                problems += wrong
                if verify and not wrong:
                    continue
                if as_json:
                    fields = {name: plain(value) for name, value in row.fields.items()}
                    print(json.dumps({"file": str(path), "kind": row.kind.value, **fields}))
                else:
                    print(f"{path}: {format_row(row)}" if verify else format_row(row))
        except OSError as error:
            raise CliError(f"{path}: {error.strerror}") from error
    if verify and problems:
        raise CliError(f"{problems} problems found")


def files_of(paths: Iterable[Path]) -> list[Path]:
    """The files themselves, and of a directory those that dump-log can read, in their order."""
    from odradek_broker.log.dump import SUFFIXES

    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise CliError(f"{path}: no such file or directory")
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
            if not inside:
                raise CliError(f"{path}: no log files in this directory")
            found += inside
        else:
            found.append(path)
    return found
