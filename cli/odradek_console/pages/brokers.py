"""Brokers: racks, leaders, replicas, disks; one broker with its directories and settings."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from odradek_console.cluster.brokers import collect
from odradek_console.cluster.sampling import ROUND_TRIP
from odradek_console.pages.settings import SettingsTable, propose_setting, settings_table
from odradek_console.web.changes import Change, Row
from odradek_console.web.proposing import propose, refuse
from odradek_console.web.rendering import SESSION, address, render
from odradek_protocol.client.admin.configs import ResourceType
from odradek_protocol.client.admin.partitions import ElectionType, elect_leaders
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.ids import TopicPartition


async def list_brokers(request: web.Request) -> web.Response:
    session = request[SESSION]
    rows, not_preferred = await session.run(collect, session.view)
    history = session.view.history
    trips = {row.broker.broker_id: history.series((ROUND_TRIP, row.broker.broker_id))
             for row in rows}  # fmt: skip
    return render(request, "brokers.html", rows=rows, trips=trips, not_preferred=not_preferred)


async def one_broker(request: web.Request) -> web.Response:
    session, broker_id = request[SESSION], int(request.match_info["id"])
    rows, _ = await session.run(collect, session.view)
    row = next((row for row in rows if row.broker.broker_id == broker_id), None)
    if row is None:
        raise web.HTTPNotFound
    settings: SettingsTable | str
    try:
        settings = await session.run(
            settings_table, request.query, session.view, ResourceType.BROKER, str(broker_id)
        )
    except ClientError as error:
        settings = str(error)
    return render(request, "broker.html", row=row, settings=settings)


async def change_setting(request: web.Request) -> web.StreamResponse:
    broker_id = str(int(request.match_info["id"]))
    return await propose_setting(
        request, ResourceType.BROKER, broker_id, f"broker {broker_id}",
        address("brokers", broker_id),
    )  # fmt: skip


async def elect_preferred(request: web.Request) -> web.StreamResponse:
    session = request[SESSION]
    _, places = await session.run(collect, session.view)
    if not places:
        refuse(request, "/brokers", "Every partition is led by its preferred leader already.")
    topics = (await session.run(session.view.metadata)).topics
    rows = []
    for place in places[:200]:
        one = topics[place.topic].partitions[place.partition]
        rows.append(Row(str(place), f"broker {one.leader}", f"broker {one.replicas[0]}"))
    more = len(places) - len(rows)
    propose(
        request,
        Change(
            "elect preferred leaders",
            f"{len(places)} partitions",
            f"Elect the preferred leaders of {len(places)} partitions",
            tuple(rows),
            partial(_elect, places=places),
            "The preferred leaders were elected where they are in sync.",
            "/brokers",
            "/brokers",
            warning=f"{more} more partitions are not listed." if more else "",
            button="Elect",
        ),
    )


def _elect(client: KafkaClient, places: list[TopicPartition]) -> None:
    elect_leaders(client, ElectionType.PREFERRED, places)
