"""`odradek transactions`: list open transactions and their partitions, and abort them.

    odradek transactions list                        all transactional ids and their states
    odradek transactions describe payments-1         its partitions, timeout, since when
    odradek transactions abort payments-1            abort it, and fence its producer
    odradek transactions abort --partition orders:0 --producer-id 4001
                                                     one that its coordinator does not know

A transaction that stays open holds back `read_committed` readers at its first record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, confirm
from odradek_cli.output import print_json, print_listed, print_table
from odradek_cli.partitions import Target

if TYPE_CHECKING:
    from odradek_protocol.client.admin.transactions import ActiveProducer
    from odradek_protocol.client.kafka_client import KafkaClient
    from odradek_protocol.ids import TopicPartition

app = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)

INIT_TIMEOUT_S = 30.0


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", help="Only in this state, for example Ongoing. Repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List transactional ids, with producer and state."""
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin import transactions

    with connect(bootstrap) as client, about("transactions"):
        listed = transactions.list_transactions(client, state or ())
    found = [
        {
            "transactional_id": listing.transactional_id,
            "coordinator": listing.coordinator_id,
            "producer_id": listing.producer_id,
            "state": listing.state,
        }
        for listing in listed
    ]
    columns = ["transactional id", "coordinator", ">producer id", "state"]
    print_listed(found, as_json, columns, "There are no transactions.")


@app.command()
def describe(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID…")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show state, producer, age and partitions of transactions."""
    from odradek_cli.client import connect

    with connect(bootstrap) as client:
        described = [_described(client, name) for name in transactional_ids]
    if as_json:
        print_json(described)
        return
    columns = ["transactional id", "state", ">producer id", ">epoch", ">open for", "partitions"]
    rows = [
        (
            one["transactional_id"],
            one["state"],
            one["producer_id"],
            one["producer_epoch"],
            None if one["open_ms"] is None else f"{one['open_ms'] / 1000:.1f} s",
            ", ".join(f"{p['topic']}-{p['partition']}" for p in one["partitions"]),
        )
        for one in described
    ]
    print_table(columns, rows)


@app.command()
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(help="Abort through its coordinator.", metavar="[ID]")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="TOPIC:PARTITION",
            help="Only in this partition, without the coordinator.",
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            "--producer-id", help="With --partition: the producer whose transaction is aborted."
        ),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Abort a transaction by force; the next request of its producer fails."""
    from odradek_cli.client import connect

    if transactional_id is not None and partition is None:
        with connect(bootstrap) as client:
            _described(client, transactional_id)  # an unknown id is an error, not a new producer
        confirm(f"Abort the transaction of {transactional_id}, and fence its producer?", yes)
        _abort_by_id(bootstrap, transactional_id)
        done = {"transactional_id": transactional_id}
        sentence = f"Aborted; earlier producers of {transactional_id} are fenced."
    elif transactional_id is None and partition is not None and producer_id is not None:
        confirm(f"Abort the transaction of producer {producer_id} in {partition}?", yes)
        with connect(bootstrap) as client:
            done = _abort_in_partition(client, Target.parse(partition), producer_id)
        sentence = f"Aborted the transaction of producer {producer_id} in {partition}."
    else:
        raise UsageError("say which: a TRANSACTIONAL_ID, or --partition and --producer-id")
    print_json({"aborted": done}) if as_json else print(sentence)


def _described(client: KafkaClient, name: str) -> dict[str, Any]:
    from odradek_protocol.client.admin.transactions import describe_transaction
    from odradek_protocol.client.errors import BrokerError

    try:
        found = describe_transaction(client, name)
    except BrokerError as error:
        if error.name == "TRANSACTIONAL_ID_NOT_FOUND":
            raise CliError(
                f"transactional id {name}: there is no such id; `odradek transactions list` "
                "shows all"
            ) from error
        raise CliError(f"transactional id {name}: {error}") from error
    age_ms = int(time.time() * 1000) - found.start_ms
    return {
        "transactional_id": name,
        "coordinator": found.coordinator_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "open_ms": max(age_ms, 0) if found.start_ms >= 0 else None,
        "partitions": [place._asdict() for place in found.partitions],
    }


def _abort_by_id(bootstrap: str, name: str) -> None:
    """Starts a new instance of that producer: its first request ends the open transaction."""
    from confluent_kafka import KafkaException, Producer

    from odradek_cli.librdkafka import reason, settings

    producer = Producer(settings(bootstrap, transactional_id=name))
    try:
        producer.init_transactions(INIT_TIMEOUT_S)
    except KafkaException as error:
        raise CliError(f"transactional id {name}: {reason(error)}") from error


def _abort_in_partition(client: KafkaClient, target: Target, producer_id: int) -> dict[str, Any]:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.transactions import abort_in_partition
    from odradek_protocol.ids import TopicPartition

    if target.partition is None:
        raise UsageError(f"--partition {target.topic}: expected TOPIC:PARTITION")
    place = TopicPartition(target.topic, target.partition)
    with about(str(place)):
        producer = _open_producer(client, place, producer_id)
        abort_in_partition(client, place, producer)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "producer_id": producer_id,
        "start_offset": producer.start_offset,
    }


def _open_producer(client: KafkaClient, place: TopicPartition, producer_id: int) -> ActiveProducer:
    from odradek_protocol.client.admin.transactions import NOT_OPEN, describe_producers

    for producer in describe_producers(client, place):
        if producer.producer_id == producer_id:
            if producer.start_offset != NOT_OPEN:
                return producer
            raise CliError(f"producer {producer_id} has no transaction open in {place}")
    raise CliError(f"{place} knows no producer {producer_id}")
