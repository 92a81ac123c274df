"""`odradek transactions`: who has a transaction open, where, and how to end one by force.

    odradek transactions list                        all transactional ids and their states
    odradek transactions describe payments-1         its partitions, timeout, since when
    odradek transactions abort payments-1            abort it, and fence whoever had it open
    odradek transactions abort --partition orders:0 --producer-id 4001
                                                     one that its coordinator has forgotten

A transaction that stays open holds back `read_committed` readers at its first record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from odradek_cli.output import print_json, print_table
from odradek_cli.partitions import Target

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

app = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)

INIT_TIMEOUT_S = 30.0


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", help="Only these, as Ongoing. Repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List transactional ids, with producer and state."""
    from odradek_cli.quorum import kafka_admin

    with kafka_admin(bootstrap, "transactions") as admin:
        answers = admin.list_transactions(state_filters=state or None)
    found = [
        {
            "transactional_id": listing.transactional_id,
            "coordinator": broker,
            "producer_id": listing.producer_id,
            "state": listing.state.value,
        }
        for broker, listings in answers.items()
        for listing in listings
    ]
    found.sort(key=lambda one: str(one["transactional_id"]))
    if as_json:
        print_json(found)
    elif not found:
        print("There are no transactions.")
    else:
        columns = ["transactional id", "coordinator", ">producer id", "state"]
        print_table(columns, [tuple(one.values()) for one in found])


@app.command()
def describe(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID…")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show state, producer, age and partitions of transactions."""
    described = [_described(bootstrap, name) for name in transactional_ids]
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
        typer.Option("--partition", metavar="TOPIC:PARTITION", help="Only here; see above."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", help="With --partition: whose.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Abort a transaction by force; whoever has it open gets an error with its next request."""
    if transactional_id is not None and partition is None:
        _abort_by_id(bootstrap, transactional_id)
        done = {"transactional_id": transactional_id}
        sentence = f"Aborted; earlier producers of {transactional_id} are fenced."
    elif transactional_id is None and partition is not None and producer_id is not None:
        done = _abort_in_partition(bootstrap, Target.parse(partition), producer_id)
        sentence = f"Aborted the transaction of producer {producer_id} in {partition}."
    else:
        raise CliError("say which: a TRANSACTIONAL_ID, or --partition and --producer-id")
    print_json({"aborted": done}) if as_json else print(sentence)


def _described(bootstrap: str, name: str) -> dict[str, Any]:
    from odradek_cli.quorum import kafka_admin

    with kafka_admin(bootstrap, f"transactional id {name}") as admin:
        found = admin.describe_transactions([name])[name]
    started = found.transaction_start_time_ms
    return {
        "transactional_id": name,
        "coordinator": found.coordinator_id,
        "state": found.state.value,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "open_ms": max(int(time.time() * 1000) - started, 0) if started >= 0 else None,
        "partitions": [
            {"topic": place.topic, "partition": place.partition}
            for place in sorted(found.topic_partitions)
        ],
    }


def _abort_by_id(bootstrap: str, name: str) -> None:
    """As a new instance of that producer: its first request ends what the old one has open."""
    from confluent_kafka import KafkaException, Producer

    from odradek_cli.client import reason, settings

    _described(bootstrap, name)  # an unknown id is an error, not a new producer
    producer = Producer(settings(bootstrap, transactional_id=name))
    try:
        producer.init_transactions(INIT_TIMEOUT_S)
    except KafkaException as error:
        raise CliError(f"transactional id {name}: {reason(error)}") from error


def _abort_in_partition(bootstrap: str, target: Target, producer_id: int) -> dict[str, Any]:
    from kafka import TopicPartition
    from kafka.admin import AbortTransactionSpec

    from odradek_cli.quorum import kafka_admin

    if target.partition is None:
        raise CliError(f"--partition {target.topic}: expected TOPIC:PARTITION")
    place = TopicPartition(target.topic, target.partition)
    with kafka_admin(bootstrap, f"{place.topic}-{place.partition}") as admin:
        producer = _open_producer(admin, place, producer_id)
        admin.abort_transaction(
            AbortTransactionSpec(
                place, producer_id, producer.producer_epoch, max(producer.coordinator_epoch, 0)
            )
        )
    return {
        "topic": place.topic,
        "partition": place.partition,
        "producer_id": producer_id,
        "start_offset": producer.current_transaction_start_offset,
    }


def _open_producer(admin: KafkaAdminClient, place: Any, producer_id: int) -> Any:
    for producer in admin.describe_producers([place])[place].active_producers:
        if producer.producer_id == producer_id:
            if producer.current_transaction_start_offset >= 0:
                return producer
            raise CliError(f"producer {producer_id} has no transaction open in {place.topic}")
    raise CliError(f"{place.topic}-{place.partition} knows no producer {producer_id}")
