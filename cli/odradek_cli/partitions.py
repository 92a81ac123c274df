"""`odradek partitions`: move replicas to other brokers, and choose leaders.

    odradek partitions reassign orders:0=2,3,1 orders:1=3,1,2     these replicas, in this order
    odradek partitions reassign orders --brokers 1,2,4            spread over these brokers
    odradek partitions reassign orders --cancel                   stop moving, keep the old replicas
    odradek partitions reassign                                   what is moving now
    odradek partitions elect orders                               the preferred leaders lead again

Clients go on while replicas are copied; `--wait` returns when all have moved.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    complete_topic,
    confirm,
)
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.kafka_client import KafkaClient
    from odradek_protocol.client.metadata import Metadata
    from odradek_protocol.ids import TopicPartition

app = typer.Typer(help="Move replicas between brokers; elect leaders.", no_args_is_help=True)

POLL_S = 0.2

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
            raise UsageError(
                f"{text}: expected TOPIC, TOPIC:PARTITION or TOPIC:PARTITION=1,2,3"
            ) from None


Place = tuple[str, int]


@app.command()
def reassign(
    targets: Targets = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            "--brokers", metavar="ID,ID,…", help="Spread the replicas over these brokers."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", help="With --brokers. Default: unchanged."),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop moving these partitions.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when all replicas have moved.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move replicas to other brokers; without targets, show what is moving."""
    from odradek_cli.client import connect

    parsed = [Target.parse(text) for text in targets or []]
    with connect(bootstrap) as client:
        metadata = client.metadata()
        current = _current(metadata, parsed)
        if not parsed:
            _show(_moving(client), as_json)
            return
        plan: dict[Place, list[int] | None]
        if cancel:
            moving = {(m["topic"], m["partition"]) for m in _moving(client)}
            plan = {place: None for place in current if place in moving}
        elif brokers is not None:
            racks = _racks(metadata, brokers)
            plan = dict(spread(current, racks, replication_factor, Random()))
        else:
            plan = dict(_explicit(parsed))
            _check_brokers(metadata, plan)
        if not dry_run:
            _submit(client, plan)
        if wait and not dry_run:
            while any((m["topic"], m["partition"]) in plan for m in _moving(client)):
                time.sleep(POLL_S)
    _print_plan(plan, current, as_json)


@app.command()
def elect(
    targets: Targets = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Also elect replicas that are not in sync: loses records."),
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make the preferred replicas leaders again (of all partitions, or of the targets)."""
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin.partitions import ElectionType, elect_leaders
    from odradek_protocol.ids import TopicPartition

    parsed = [Target.parse(text) for text in targets or []]
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    if unclean:
        confirm("Elect replicas that are not in sync, and lose what only the others have?", yes)
    with connect(bootstrap) as client, about("elect"):
        places = _current(client.metadata(), parsed)
        wanted = [TopicPartition(*place) for place in places] if parsed else None
        outcome = sorted(elect_leaders(client, kind, wanted).items())
    elected = [place for place, error in outcome if error is None]
    refused = [f"{place}: {error}" for place, error in outcome if error is not None]
    if as_json:
        print_json({"elected": [place._asdict() for place in elected], "refused": refused})
    else:
        for place in elected:
            print(f"Elected a leader of {place}.")
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
        if factor > len(racks):
            raise CliError(
                f"topic {topic}: {factor} replicas need {factor} brokers, and --brokers names "
                f"{len(racks)}: name more brokers, or lower --replication-factor"
            )
        known = {BrokerId(broker): rack for broker, rack in racks.items()}
        try:
            assigned = assign_replicas(known, len(places), factor, rng)
        except KafkaError as error:
            raise CliError(f"topic {topic}: {error}") from error
        plan |= {place: list(map(int, rs)) for place, rs in zip(places, assigned, strict=True)}
    return plan


def _current(metadata: Metadata, targets: list[Target]) -> dict[Place, list[int]]:
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


def places_of(metadata: Metadata, targets: list[Target]) -> list[TopicPartition]:
    """The partitions of the targets; an unknown topic or partition is an error."""
    from odradek_protocol.ids import TopicPartition

    return [TopicPartition(*place) for place in sorted(_current(metadata, targets))]


def _explicit(targets: list[Target]) -> dict[Place, list[int]]:
    plan = {}
    for target in targets:
        if target.partition is None or not target.replicas:
            raise UsageError(
                f"{target.topic}: name the new brokers with {target.topic}:PARTITION=BROKER,… "
                "or --brokers"
            )
        plan[target.topic, target.partition] = list(target.replicas)
    return plan


def _check_brokers(metadata: Metadata, plan: dict[Place, list[int] | None]) -> None:
    """Names a broker that does not exist: Kafka's own error says only that the list is wrong."""
    known = sorted(metadata.brokers)
    for (topic, number), replicas in plan.items():
        for broker in replicas or ():
            if broker not in metadata.brokers:
                raise CliError(
                    f"{topic}:{number}: there is no live broker {broker}; live are: "
                    f"{', '.join(map(str, known))}"
                )


def _racks(metadata: Metadata, brokers: str) -> dict[int, str | None]:
    nodes = {node.broker_id: node.rack for node in metadata.brokers.values()}
    try:
        asked = [int(broker) for broker in brokers.split(",")]
    except ValueError:
        raise UsageError(f"--brokers {brokers}: expected ids such as 1,2,3") from None
    if unknown := [broker for broker in asked if broker not in nodes]:
        raise CliError(f"--brokers {brokers}: there is no broker {unknown[0]}")
    return {broker: nodes[broker] for broker in asked}


def _submit(client: KafkaClient, plan: dict[Place, list[int] | None]) -> None:
    from odradek_protocol.client.admin.partitions import alter_reassignments
    from odradek_protocol.ids import TopicPartition

    if not plan:
        return
    moves = {TopicPartition(*place): replicas for place, replicas in plan.items()}
    refused = alter_reassignments(client, moves)
    if refused:
        raise CliError("; ".join(f"{place}: {error}" for place, error in refused.items()))


def _moving(client: KafkaClient) -> list[dict[str, Any]]:
    from odradek_protocol.client.admin.partitions import list_reassignments

    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": list(moving.replicas),
            "adding": list(moving.adding),
            "removing": list(moving.removing),
        }
        for place, moving in sorted(list_reassignments(client).items())
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
