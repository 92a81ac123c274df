"""`odradek topics`: create, list, describe, alter and delete topics of any Kafka cluster."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Topic,
    Topics,
    Yes,
    complete_topic,
    confirm,
    parse_pairs,
)
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.kafka_client import KafkaClient
    from odradek_protocol.ids import TopicPartition

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-C", metavar="NAME=VALUE", help="A topic setting; repeatable."),
]


@app.command()
def create(
    names: Topics,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Default: the broker's num.partitions.")
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", "-r", help="Default: the broker's default.replication.factor."
        ),
    ] = -1,
    config: Config = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create topics."""
    from odradek_cli.client import connect, raise_first
    from odradek_protocol.client.admin.topics import NewTopic, create_topics

    configs = parse_pairs("--config", config or [])
    with connect(bootstrap) as client:
        new = [NewTopic(name, partitions, replication_factor, configs) for name in names]
        refused = create_topics(client, new)
    created = [name for name in names if name not in refused]
    exists = "TOPIC_ALREADY_EXISTS"
    raise_first(
        "topic",
        {n: e for n, e in refused.items() if not (if_not_exists and e.name == exists)},
    )
    if as_json:
        print_json({"created": created})
    else:
        for name in created:
            print(f"Created topic {name}.")


@app.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also topics whose names begin with __.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics with the number of their partitions."""
    from odradek_cli.client import connect

    with connect(bootstrap) as client:
        topics = client.metadata().topics
    rows = [
        (name, len(topic.partitions))
        for name, topic in sorted(topics.items())
        if internal or not name.startswith("__")
    ]
    if as_json:
        print_json([{"name": name, "partitions": count} for name, count in rows])
    else:
        print_table(["topic", ">partitions"], rows)


@app.command()
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of topics. Default: all that are not internal.",
            autocompletion=complete_topic,
            metavar="[TOPIC…]",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show partitions, leaders, replicas and offsets of topics, and their own settings."""
    from odradek_cli.client import connect

    with connect(bootstrap) as client:
        described = describe_topics(client, names)
    if as_json:
        print_json(described)
        return
    if not described:
        print("There are no topics.")
    for topic in described:
        own = ", ".join(f"{name}={value}" for name, value in topic["configs"].items())
        print(f"{topic['name']}  id {topic['topic_id']}  {own}".rstrip())
        columns = [
            ">partition",
            ">leader",
            "replicas",
            "isr",
            ">first",
            ">end",
            ">records, at most",
        ]
        print_table(
            columns,
            [
                (
                    p["partition"],
                    "none" if p["leader"] is None else p["leader"],
                    ",".join(map(str, p["replicas"])),
                    ",".join(map(str, p["isr"])),
                    p["first_offset"],
                    p["end_offset"],
                    p["records_at_most"],
                )
                for p in topic["partitions"]
            ],
        )


def describe_topics(client: KafkaClient, names: list[str] | None) -> list[dict[str, Any]]:
    """The named topics, or all that are not internal, with one request to each broker."""
    from odradek_cli.client import found
    from odradek_protocol.client.admin.configs import ConfigSource, ResourceType, describe_configs
    from odradek_protocol.ids import TopicPartition

    topics = client.metadata(names).topics
    if names is None:
        names = sorted(name for name in topics if not name.startswith("__"))
    for name in names:
        if (error := topics[name].error) is not None:
            raise CliError(f"topic {name}: {error}")
    settings = describe_configs(client, ResourceType.TOPIC, names)
    led = [
        TopicPartition(name, number)
        for name in names
        for number, partition in topics[name].partitions.items()
        if partition.leader >= 0  # without a leader the offsets are unknown
    ]
    first, end = _ends(client, led)
    described = []
    for name in names:
        topic = topics[name]
        topic_id = topic.topic_id.bytes if topic.topic_id is not None else bytes(16)
        partitions = []
        for p in topic.partitions.values():
            place = TopicPartition(name, p.partition)
            low, high = first.get(place), end.get(place)
            partitions.append({
                "partition": p.partition,
                "leader": p.leader if p.leader >= 0 else None,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "first_offset": low,
                "end_offset": high,
                # compaction leaves gaps, and markers of transactions take offsets
                "records_at_most": None if low is None or high is None else high - low,
            })  # fmt: skip
        described.append({
            "name": name,
            "topic_id": base64.urlsafe_b64encode(topic_id).decode().rstrip("="),
            "internal": topic.internal,
            "configs": {
                entry.name: entry.value
                for entry in sorted(found(f"topic {name}", settings[name]).values())
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
            },
            "partitions": partitions,
        })  # fmt: skip
    return described


def _ends(
    client: KafkaClient, places: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first offsets, and the offsets after the last records."""
    from odradek_cli.client import found
    from odradek_protocol.client.admin.offsets import EARLIEST, LATEST, list_offsets

    first, end = (
        {
            place: found(f"topic {place}", answer)
            for place, answer in list_offsets(client, places, timestamp).items()
        }
        for timestamp in (EARLIEST, LATEST)
    )
    return first, end


@app.command()
def alter(
    name: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="New number; it can only grow.")
    ] = None,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Back to the default; repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic, or change its settings."""
    from odradek_cli.client import connect
    from odradek_cli.configs import Changes, apply
    from odradek_protocol.client.admin.configs import ResourceType
    from odradek_protocol.client.admin.topics import create_partitions

    changes = Changes(set=parse_pairs("--config", config or []), delete=delete_config or [])
    if partitions is None and not changes:
        raise UsageError("nothing to alter: give --partitions, --config or --delete-config")
    with connect(bootstrap) as client:
        if partitions is not None:
            refused = create_partitions(client, {name: partitions})
            if name in refused:
                raise CliError(f"topic {name}: --partitions {partitions}: {refused[name]}")
        if changes:
            apply(client, ResourceType.TOPIC, name, changes)
        described = describe_topics(client, [name])[0] if as_json else None
    if as_json:
        print_json(described)
    else:
        print(f"Altered topic {name}.")


@app.command()
def delete(
    names: Topics,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics and all their records."""
    from odradek_cli.client import connect, report_deleted
    from odradek_protocol.client.admin.topics import delete_topics

    confirm(f"Delete {', '.join(names)} with all records?", yes)
    with connect(bootstrap) as client:
        refused = delete_topics(client, names)
    report_deleted("topic", names, refused, as_json)


@app.command("delete-records")
def delete_records(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="TOPIC (all its partitions) or TOPIC:PARTITION.",
            autocompletion=complete_topic,
            metavar="TOPIC[:PARTITION]…",
        ),
    ],
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="OFFSET|end", help="Records before this offset; end: all."
        ),
    ] = None,
    before_timestamp: Annotated[
        str | None,
        typer.Option(
            "--before-timestamp",
            help="Records before this time: 2026-01-31T12:00:00, or ms since 1970.",
        ),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of partitions, up to an offset or a time."""
    from odradek_cli.client import connect, found
    from odradek_cli.partitions import Target, places_of
    from odradek_protocol.client.admin import records

    if (before is None) == (before_timestamp is None):
        raise UsageError("say up to where: --before OFFSET, --before end, or --before-timestamp")
    if before is not None and before != "end" and not before.isdecimal():
        raise UsageError(f"--before {before}: expected an offset or end")
    what = f"before {before or before_timestamp}" if before != "end" else "up to the end"
    parsed = [Target.parse(text) for text in targets]
    with connect(bootstrap) as client:
        places = places_of(client.metadata(), parsed)
        confirm(f"Delete the records of {', '.join(targets)} {what}?", yes)
        first, end = _ends(client, places)
        if before_timestamp is not None:
            wanted = _offsets_at(client, places, before_timestamp, end)
        elif before == "end":
            wanted = end
        else:
            wanted = dict.fromkeys(places, int(before or 0))
        # An offset before the first record asks for nothing, which Kafka calls out of range.
        asked = {place: at for place, at in wanted.items() if at > first[place]}
        after = records.delete_records(client, asked)
        now = {p: found(f"topic {p}: --before {at}", after[p]) for p, at in asked.items()}
    result = [(place, first[place], now.get(place, first[place])) for place in sorted(places)]
    if as_json:
        print_json([{**p._asdict(), "first_offset_before": a, "first_offset": b}
                    for p, a, b in result])  # fmt: skip
    else:
        print_table(["partition", ">first before", ">first now"], result)


def _offsets_at(
    client: KafkaClient, places: list[TopicPartition], text: str, end: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The first offset at or after the time; the end where there is none."""
    from odradek_cli.client import found
    from odradek_cli.reading import parse_time
    from odradek_protocol.client.admin.offsets import list_offsets

    answers = list_offsets(client, places, parse_time(text, "--before-timestamp"))
    at = {place: found(f"topic {place}", answer) for place, answer in answers.items()}
    return {place: offset if offset >= 0 else end[place] for place, offset in at.items()}
