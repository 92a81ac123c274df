"""`odradek produce`: one record per line of stdin or of a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Topic, parse_pairs
from odradek_cli.output import bytes_text, print_json, progress_bar, remarks

if TYPE_CHECKING:
    from confluent_kafka import Producer


class Codec(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    none = "0"
    leader = "1"
    all = "all"


@dataclass
class Tally:
    """Counts of sent, acknowledged and failed records, kept by the delivery callback."""

    sent: int = 0
    acked: int = 0
    bytes_total: int = 0
    errors: list[str] = field(default_factory=list)

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked += 1
            self.bytes_total += len(message.value() or b"")
        else:
            self.errors.append(error.str())


def produce(
    topic: Topic,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read this file instead of stdin.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help="Text between key and value of a line."),
    ] = None,
    null_value: Annotated[
        str | None, typer.Option(help="Lines with this value become tombstones (no value).")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header of every record; repeatable."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Default: chosen by key, or any.")
    ] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z")] = Codec.none,
    acks: Annotated[
        Acks, typer.Option(help="Which replicas must have a record before it counts as written.")
    ] = Acks.all,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Write one record per line to a topic.

    With acks=all the producer is idempotent: no record is lost or doubled by a retry.
    """
    from confluent_kafka import Producer

    from odradek_cli.client import connect
    from odradek_cli.librdkafka import settings

    headers = list(parse_pairs("--header", header or []).items())
    with connect(bootstrap):
        pass  # one sentence if no broker answers; librdkafka would wait
    producer = Producer(
        settings(
            bootstrap,
            compression_type=compression.value,
            acks=acks.value,
            enable_idempotence=acks is Acks.all,
            linger_ms=5,
        )
    )
    tally = Tally()
    started = time.monotonic()
    marker = null_value.encode() if null_value is not None else None
    with opened(file) as lines, progress_bar() as progress:
        shown = progress.add_task(f"to {topic}", total=None)
        for number, line in enumerate(lines, start=1):
            key, value = split(line.removesuffix(b"\n"), key_separator, number)
            send(
                producer,
                tally,
                topic=topic,
                value=None if marker is not None and value == marker else value,
                key=key,
                headers=headers,
                partition=-1 if partition is None else partition,
            )
            if number % 1_000 == 0:
                progress.update(shown, completed=tally.acked)
        unacknowledged = producer.flush(30)
        progress.update(shown, completed=tally.acked, total=tally.sent)
    report(topic, tally, unacknowledged, time.monotonic() - started, as_json)


@contextmanager
def opened(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        with open(file, "rb") as lines:
            yield lines
    except OSError as error:
        raise CliError(f"--file {file}: {error.strerror}") from error


def split(line: bytes, separator: str | None, number: int) -> tuple[bytes | None, bytes]:
    """Key and value of a line; (None, line) without --key-separator."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        raise CliError(f"line {number}: has no key separator {separator!r} (--key-separator)")
    return key, value


def send(producer: Producer, tally: Tally, **record: Any) -> None:
    """Queues one record; waits for room when the producer's queue is full."""
    while True:
        try:
            producer.produce(**record, on_delivery=tally.on_delivery)
            break
        except BufferError:
            producer.poll(0.1)
    tally.sent += 1
    producer.poll(0)


def report(topic: str, tally: Tally, unacknowledged: int, took_s: float, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": topic,
                "sent": tally.sent,
                "acked": tally.acked,
                "bytes": tally.bytes_total,
                "seconds": round(took_s, 3),
            }
        )
    elif tally.acked:
        rate = tally.acked / took_s if took_s else 0
        size = bytes_text(tally.bytes_total)
        remarks().print(f"{tally.acked:,} records ({size}) in {took_s:.2f} s: {rate:,.0f}/s")
    failed = len(tally.errors) + unacknowledged
    if failed:
        why = tally.errors[0] if tally.errors else "not acknowledged in time"
        raise CliError(f"topic {topic}: {failed:,} of {tally.sent:,} records failed: {why}")
