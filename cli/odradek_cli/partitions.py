"""`odradek partitions`: move replicas to other brokers, and choose leaders.

    odradek partitions reassign orders:0=2,3,1 orders:1=3,1,2     these replicas, in this order
    odradek partitions reassign orders --brokers 1,2,4            spread over these brokers
    odradek partitions reassign orders --cancel                   stay where you are
    odradek partitions reassign                                   what is moving now
    odradek partitions elect orders                               the preferred leaders lead again

Replicas copy while clients go on; `--wait` returns when the last one has arrived.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, complete_topic
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata
    from kafka import KafkaAdminClient

app = typer.Typer(help="Move replicas between brokers; elect leaders.", no_args_is_help=True)

ASK_AGAIN_S = 0.2

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        help="TOPIC, TOPIC:PARTITION or TOPIC:PARTITION=BROKER,BROKER,…",
        autocompletion=complete_topic,
        metavar="TARGET…",
    ),
]


@dataclass(frozen=True)
class Target:
    """orders (partition None: all), orders:0, orders:0=2,3,1."""

    topic: str
    partition: int | None = None
    replicas: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Target:
        place, _, replicas = text.partition("=")
        topic, _, partition = place.partition(":")
        try:
            return cls(
                topic,
                int(partition) if partition else None,
                tuple(int(broker) for broker in replicas.split(",")) if replicas else (),
            )
        except ValueError:
            raise CliError(
                f"{text}: expected TOPIC, TOPIC:PARTITION or TOPIC:PARTITION=1,2,3"
            ) from None


Place = tuple[str, int]


@app.command()
def reassign(
    targets: Targets = None,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="ID,ID,…", help="Spread the targets over these."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", help="With --brokers; default: as it is."),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop what is moving.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when everything moved.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move replicas to other brokers; without targets, show what is moving."""
    from odradek_cli.client import TIMEOUT_S, connect
    from odradek_cli.quorum import kafka_admin

    parsed = [Target.parse(text) for text in targets or []]
    metadata = connect(bootstrap).list_topics(timeout=TIMEOUT_S)
    current = _current(metadata, parsed)
    with kafka_admin(bootstrap, "reassignment") as admin:
        if not parsed:
            _show(_moving(admin), as_json)
            return
        plan: dict[Place, list[int] | None]
        if cancel:
            moving = {(m["topic"], m["partition"]) for m in _moving(admin)}
            plan = {place: None for place in current if place in moving}
        elif brokers is not None:
            racks = _racks(bootstrap, brokers)
            plan = dict(spread(current, racks, replication_factor, Random()))
        else:
            plan = dict(_explicit(parsed))
        if not dry_run:
            _submit(admin, plan)
        if wait and not dry_run:
            while any((m["topic"], m["partition"]) in plan for m in _moving(admin)):
                time.sleep(ASK_AGAIN_S)
    _print_plan(plan, current, as_json)


@app.command()
def elect(
    targets: Targets = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Also a replica that may lack records: loses data."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Let the preferred leaders lead again (all partitions, or the targets)."""
    from confluent_kafka import ElectionType, KafkaError, TopicPartition

    from odradek_cli.client import TIMEOUT_S, connect, settle

    parsed = [Target.parse(text) for text in targets or []]
    admin = connect(bootstrap)
    places = _current(admin.list_topics(timeout=TIMEOUT_S), parsed)
    asked = [TopicPartition(topic, partition) for topic, partition in places] if parsed else None
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    answers: dict[Any, Any] = settle("elect", admin.elect_leaders(kind, asked))
    elected, refused = [], []
    for place, error in sorted(
        answers.items(), key=lambda item: (item[0].topic, item[0].partition)
    ):
        if error is None:
            elected.append({"topic": place.topic, "partition": place.partition})
        elif error.code() != KafkaError.ELECTION_NOT_NEEDED:
            refused.append(f"{place.topic}-{place.partition}: {error.str()} ({error.name()})")
    if as_json:
        print_json({"elected": elected, "refused": refused})
    else:
        for place in elected:
            print(f"Elected a leader of {place['topic']}-{place['partition']}.")
        if not elected and not refused:
            print("Every partition is led by its preferred replica.")
    if refused:
        raise CliError("; ".join(refused))


def spread(
    current: dict[Place, list[int]],
    racks: dict[int, str | None],
    replication_factor: int | None,
    rng: Random,
) -> dict[Place, list[int]]:
    """New replicas for each partition, by the rule that new topics follow; topic by topic."""
    from odradek_broker.controller.assignment import assign_replicas
    from odradek_protocol.error_codes import KafkaError
    from odradek_protocol.ids import BrokerId

    plan: dict[Place, list[int]] = {}
    for topic in sorted({topic for topic, _ in current}):
        places = sorted(place for place in current if place[0] == topic)
        factor = replication_factor or len(current[places[0]])
        known = {BrokerId(broker): rack for broker, rack in racks.items()}
        try:
            assigned = assign_replicas(known, len(places), factor, rng)
        except KafkaError as error:
            raise CliError(f"topic {topic}: {error}") from error
        plan |= {place: list(map(int, rs)) for place, rs in zip(places, assigned, strict=True)}
    return plan


def _current(metadata: ClusterMetadata, targets: list[Target]) -> dict[Place, list[int]]:
    """Topic and partition → replicas, of the targets; all partitions without any."""
    found = {}
    for target in targets or [Target(topic) for topic in metadata.topics]:
        topic = metadata.topics.get(target.topic)
        if topic is None:
            raise CliError(f"topic {target.topic}: there is no such topic")
        if target.partition is not None and target.partition not in topic.partitions:
            raise CliError(f"topic {target.topic}: there is no partition {target.partition}")
        for number, partition in topic.partitions.items():
            if target.partition in (None, number):
                found[target.topic, number] = list(partition.replicas)
    return found


def _explicit(targets: list[Target]) -> dict[Place, list[int]]:
    plan = {}
    for target in targets:
        if target.partition is None or not target.replicas:
            raise CliError(
                f"{target.topic}: say where to: {target.topic}:PARTITION=BROKER,… or --brokers"
            )
        plan[target.topic, target.partition] = list(target.replicas)
    return plan


def _racks(bootstrap: str, brokers: str) -> dict[int, str | None]:
    from odradek_cli.client import connect, settle

    admin = connect(bootstrap)  # held by a name: what it was asked fails when it is collected
    cluster = settle("cluster", admin.describe_cluster())
    nodes = {node.id: node.rack for node in cluster.nodes}
    try:
        asked = [int(broker) for broker in brokers.split(",")]
    except ValueError:
        raise CliError(f"--brokers {brokers}: expected ids, as 1,2,3") from None
    if unknown := [broker for broker in asked if broker not in nodes]:
        raise CliError(f"--brokers {brokers}: there is no broker {unknown[0]}")
    return {broker: nodes[broker] for broker in asked}


def _submit(admin: KafkaAdminClient, plan: dict[Place, list[int] | None]) -> None:
    from kafka import TopicPartition

    if not plan:
        return
    answers = admin.alter_partition_reassignments(
        {TopicPartition(*place): replicas for place, replicas in plan.items()}
    )
    refused = [
        f"{place.topic}-{place.partition}: {error.__name__.removesuffix('Error')}"
        for place, error in answers.items()
        if error is not None
    ]
    if refused:
        raise CliError("; ".join(refused))


def _moving(admin: KafkaAdminClient) -> list[dict[str, Any]]:
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": moving["replicas"],
            "adding": moving["adding_replicas"],
            "removing": moving["removing_replicas"],
        }
        for place, moving in sorted(admin.list_partition_reassignments().items())
    ]


def _show(moving: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(moving)
    elif not moving:
        print("Nothing is moving.")
    else:
        columns = ["partition", "replicas", "adding", "removing"]
        rows = [
            (f"{m['topic']}-{m['partition']}", *(_ids(m[column]) for column in columns[1:]))
            for m in moving
        ]
        print_table(columns, rows)


def _print_plan(
    plan: dict[Place, list[int] | None], current: dict[Place, list[int]], as_json: bool
) -> None:
    if as_json:
        print_json(
            [
                {"topic": topic, "partition": number, "from": current[topic, number], "to": to}
                for (topic, number), to in sorted(plan.items())
            ]
        )
        return
    rows = [
        (f"{topic}-{number}", _ids(current[topic, number]), "cancelled" if to is None else _ids(to))
        for (topic, number), to in sorted(plan.items())
    ]
    print_table(["partition", "from", "to"], rows)


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))
