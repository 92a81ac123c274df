"""One topic: where its partitions are, who reads it, its settings and producers; change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from odradek_console.cluster.lags import committed_of
from odradek_console.cluster.sampling import RECORDS
from odradek_console.cluster.view import ClusterView
from odradek_console.pages.settings import propose_setting, settings_table
from odradek_console.records.scan import topic_of
from odradek_console.web.changes import Change, Row
from odradek_console.web.charts import spark
from odradek_console.web.proposing import propose, refuse, text_of
from odradek_console.web.rendering import SESSION, Page, address, number_of, render
from odradek_protocol.client.admin.configs import ResourceType
from odradek_protocol.client.admin.offsets import EARLIEST, LATEST, list_offsets
from odradek_protocol.client.admin.records import HIGH_WATERMARK, delete_records
from odradek_protocol.client.admin.topics import create_partitions, delete_topics
from odradek_protocol.client.admin.transactions import ActiveProducer, describe_producers
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.metadata import NO_LEADER, PartitionInfo, TopicInfo
from odradek_protocol.ids import TopicPartition

PARTITIONS_SHOWN = 50
GROUPS_ASKED_MAX = 1_500
PRODUCERS_ASKED_MAX = 20  # partitions; each is a request
LEADER, IN_SYNC, BEHIND, NONE = "leader", "in sync", "behind", ""


@dataclass
class PartitionRow:
    info: PartitionInfo
    cells: list[tuple[str, bool]]  # of each broker: state, preferred
    first: int | None
    end: int | None
    size: int | None

    @property
    def records(self) -> int | None:
        return None if self.first is None or self.end is None else self.end - self.first


async def partitions(request: web.Request) -> web.Response:
    session, name = request[SESSION], request.match_info["topic"]
    number = number_of(request, "page", 1)
    found = await session.run(_partitions, session.view, name, number)
    rate = session.view.history.series((RECORDS, name))
    return render(
        request, "topic.html", topic=name, tab="partitions", rate=spark(rate, "records per second"),
        now_rate=session.view.rates.get(name), **found,
    )  # fmt: skip


def _partitions(view: ClusterView, name: str, number: int) -> dict[str, Any]:
    info = topic_of(view.client, name)
    page = Page(info.partitions.values(), number, PARTITIONS_SHOWN)
    brokers = sorted({b for p in info.partitions.values() for b in p.replicas}
                     | set(view.metadata().brokers))  # fmt: skip
    places = [TopicPartition(name, p.partition) for p in info.partitions.values()
              if p.leader != NO_LEADER]  # fmt: skip
    first, end = _ends(view.client, places, EARLIEST), _ends(view.client, places, LATEST)
    sizes = _leader_sizes(view, info)
    page.items = [_partition_row(p, name, brokers, first, end, sizes) for p in page.items]
    known = [p for p in places if p in first and p in end]
    return {
        "info": info,
        "page": page,
        "brokers": brokers,
        "racks": {b: node.rack for b, node in view.metadata().brokers.items()},
        "records_at_most": sum(end[p] - first[p] for p in known) if known else None,
        "size": sum(sizes.values()) if sizes else None,
        "behind": sum(len(p.isr) < len(p.replicas) for p in info.partitions.values()),
        "offline": sum(p.leader == NO_LEADER for p in info.partitions.values()),
    }


def _partition_row(
    info: PartitionInfo,
    name: str,
    brokers: list[int],
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    sizes: Mapping[int, int],
) -> PartitionRow:
    place = TopicPartition(name, info.partition)
    cells = []
    for broker in brokers:
        preferred = bool(info.replicas) and info.replicas[0] == broker
        if broker == info.leader:
            state = LEADER
        elif broker in info.isr:
            state = IN_SYNC
        else:
            state = BEHIND if broker in info.replicas else NONE
        cells.append((state, preferred))
    return PartitionRow(info, cells, first.get(place), end.get(place), sizes.get(info.partition))


def _ends(client: KafkaClient, places: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
    answers = list_offsets(client, places, at)
    return {place: one for place, one in answers.items() if isinstance(one, int)}


def _leader_sizes(view: ClusterView, info: TopicInfo) -> dict[int, int]:
    """Partition → bytes on its leader; {} if the user may not ask."""
    try:
        log_dirs = view.log_dirs()
    except ClientError:
        return {}
    sizes = {}
    for number, one in info.partitions.items():
        directories = log_dirs.get(one.leader, [])
        if isinstance(directories, ClientError):
            continue
        for directory in directories:
            size = directory.replica_bytes.get(TopicPartition(info.name, number))
            if size is not None:
                sizes[number] = size
    return sizes


# -- groups, settings, producers -------------------------------------------------------------------


async def groups(request: web.Request) -> web.Response:
    session, name = request[SESSION], request.match_info["topic"]
    rows = await session.run(_groups, session.view, name)
    return render(request, "topic_groups.html", topic=name, tab="groups", rows=rows)


def _groups(view: ClusterView, name: str) -> list[dict[str, Any]]:
    """Groups that have committed offsets of the topic."""
    info = topic_of(view.client, name)
    listed = {one.group_id: one for one in view.groups() if one.is_consumer}
    committed = committed_of(view.client, list(listed)[:GROUPS_ASKED_MAX])
    places = [TopicPartition(name, number) for number in info.partitions]
    ends = _ends(view.client, places, LATEST)
    rows = []
    for group, offsets in committed.items():
        mine = {place: at for place, at in offsets.items() if place.topic == name}
        if mine:
            lag = sum(max(ends[p] - at, 0) for p, at in mine.items() if p in ends)
            rows.append({"group": listed[group], "partitions": len(mine), "lag": lag})
    return sorted(rows, key=lambda row: (-row["lag"], row["group"].group_id))


async def settings(request: web.Request) -> web.Response:
    session, name = request[SESSION], request.match_info["topic"]
    table = await session.run(settings_table, request.query, session.view, ResourceType.TOPIC, name)
    return render(request, "topic_settings.html", topic=name, tab="settings", settings=table)


async def change_setting(request: web.Request) -> web.StreamResponse:
    name = request.match_info["topic"]
    back = address("topics", name, "settings")
    return await propose_setting(request, ResourceType.TOPIC, name, f"topic {name}", back)


async def producers(request: web.Request) -> web.Response:
    session, name = request[SESSION], request.match_info["topic"]
    rows, left_out = await session.run(_producers, session.view, name)
    return render(
        request, "topic_producers.html", topic=name, tab="producers", rows=rows, left_out=left_out
    )


def _producers(view: ClusterView, name: str) -> tuple[list[tuple[int, ActiveProducer]], int]:
    info = topic_of(view.client, name)
    led = [n for n, one in info.partitions.items() if one.leader != NO_LEADER]
    rows = []
    for number in led[:PRODUCERS_ASKED_MAX]:
        found = describe_producers(view.client, TopicPartition(name, number))
        rows += [(number, one) for one in found]
    return rows, max(len(led) - PRODUCERS_ASKED_MAX, 0)


# -- changes ---------------------------------------------------------------------------------------


async def change(request: web.Request) -> web.StreamResponse:
    """`action` of the form: grow, empty or delete."""
    session, name = request[SESSION], request.match_info["topic"]
    back = address("topics", name)
    info = await session.run(topic_of, session.view.client, name)
    action = await text_of(request, "action")
    if action == "grow":
        propose(request, _grow(request, info, await text_of(request, "partitions"), back))
    if action == "delete":
        propose(
            request,
            Change(
                "delete topic",
                name,
                f"Delete topic {name}",
                (Row("partitions", str(len(info.partitions)), "none"),
                 Row("records", "all that are in it", "none")),
                partial(_delete, name=name),
                f"Deleted topic {name}.",
                back,
                "/topics",
                warning="Deleted records cannot be brought back.",
                type_to_confirm=name,
                button="Delete topic",
            ),
        )  # fmt: skip
    if action == "empty":
        propose(request, await session.run(_empty, session.view.client, info, back))
    raise web.HTTPBadRequest(text="unknown action\n")


def _grow(request: web.Request, info: TopicInfo, given: str, back: str) -> Change:
    now = len(info.partitions)
    if not given.isdecimal() or not now < int(given) <= 100_000:
        refuse(request, back, f"The topic has {now} partitions; their number can only grow.")
    return Change(
        "add partitions",
        info.name,
        f"Add partitions to topic {info.name}",
        (Row("partitions", str(now), given),),
        partial(_create_partitions, name=info.name, count=int(given)),
        f"Topic {info.name} has {given} partitions now.",
        back,
        back,
        warning="Records with the same key may go to other partitions from then on, and the "
        "number cannot be reduced.",
    )


def _empty(client: KafkaClient, info: TopicInfo, back: str) -> Change:
    places = [TopicPartition(info.name, n) for n in info.partitions]
    first, end = _ends(client, places, EARLIEST), _ends(client, places, LATEST)
    full = [p for p in places if p in first and p in end and end[p] > first[p]]
    rows = tuple(Row(f"first offset of {p}", str(first[p]), str(end[p])) for p in full)
    return Change(
        "delete records",
        info.name,
        f"Delete all records of topic {info.name}",
        rows,
        partial(_delete_records, before={place: end[place] for place in full}),
        f"Deleted the records of topic {info.name}.",
        back,
        back,
        warning="Deleted records cannot be brought back. Records that are written meanwhile stay.",
        type_to_confirm=info.name,
        button="Delete records",
    )


def _create_partitions(client: KafkaClient, name: str, count: int) -> None:
    for error in create_partitions(client, {name: count}).values():
        raise error


def _delete(client: KafkaClient, name: str) -> None:
    for error in delete_topics(client, [name]).values():
        raise error


def _delete_records(client: KafkaClient, before: dict[TopicPartition, int]) -> None:
    assert HIGH_WATERMARK not in before.values()  # exactly what was shown
    for outcome in delete_records(client, before).values():
        if isinstance(outcome, ClientError):
            raise outcome
