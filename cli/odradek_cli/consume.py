"""`odradek consume`: print records of a topic, from an offset or a time that the user names.

Without --group no consumer group is joined and nothing is committed: reading changes nothing.
With --group the command is a member of that group: it shares the partitions with the other
members, goes on at the committed offsets, and commits what it has printed. SIGTERM and Ctrl-C
leave the group, so that the others take its partitions over at once.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Topic, complete_group
from odradek_cli.output import plain

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition


class GroupProtocol(StrEnum):
    classic = "classic"
    consumer = "consumer"  # KIP-848


@dataclass(frozen=True)
class Membership:
    """How the command takes part in a group."""

    group: str
    protocol: GroupProtocol
    from_beginning: bool  # where nothing is committed: from the oldest record, or only new ones


@dataclass(frozen=True)
class Start:
    """Where reading begins without a group; with none of the last three, at the end."""

    partitions: list[int] | None  # None: all
    from_beginning: bool = False
    offset: int | None = None  # negative: counted from the end
    at_ms: int | None = None


def consume(
    topic: Topic,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="Default: all partitions. Repeatable."),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="From the oldest record on.")
    ] = False,
    offset: Annotated[
        int | None,
        typer.Option(
            "--offset", "-o", help="From this offset; -5: the last five of each partition."
        ),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp", "-t", help="From this time: 2026-01-31T12:00:00, or ms since 1970."
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", help="Stop after this many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the end instead of waiting for more.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", "-F", help="Print partition, offset, time, key and headers too."),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Join this group, and commit what was printed.",
            autocompletion=complete_group,
        ),
    ] = None,
    group_protocol: Annotated[
        GroupProtocol,
        typer.Option("--group-protocol", help="With --group; consumer is KIP-848."),
    ] = GroupProtocol.classic,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic; new ones as they come, until Ctrl-C."""
    from odradek_cli.client import connect

    def show(message: Message) -> None:
        print_message(message, full, as_json)

    if group is not None:
        if partition or offset is not None or timestamp is not None:
            raise CliError(
                "--group: reading begins at the committed offsets; `odradek groups reset` sets them"
            )
        membership = Membership(group, group_protocol, from_beginning)
        with connect(bootstrap):
            pass
        consume_in_group(bootstrap, topic, membership, max_messages, until_end, show)
        return
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise CliError("--from-beginning, --offset and --timestamp exclude each other")
    at_ms = parse_time(timestamp) if timestamp is not None else None
    start = Start(partition, from_beginning, offset, at_ms)
    with connect(bootstrap):
        pass
    consume_alone(bootstrap, topic, start, max_messages, until_end, show)


def consume_alone(
    bootstrap: str,
    topic: str,
    start: Start,
    max_messages: int | None,
    until_end: bool,
    show: Callable[[Message], None],
) -> None:
    """Reads assigned partitions, without joining a group."""
    from confluent_kafka import Consumer

    from odradek_cli.librdkafka import settings

    consumer = Consumer(
        settings(
            bootstrap,
            group_id="odradek-cli",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            enable_partition_eof=True,
            fetch_wait_max_ms=50 if until_end else 500,  # an empty answer shows the end
        )
    )
    try:
        places = starting_points(consumer, topic, start)
        consumer.assign(places)
        owned = {place.partition for place in places}
        for message in read(consumer, owned, max_messages, until_end):
            show(message)
    finally:
        sys.stdout.flush()
        consumer.close()


def consume_in_group(
    bootstrap: str,
    topic: str,
    membership: Membership,
    max_messages: int | None,
    until_end: bool,
    show: Callable[[Message], None],
) -> None:
    """Reads as a member. A record is committed after it was printed: at worst it comes twice."""
    from confluent_kafka import Consumer

    from odradek_cli.librdkafka import settings

    consumer = Consumer(
        settings(
            bootstrap,
            group_id=membership.group,
            group_protocol=membership.protocol.value,
            enable_auto_commit=True,
            enable_auto_offset_store=False,
            auto_offset_reset="earliest" if membership.from_beginning else "latest",
            allow_auto_create_topics=False,
            enable_partition_eof=True,
            client_id="odradek-cli",
        )
    )
    owned: set[int] = set()
    consumer.subscribe(
        [topic],
        on_assign=lambda _, places: owned.update(place.partition for place in places),
        on_revoke=lambda _, places: owned.difference_update(place.partition for place in places),
    )
    with SigtermLeaves() as sigterm:
        try:
            for message in read(consumer, owned, max_messages, until_end):
                with sigterm.whole():
                    show(message)
                    consumer.store_offsets(message)
        finally:
            sys.stdout.flush()
            consumer.close()  # commits, and leaves the group


class SigtermLeaves:
    """In this block SIGTERM runs `finally` clauses and ends the command with code 143.

    Inside of `whole()` the signal takes effect at its end, so that what is done there is not left
    half done.
    """

    def __init__(self) -> None:
        self._held = False
        self._came = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    @contextmanager
    def whole(self) -> Iterator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came:
            self._leave()

    def _signalled(self, *_: object) -> None:
        self._came = True
        if not self._held:
            self._leave()

    def _leave(self) -> NoReturn:
        sys.exit(128 + signal.SIGTERM)


def parse_time(text: str, option: str = "--timestamp") -> int:
    """Milliseconds since 1970 of "1767225600000" or an ISO time (UTC unless it says otherwise)."""
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise CliError(f"{option} {text}: expected a time such as 2026-01-31T12:00:00") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def starting_points(consumer: Consumer, topic: str, start: Start) -> list[TopicPartition]:
    """The first offset to read of each partition."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    from odradek_cli.librdkafka import TIMEOUT_S

    found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise CliError(f"topic {topic}: {found.error.str()} ({found.error.name()})")
    for number in start.partitions or []:
        if number not in found.partitions:
            raise CliError(
                f"--partition {number}: topic {topic} has {len(found.partitions)} partitions"
            )
    numbers = start.partitions or sorted(found.partitions)
    if start.at_ms is not None:
        asked = [TopicPartition(topic, number, start.at_ms) for number in numbers]
        return consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
    if start.offset is None:
        offset = OFFSET_BEGINNING if start.from_beginning else OFFSET_END
        return [TopicPartition(topic, number, offset) for number in numbers]
    places = []
    for number in numbers:
        at = TopicPartition(topic, number)
        if start.offset < 0:
            low, high = consumer.get_watermark_offsets(at, timeout=TIMEOUT_S)
            at.offset = max(low, high + start.offset)
        else:
            at.offset = start.offset
        places.append(at)
    return places


def read(
    consumer: Consumer, owned: set[int], max_messages: int | None, until_end: bool
) -> Iterator[Message]:
    """`owned` has the partitions that are assigned; in a group they change meanwhile."""
    from confluent_kafka import KafkaError

    ended: set[int | None] = set()
    count = 0
    while max_messages is None or count < max_messages:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            count += 1
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
            if until_end and owned and owned <= ended:
                return
        elif not error.retriable():
            raise CliError(f"topic {message.topic()}: {error.str()} ({error.name()})")


def print_message(message: Message, full: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(as_dict(message), ensure_ascii=False), flush=True)
        return
    value = message.value()
    line = b"" if value is None else bytes(value)
    if full:
        moment = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
        when = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        headers = ",".join(f"{name}={text(value)}" for name, value in headers_of(message))
        place = f"{message.partition()}:{message.offset()}"
        shown = "(none)" if value is None else line.decode(errors="replace")
        line = f"{place}\t{when}\t{text(message.key())}\t{headers}\t{shown}".encode()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def headers_of(message: Message) -> list[tuple[str, Any]]:
    return list(message.headers() or [])  # type: ignore[arg-type]  # always pairs, when read


def text(value: Any) -> str:
    return "(none)" if value is None else bytes(value).decode(errors="replace")


def as_dict(message: Message) -> dict[str, Any]:
    """One record; bytes that are not UTF-8 come as {"base64": "…"}."""
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        "key": plain(message.key()),
        "headers": [[name, plain(value)] for name, value in headers_of(message)],
        "value": plain(message.value()),
    }
