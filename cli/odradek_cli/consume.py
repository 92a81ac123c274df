"""`odradek consume`: print records of a topic, from an offset or a time that the user names.

Without --group no consumer group is joined and nothing is committed: reading changes nothing.
With --group the command is a member of that group: it shares the partitions with the other
members, goes on at the committed offsets, and commits what it has printed. SIGTERM and Ctrl-C
leave the group, so that the others take its partitions over at once. With --share it is a member of
a share group: odradek_cli/consume_share.py. With --schema-registry
records are decoded: odradek_cli/decoding.py.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from odradek_cli.decoding import Decode, decoding
from odradek_cli.errors import UsageError
from odradek_cli.leaving import LeavesOnSignal
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Topic, complete_group
from odradek_cli.reading import Start, last_records, partitions_of, read, starting_points
from odradek_cli.records import Show, printer


class GroupProtocol(StrEnum):
    classic = "classic"
    consumer = "consumer"  # KIP-848


@dataclass(frozen=True)
class Membership:
    """How the command takes part in a group."""

    group: str
    protocol: GroupProtocol
    from_beginning: bool  # where nothing is committed: from the oldest record, or only new ones


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
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="beginning|end|N|-N",
            help="From this offset; -5: the last five records of the topic.",
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
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="TEMPLATE",
            help=r"Print '%p:%o %T %k %v %h\n' and the like. %t: topic, %K and %V: lengths.",
        ),
    ] = None,
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
    share: Annotated[
        str | None,
        typer.Option(
            "--share",
            metavar="GROUP",
            help="Join this share group (a queue), and accept each record after it was printed.",
            autocompletion=complete_group,
        ),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="URL",
            help="Print values as JSON, decoded with the schemas of this registry.",
        ),
    ] = None,
    decode: Annotated[
        Decode | None,
        typer.Option("--decode", help="With a schema registry: what is decoded. Default: value."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic; new ones as they come, until Ctrl-C."""
    from odradek_cli.client import check_topic, connect

    show = decoding(printer(template, full, as_json), schema_registry, decode)
    if share is not None:
        from odradek_cli.consume_share import consume_in_share_group

        if group is not None:
            raise UsageError("--group and --share exclude each other")
        if partition or from_beginning or offset is not None or timestamp is not None:
            raise UsageError(
                f"--share: the group knows where it is. `odradek configs alter group {share} --set "
                "share.auto.offset.reset=earliest` says where a new group starts, `odradek "
                "share-groups reset` moves one"
            )
        consume_in_share_group(bootstrap, topic, share, max_messages, until_end, show)
        return
    if group is not None:
        if partition or offset is not None or timestamp is not None:
            raise UsageError(
                "--group: reading begins at the committed offsets; `odradek groups reset` sets them"
            )
        membership = Membership(group, group_protocol, from_beginning)
        with connect(bootstrap) as client:
            check_topic(client, topic)
        consume_in_group(bootstrap, topic, membership, max_messages, until_end, show)
        return
    start = Start.parse(partition, from_beginning, offset, timestamp)
    with connect(bootstrap) as client:
        check_topic(client, topic)
    consume_alone(bootstrap, topic, start, max_messages, until_end, show)


def consume_alone(
    bootstrap: str,
    topic: str,
    start: Start,
    max_messages: int | None,
    until_end: bool,
    show: Show,
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
        numbers = partitions_of(consumer, topic, start.partitions)
        if start.last is None:
            places = starting_points(consumer, topic, numbers, start)
        else:
            last, places = last_records(consumer, topic, numbers, start.last)
            for message in last[:max_messages]:
                show(message)
            if until_end or (max_messages is not None and len(last) >= max_messages):
                return
            max_messages = None if max_messages is None else max_messages - len(last)
        consumer.assign(places)
        for message in read(consumer, set(numbers), max_messages, until_end):
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
    show: Show,
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
    with LeavesOnSignal(signal.SIGTERM) as leaving:
        try:
            for message in read(consumer, owned, max_messages, until_end):
                with leaving.whole():
                    show(message)
                    consumer.store_offsets(message)
        finally:
            sys.stdout.flush()
            consumer.close()  # commits, and leaves the group
