"""Groups of all kinds and queries of Spark in one list; one group: lag, members, reset, deletion.

A query of Spark keeps its offsets in its checkpoint, not in a group: its lag is what its driver
reports, so it is listed where the console knows the pipelines (--local, --kubernetes).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from odradek_cli.errors import CliError
from odradek_console.cluster import resets
from odradek_console.cluster.lags import Lag, lags_of
from odradek_console.cluster.sampling import LAG
from odradek_console.cluster.view import ClusterView
from odradek_console.pages.runtime import state_of
from odradek_console.web.changes import Change, ChangeError, Row
from odradek_console.web.charts import line_chart
from odradek_console.web.proposing import propose, refuse, text_of
from odradek_console.web.rendering import OPTIONS, SESSION, Page, address, number_of, render
from odradek_protocol.client.admin.groups import (
    GroupListing,
    committed_offsets,
    delete_groups,
    describe_group,
)
from odradek_protocol.client.admin.offsets import LATEST, list_offsets
from odradek_protocol.client.admin.share_groups import describe_share_group, start_offsets
from odradek_protocol.client.errors import BrokerError, ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.ids import TopicPartition

PAGE_SIZE = 50
KINDS = ("Consumer", "Classic", "Share", "Streams")
SPARK = "Spark query"
WAYS = ("earliest", "latest", "time", "duration", "shift", "offset")
PARTITIONS_SHOWN = 500


@dataclass
class GroupRow:
    name: str
    kind: str
    state: str
    address: str
    listing: GroupListing | None = None  # None: a query of Spark
    lag: Lag | None = None
    known_lag: float = 0.0  # of the last sample, or as a driver reported it
    history: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class GroupList:
    page: Page
    query: str
    kind: str
    state: str
    states: dict[str, int]
    kinds: dict[str, int]
    sort: str


async def list_groups(request: web.Request) -> web.Response:
    session = request[SESSION]
    number = number_of(request, "page", 1)
    queries = await _queries_of_spark(request)
    found = await session.run(collect, session.view, dict(request.query), number, queries)
    return render(request, "groups.html", found=found)


async def _queries_of_spark(request: web.Request) -> list[GroupRow]:
    """None for users who may not see what runs the cluster."""
    if request.app[OPTIONS].runtime is None:
        return []
    try:
        found, _ = await state_of(request)
    except ClientError:
        return []
    return [
        GroupRow(
            one.key, SPARK, one.state, address("pipelines", *one.key.split("/")),
            lag=Lag(one.lag_total, None, 0) if one.lag else None, known_lag=one.lag_total,
        )
        for one in (found.pipelines if found is not None else ())
    ]  # fmt: skip


def collect(
    view: ClusterView, query: Mapping[str, str], number: int, queries: Sequence[GroupRow] = ()
) -> GroupList:
    wanted = query.get("q", "").strip().lower()
    kind, state, sort = query.get("kind", ""), query.get("state", ""), query.get("sort", "name")
    everything = [*(_row(view, one) for one in view.groups()), *queries]
    shown = [
        one
        for one in everything
        if wanted in one.name.lower() and kind in ("", one.kind) and state in ("", one.state)
    ]
    if queries:
        shown.sort(key=lambda one: one.name)
    if sort == "lag":
        shown.sort(key=lambda one: (-one.known_lag, one.name))
    page = Page(shown, number, PAGE_SIZE)
    lags = lags_of(view.client, [one.listing for one in page.items if one.listing is not None])
    for one in page.items:
        if one.listing is not None:
            one.lag = lags.get(one.name)
            one.history = view.history.series((LAG, one.name))
    states = Counter(one.state for one in everything)
    kinds = Counter(one.kind for one in everything)
    return GroupList(
        page, query.get("q", ""), kind, state, dict(states.most_common()),
        dict(kinds.most_common()), sort,
    )  # fmt: skip


def _row(view: ClusterView, listing: GroupListing) -> GroupRow:
    name = listing.group_id
    return GroupRow(
        name, kind_of(listing), listing.state, address("groups", name), listing,
        known_lag=view.history.last((LAG, name)) or 0,
    )  # fmt: skip


def kind_of(listing: GroupListing) -> str:
    return listing.type or ("Share" if listing.is_share else "Classic")


# -- one group -------------------------------------------------------------------------------------


@dataclass
class OffsetPlace:
    place: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    owner: str = ""


@dataclass
class Described:
    group: str
    kind: str
    state: str
    assignor: str
    coordinator: int
    members: list[Any]
    places: list[OffsetPlace]
    topics: list[str]

    @property
    def lag(self) -> int | None:
        lags = [one.lag for one in self.places if one.lag is not None]
        return sum(lags) if lags else None


async def one_group(request: web.Request) -> web.Response:
    session, name = request[SESSION], request.match_info["group"]
    found = await session.run(describe, session.view, name)
    now_ms = time.time_ns() // 1_000_000
    series = session.view.history.series((LAG, name))
    return render(
        request,
        "group.html",
        found=found,
        chart=line_chart(f"Lag of {name} in records", [("lag", series)], now_ms),
        ways=WAYS,
        shown=PARTITIONS_SHOWN,
        idle=found.state in resets.IDLE,
    )


def describe(view: ClusterView, name: str) -> Described:
    listed = next((one for one in view.groups() if one.group_id == name), None)
    if listed is None:
        raise web_not_found(name)
    if listed.is_share:
        return _share(view.client, name)
    group = describe_group(view.client, name)
    committed = {p: one.offset for p, one in committed_offsets(view.client, name).items()}
    owners = {p: m.client_id or m.member_id for m in group.members for p in m.assignment}
    places = sorted(set(committed) | set(owners))
    ends = list_offsets(view.client, places, LATEST)
    rows = []
    for place in places:
        at, end = committed.get(place), ends.get(place)
        known_end = end if isinstance(end, int) else None
        lag = max(known_end - at, 0) if at is not None and known_end is not None else None
        rows.append(OffsetPlace(place, at, known_end, lag, owners.get(place, "")))
    return Described(
        name, kind_of(listed), group.state, group.assignor, group.coordinator_id,
        list(group.members), rows, sorted({p.topic for p in places}),
    )  # fmt: skip


def _share(client: KafkaClient, name: str) -> Described:
    group = describe_share_group(client, name)
    rows = []
    for place, one in sorted(start_offsets(client, name).items()):
        if isinstance(one, BrokerError):
            rows.append(OffsetPlace(place, None, None, None))
        else:
            rows.append(OffsetPlace(place, one.offset, None, one.lag))
    return Described(
        name, "Share", group.state, group.assignor, group.coordinator_id, list(group.members),
        rows, sorted({row.place.topic for row in rows}),
    )  # fmt: skip


def web_not_found(name: str) -> BrokerError:
    return BrokerError(69, f"there is no group {name!r}, or you may not see it")


async def change(request: web.Request) -> web.StreamResponse:
    """`action` of the form: reset or delete."""
    session, name = request[SESSION], request.match_info["group"]
    back = address("groups", name)
    action = await text_of(request, "action")
    if action == "delete":
        propose(
            request,
            Change(
                "delete group", name, f"Delete group {name}",
                (Row("committed offsets", "all that it has", "none"),),
                partial(_delete, name=name), f"Deleted group {name}.", back, "/groups",
                warning="Its consumers begin again where auto.offset.reset says.",
                type_to_confirm=name, button="Delete group",
            ),
        )  # fmt: skip
    if action != "reset":
        raise web.HTTPBadRequest(text="unknown action\n")
    try:
        goal = resets.goal_of(await text_of(request, "to"), await text_of(request, "argument"))
        topic = await text_of(request, "topic")
        listed = await session.run(session.view.groups)
        share = any(one.group_id == name and one.is_share for one in listed)
        planned = await session.run(resets.plan, session.view.client, name, share, goal, topic)
    except (resets.ResetError, CliError) as error:
        refuse(request, back, f"{error}.")
    rows = tuple(
        Row(str(place), _offset_text(planned.before.get(place)), _moved(planned, place, to))
        for place, to in sorted(planned.after.items())
    )
    propose(
        request,
        Change(
            "reset offsets", name, f"Reset the offsets of group {name}", rows,
            partial(_reset, planned=planned), f"Set the offsets of group {name}.", back, back,
            button="Set these offsets",
        ),
    )  # fmt: skip


def _offset_text(offset: int | None) -> str:
    return "nothing committed" if offset is None else f"{offset:,}"


def _moved(planned: resets.Reset, place: TopicPartition, to: int) -> str:
    before = planned.before.get(place)
    if before is None or before == to:
        return f"{to:,}"
    words = "skipped" if to > before else "read again"
    return f"{to:,} ({abs(to - before):,} records {words}, at most)"


def _reset(client: KafkaClient, planned: resets.Reset) -> None:
    try:
        resets.carry_out(client, planned)
    except resets.ResetError as error:
        raise ChangeError(str(error)) from None


def _delete(client: KafkaClient, name: str) -> None:
    for error in delete_groups(client, [name]).values():
        raise error
