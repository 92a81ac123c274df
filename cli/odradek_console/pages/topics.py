"""Topics: search, sort and page through them on the server; create one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from odradek_console.cluster.view import ClusterView
from odradek_console.web.changes import Change, Row
from odradek_console.web.proposing import propose, refuse, text_of
from odradek_console.web.rendering import SESSION, Page, address, number_of, render
from odradek_protocol.client.admin.configs import ConfigEntry, ResourceType, describe_configs
from odradek_protocol.client.admin.topics import BROKER_DEFAULT, NewTopic, create_topics
from odradek_protocol.client.deadline import BackOff, Deadline
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.metadata import NO_LEADER, TopicInfo

PAGE_SIZE = 50
KNOWN_S = 5.0  # brokers learn of a topic in milliseconds; one that may not be seen costs this wait
COLUMNS = ("name", "partitions", "size", "rate")
SHOWN_CONFIGS = ("retention.ms", "cleanup.policy")


@dataclass
class TopicRow:
    name: str
    internal: bool
    partitions: int
    replication: int
    state: str  # "", "under-replicated", "offline"
    size: int | None
    rate: float | None
    retention: str = ""
    policy: str = ""


@dataclass
class TopicList:
    page: Page
    query: str
    sort: str
    descending: bool
    internal: bool
    hidden_internal: int


async def list_topics(request: web.Request) -> web.Response:
    session = request[SESSION]
    number = number_of(request, "page", 1)
    found = await session.run(collect, session.view, dict(request.query), number)
    return render(request, "topics.html", found=found)


def collect(view: ClusterView, query: Mapping[str, str], number: int) -> TopicList:
    wanted = query.get("q", "").strip()
    internal = query.get("internal") == "1"
    sort = query.get("sort", "name")
    descending = query.get("order") == "desc"
    topics = [t for t in view.metadata().topics.values() if wanted.lower() in t.name.lower()]
    shown = [t for t in topics if internal or not is_internal(t)]
    try:
        sizes = view.topic_sizes()
    except ClientError:
        sizes = {}
    keys = {
        "name": lambda t: t.name,
        "partitions": lambda t: (len(t.partitions), t.name),
        "size": lambda t: (sizes.get(t.name, 0), t.name),
        "rate": lambda t: (view.rates.get(t.name, 0.0), t.name),
    }
    shown.sort(key=keys.get(sort, keys["name"]), reverse=descending)
    page = Page(shown, number, PAGE_SIZE)
    page.items = [_row(topic, sizes, view.rates) for topic in page.items]
    _add_configs(view.client, page.items)
    return TopicList(page, wanted, sort, descending, internal, len(topics) - len(shown))


def is_internal(topic: TopicInfo) -> bool:
    return topic.internal or topic.name.startswith("__")


def _row(topic: TopicInfo, sizes: Mapping[str, int], rates: Mapping[str, float]) -> TopicRow:
    partitions = topic.partitions.values()
    state = ""
    if any(one.leader == NO_LEADER for one in partitions):
        state = "offline"
    elif any(len(one.isr) < len(one.replicas) for one in partitions):
        state = "under-replicated"
    return TopicRow(
        topic.name,
        is_internal(topic),
        len(partitions),
        max((len(one.replicas) for one in partitions), default=0),
        state,
        sizes.get(topic.name, 0) if sizes else None,
        rates.get(topic.name),
    )


def _add_configs(client: KafkaClient, rows: list[TopicRow]) -> None:
    """Of the topics on this page, with one request."""
    answers = describe_configs(
        client, ResourceType.TOPIC, [row.name for row in rows], SHOWN_CONFIGS
    )
    for row in rows:
        found = answers.get(row.name)
        if found is not None and not isinstance(found, ClientError):
            row.retention = _value(found.get("retention.ms"))
            row.policy = _value(found.get("cleanup.policy"))


def _value(entry: ConfigEntry | None) -> str:
    return "" if entry is None else entry.value or ""


# -- create ----------------------------------------------------------------------------------------


async def create_form(request: web.Request) -> web.Response:
    return render(request, "create_topic.html")


async def create(request: web.Request) -> web.StreamResponse:
    back = "/topics/-/create"
    name = await text_of(request, "name")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
        refuse(request, back, "A topic's name has 1 to 249 letters, digits, dots, _ and -.")
    numbers = {}
    for field in ("partitions", "replication"):
        given = await text_of(request, field)
        if given and (not given.isdecimal() or not 0 < int(given) < 100_000):
            refuse(request, back, f"{field}: expected a number from 1 on, or nothing.")
        numbers[field] = int(given) if given else BROKER_DEFAULT
    configs = {}
    for line in (await text_of(request, "configs")).splitlines():
        key, separator, value = line.partition("=")
        if line.strip() and not separator:
            refuse(request, back, f"settings: {line.strip()!r}: expected name=value on each line.")
        if line.strip():
            configs[key.strip()] = value.strip()
    topic = NewTopic(name, numbers["partitions"], numbers["replication"], configs)
    shown = {n: "broker's default" if v == BROKER_DEFAULT else str(v) for n, v in numbers.items()}
    propose(
        request,
        Change(
            "create topic",
            name,
            f"Create topic {name}",
            (
                Row("partitions", "–", shown["partitions"]),
                Row("replication factor", "–", shown["replication"]),
                *(Row(key, "(default)", value) for key, value in configs.items()),
            ),
            partial(_create, topic=topic),
            f"Created topic {name}.",
            back,
            address("topics", name),
            button="Create topic",
        ),
    )


def _create(client: KafkaClient, topic: NewTopic) -> None:
    for error in create_topics(client, [topic]).values():
        raise error
    _wait_until_known(client, topic.name)


def _wait_until_known(client: KafkaClient, name: str) -> None:
    """The controller has made it; the broker that answers the next page may learn of it later."""
    deadline, back_off = Deadline(KNOWN_S), BackOff()
    while True:
        found = client.metadata([name]).topics.get(name)
        if (found is not None and found.error is None) or not back_off.pause(deadline):
            return
