"""`odradek topics`: create, list, describe, alter and delete topics of any Kafka cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Topic, Topics, parse_pairs
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, TopicDescription

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
        typer.Option("--replication-factor", "-r", help="Default: the broker's own."),
    ] = -1,
    config: Config = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed when the topic is there already.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create topics."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    from odradek_cli.client import connect, settle

    configs = parse_pairs("--config", config or [])
    admin = connect(bootstrap)
    new = [NewTopic(name, partitions, replication_factor, config=configs) for name in names]
    created = []
    for name, answer in admin.create_topics(new).items():
        try:
            settle(f"topic {name}", answer)
            created.append(name)
        except CliError as error:
            cause = error.__cause__
            there = isinstance(cause, KafkaException) and (
                cause.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            )
            if not (if_not_exists and there):
                raise
    if as_json:
        print_json({"created": created})
    else:
        for name in created:
            print(f"Created topic {name}.")


@app.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also those whose names begin with __.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics with the number of their partitions."""
    from odradek_cli.client import TIMEOUT_S, connect

    found = connect(bootstrap).list_topics(timeout=TIMEOUT_S).topics
    rows = [
        (name, len(topic.partitions))
        for name, topic in sorted(found.items())
        if internal or not name.startswith("__")
    ]
    if as_json:
        print_json([{"name": name, "partitions": count} for name, count in rows])
    else:
        print_table(["topic", ">partitions"], rows)


@app.command()
def describe(
    names: Topics, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False
) -> None:
    """Show partitions, leaders, replicas and offsets of topics, and their own settings."""
    from odradek_cli.client import connect

    admin = connect(bootstrap)
    described = [_describe(admin, name) for name in names]
    if as_json:
        print_json(described)
        return
    for topic in described:
        own = ", ".join(f"{name}={value}" for name, value in topic["configs"].items())
        print(f"{topic['name']}  id {topic['topic_id']}  {own}".rstrip())
        columns = [">partition", ">leader", "replicas", "isr", ">first", ">end", ">records"]
        print_table(
            columns,
            [
                (
                    p["partition"],
                    p["leader"],
                    ",".join(map(str, p["replicas"])),
                    ",".join(map(str, p["isr"])),
                    p["first_offset"],
                    p["end_offset"],
                    p["end_offset"] - p["first_offset"],
                )
                for p in topic["partitions"]
            ],
        )


def _describe(admin: AdminClient, name: str) -> dict[str, Any]:
    from confluent_kafka import TopicCollection, TopicPartition
    from confluent_kafka.admin import ConfigResource, ConfigSource, OffsetSpec, ResourceType

    from odradek_cli.client import settle

    topic: TopicDescription = settle(
        f"topic {name}", admin.describe_topics(TopicCollection([name]))[name]
    )
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = settle(f"topic {name}", admin.describe_configs([resource])[resource])
    offsets: dict[str, dict[int, int]] = {}
    for label, spec in (("first", OffsetSpec.earliest()), ("end", OffsetSpec.latest())):
        asked = {TopicPartition(name, p.id): spec for p in topic.partitions}
        offsets[label] = {
            at.partition: settle(f"topic {name}-{at.partition}", answer).offset
            for at, answer in admin.list_offsets(asked).items()
        }
    return {
        "name": name,
        # librdkafka prints plain base64; Kafka's tools print the URL-safe form.
        "topic_id": str(topic.topic_id).replace("+", "-").replace("/", "_"),
        "internal": topic.is_internal,
        "configs": {
            entry.name: entry.value
            for entry in sorted(entries.values(), key=lambda entry: entry.name)
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        },
        "partitions": [
            {
                "partition": p.id,
                "leader": p.leader.id if p.leader else None,
                "replicas": [node.id for node in p.replicas],
                "isr": [node.id for node in p.isr],
                "first_offset": offsets["first"][p.id],
                "end_offset": offsets["end"][p.id],
            }
            for p in topic.partitions
        ],
    }


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
    from confluent_kafka.admin import NewPartitions, ResourceType

    from odradek_cli.client import connect, settle
    from odradek_cli.configs import Changes, apply

    changes = Changes(set=parse_pairs("--config", config or []), delete=delete_config or [])
    if partitions is None and not changes:
        raise CliError("nothing to alter: give --partitions, --config or --delete-config")
    admin = connect(bootstrap)
    if partitions is not None:
        grown = admin.create_partitions([NewPartitions(name, partitions)])
        settle(f"topic {name}: --partitions {partitions}", grown[name])
    if changes:
        apply(admin, ResourceType.TOPIC, name, changes)
    if as_json:
        print_json(_describe(admin, name))
    else:
        print(f"Altered topic {name}.")


@app.command()
def delete(
    names: Topics,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics and all their records."""
    from odradek_cli.client import connect, settle

    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    admin = connect(bootstrap)
    for name, answer in admin.delete_topics(names).items():
        settle(f"topic {name}", answer)
    if as_json:
        print_json({"deleted": names})
    else:
        for name in names:
            print(f"Deleted topic {name}.")
