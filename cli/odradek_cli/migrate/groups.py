"""Committed offsets of consumer groups: read in the source, translated, set in the destination."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from odradek_cli.client import TIMEOUT_S, settle
from odradek_cli.migrate.clusters import Cluster
from odradek_cli.migrate.patience import patiently
from odradek_cli.migrate.state import Place
from odradek_cli.migrate.verify import Checked

OURS = "odradek-migrate-"


@dataclass(frozen=True)
class Committed:
    group: str
    place: Place
    offset: int
    metadata: str


def committed_offsets(source: Cluster, places: set[Place]) -> list[Committed]:
    """Of all groups that have committed something about these partitions."""
    answer = source.admin.list_consumer_groups(request_timeout=TIMEOUT_S)
    found = []
    for listing in settle("groups of the source", answer).valid:
        group = listing.group_id
        if group.startswith(OURS):
            continue
        for p in patiently(f"group {group}", partial(_read, source, group)):
            if (p.topic, p.partition) in places and p.offset >= 0:
                found.append(Committed(group, (p.topic, p.partition), p.offset, p.metadata or ""))
    return found


def translated(
    committed: list[Committed],
    counts: dict[Place, dict[int, int]],
    checked: dict[Place, Checked],
) -> list[Committed]:
    """The same commits with the destination's offsets."""
    return [
        Committed(
            c.group,
            c.place,
            checked[c.place].offset_after(counts[c.place][c.offset]),
            c.metadata,
        )
        for c in committed
    ]


def set_offsets(destination: Cluster, committed: list[Committed]) -> None:
    """Group by group; a group that has members in the destination already is an error."""
    by_group: dict[str, list[TopicPartition]] = {}
    for c in committed:
        place = TopicPartition(c.place[0], c.place[1], c.offset, c.metadata)
        by_group.setdefault(c.group, []).append(place)
    for group, offsets in sorted(by_group.items()):
        patiently(f"group {group} in the destination", partial(_write, destination, group, offsets))


def _read(source: Cluster, group: str) -> list[TopicPartition]:
    asked = source.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return list(asked[group].result(TIMEOUT_S).topic_partitions)


def _write(destination: Cluster, group: str, offsets: list[TopicPartition]) -> None:
    asked = [ConsumerGroupTopicPartitions(group, offsets)]
    answer = destination.admin.alter_consumer_group_offsets(asked)[group].result(TIMEOUT_S)
    for place in answer.topic_partitions:
        if place.error is not None:
            raise KafkaException(place.error)
