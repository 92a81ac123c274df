"""`odradek produce`: one record per line of stdin or of a file.

echo paid | odradek produce orders --key order-7
odradek consume orders -o beginning --until-end --json | odradek produce copy --json
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from odradek_cli.encoding import Encoded, encoding
from odradek_cli.errors import CliError, UsageError
from odradek_cli.escapes import unescape
from odradek_cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Topic, parse_pairs
from odradek_cli.output import bytes_text, print_json, progress_bar, remarks
from odradek_cli.records import Headers, RecordToWrite, from_json

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from odradek_protocol.client.kafka_client import KafkaClient

FLUSH_S = 30.0
CREATED_S = 30.0  # until a broker knows a topic that was just created
POLL_S = 0.05


class CompressionType(StrEnum):
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
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", help=r"Text between key and value of a line; \t is a tab."
        ),
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
    json_lines: Annotated[
        bool,
        typer.Option("--json", help="Each line is a record as `odradek consume --json` prints it."),
    ] = False,
    by_key: Annotated[
        bool,
        typer.Option("--by-key", help="With --json: choose partitions by key, not as in the line."),
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic if it does not exist.")
    ] = False,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="URL",
            help="Lines are JSON, written with the newest schema of TOPIC-value in this registry.",
        ),
    ] = None,
    encode: Annotated[
        Encoded | None,
        typer.Option("--encode", help="With a schema registry: what is encoded. Default: value."),
    ] = None,
    compression: Annotated[
        CompressionType, typer.Option("--compression", "-z")
    ] = CompressionType.none,
    acks: Annotated[
        Acks, typer.Option(help="Which replicas must have a record before it counts as written.")
    ] = Acks.all,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json_report: Annotated[
        bool, typer.Option("--json-report", help="Print how much was written as JSON.")
    ] = False,
) -> None:
    """Write one record per line to a topic.

    With acks=all the producer is idempotent: no record is lost or doubled by a retry.
    """
    from confluent_kafka import Producer

    from odradek_cli.client import connect
    from odradek_cli.librdkafka import settings

    lines = Lines(
        key=None if key is None else key.encode(),
        separator=None if key_separator is None else unescape(key_separator).encode(),
        null_value=None if null_value is None else null_value.encode(),
        headers=[(n, v.encode()) for n, v in parse_pairs("--header", header or []).items()],
        partition=partition,
        json=json_lines,
        by_key=by_key,
    )
    encoded = encoding(topic, schema_registry, encode)
    with opened(file) as source:
        with connect(bootstrap) as client:  # one sentence if no broker answers
            partitions = ensure_topic(client, topic, create)
        if partition is not None and partition not in partitions:
            raise CliError(
                f"--partition {partition}: topic {topic} has {len(partitions)} partitions"
            )
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
        with progress_bar() as progress:
            shown = progress.add_task(f"to {topic}", total=None)
            try:
                for number, line in enumerate(source, start=1):
                    record = encoded(lines.parse(line.removesuffix(b"\n"), number), number)
                    if record.partition is not None and record.partition not in partitions:
                        raise CliError(
                            f"line {number}: partition {record.partition}: topic {topic} has "
                            f"{len(partitions)} partitions; --by-key chooses them by key"
                        )
                    send(producer, tally, **arguments(topic, record))
                    if number % 1_000 == 0:
                        progress.update(shown, completed=tally.acked)
            finally:  # what was sent before a bad line is written, and counted
                unacknowledged = producer.flush(FLUSH_S)
            progress.update(shown, completed=tally.acked, total=tally.sent)
    report(topic, tally, unacknowledged, time.monotonic() - started, json_report)


@dataclass(frozen=True)
class Lines:
    """How a line becomes a record."""

    key: bytes | None = None
    separator: bytes | None = None
    null_value: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    json: bool = False
    by_key: bool = False

    def __post_init__(self) -> None:
        if self.key is not None and self.separator is not None:
            raise UsageError("--key and --key-separator exclude each other")
        if self.separator == b"":
            raise UsageError("--key-separator: must not be empty")
        if self.json and (self.key, self.separator, self.null_value) != (None, None, None):
            raise UsageError(
                "--json: the lines have keys and values: --key, --key-separator and --null-value "
                "are for plain lines"
            )
        if self.by_key and not self.json:
            raise UsageError("--by-key is for --json: plain lines name no partitions")

    def parse(self, line: bytes, number: int) -> RecordToWrite:
        if self.json:
            record = from_json(line, number)
            wanted = None if self.by_key else record.partition
            partition = wanted if self.partition is None else self.partition
            return replace(record, headers=[*record.headers, *self.headers], partition=partition)
        key, value = self.key, line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                text = self.separator.decode()
                raise CliError(f"line {number}: has no key separator {text!r} (--key-separator)")
        tombstone = self.null_value is not None and value == self.null_value
        return RecordToWrite(key, None if tombstone else value, self.headers, self.partition)


def ensure_topic(client: KafkaClient, topic: str, create: bool) -> set[int]:
    """The partitions of the topic. A typo in its name must not silently create a topic."""
    from odradek_cli.client import NoTopicError, check_topic, raise_first
    from odradek_protocol.client.admin.topics import NewTopic, create_topics

    try:
        remedy = f"; create it with `odradek topics create {topic}`, or give --create"
        check_topic(client, topic, remedy)
    except NoTopicError as missing:
        if not create:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            question = str(missing).removesuffix(remedy)
            typer.confirm(f"{question} Create it?", abort=True, err=True)
        raise_first("topic", create_topics(client, [NewTopic(topic)]))
    deadline = time.monotonic() + CREATED_S
    while (found := client.metadata([topic]).topics[topic]).error is not None:
        if time.monotonic() > deadline:
            raise CliError(f"topic {topic}: {found.error}")
        time.sleep(POLL_S)
    return set(found.partitions)


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


def arguments(topic: str, record: RecordToWrite) -> dict[str, Any]:
    """The record as arguments of librdkafka's `produce`, in which -1 and 0 mean "you choose"."""
    return {
        "topic": topic,
        "value": record.value,
        "key": record.key,
        "headers": record.headers,
        "partition": -1 if record.partition is None else record.partition,
        "timestamp": record.timestamp_ms or 0,
    }


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
