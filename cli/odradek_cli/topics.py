"""`odradek topics`: create, list, describe, alter and delete topics of any Kafka cluster."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Topic, Topics, parse_pairs
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.kafka_client import KafkaClient

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
    names: Topics, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False
) -> None:
    """Show partitions, leaders, replicas and offsets of topics, and their own settings."""
    from odradek_cli.client import connect

    with connect(bootstrap) as client:
        described = [_describe(client, name) for name in names]
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


def _describe(client: KafkaClient, name: str) -> dict[str, Any]:
    from odradek_cli.client import found
    from odradek_protocol.client.admin.configs import ConfigSource, ResourceType, describe_configs
    from odradek_protocol.client.admin.offsets import EARLIEST, LATEST, list_offsets
    from odradek_protocol.ids import TopicPartition

    topic = client.metadata([name]).topics[name]
    if topic.error is not None:
        raise CliError(f"topic {name}: {topic.error}")
    settings = describe_configs(client, ResourceType.TOPIC, [name])[name]
    own = {
        entry.name: entry.value
        for entry in sorted(found(f"topic {name}", settings).values())
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    }
    places = [TopicPartition(name, number) for number in topic.partitions]
    first, end = (
        {
            place.partition: found(f"topic {place}", answer)
            for place, answer in list_offsets(client, places, timestamp).items()
        }
        for timestamp in (EARLIEST, LATEST)
    )
    topic_id = topic.topic_id.bytes if topic.topic_id is not None else bytes(16)
    return {
        "name": name,
        "topic_id": base64.urlsafe_b64encode(topic_id).decode().rstrip("="),
        "internal": topic.internal,
        "configs": own,
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader if p.leader >= 0 else None,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "first_offset": first[p.partition],
                "end_offset": end[p.partition],
            }
            for p in topic.partitions.values()
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
    from odradek_cli.client import connect
    from odradek_cli.configs import Changes, apply
    from odradek_protocol.client.admin.configs import ResourceType
    from odradek_protocol.client.admin.topics import create_partitions

    changes = Changes(set=parse_pairs("--config", config or []), delete=delete_config or [])
    if partitions is None and not changes:
        raise CliError("nothing to alter: give --partitions, --config or --delete-config")
    with connect(bootstrap) as client:
        if partitions is not None:
            refused = create_partitions(client, {name: partitions})
            if name in refused:
                raise CliError(f"topic {name}: --partitions {partitions}: {refused[name]}")
        if changes:
            apply(client, ResourceType.TOPIC, name, changes)
        described = _describe(client, name) if as_json else None
    if as_json:
        print_json(described)
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
    from odradek_cli.client import connect, raise_first
    from odradek_protocol.client.admin.topics import delete_topics

    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    with connect(bootstrap) as client:
        raise_first("topic", delete_topics(client, names))
    if as_json:
        print_json({"deleted": names})
    else:
        for name in names:
            print(f"Deleted topic {name}.")
