"""Produce one record by hand, or a record again: a dead letter back to its topic."""

from __future__ import annotations

import binascii
import json
import threading
import time
from functools import partial
from itertools import count

from aiohttp import web

from odradek_console.records.masking import HIDDEN, Masks
from odradek_console.records.scan import OFFSET, Found, Query, scan, topic_of
from odradek_console.web.changes import Change, ChangeError, Row
from odradek_console.web.proposing import carry_out
from odradek_console.web.rendering import OPTIONS, SESSION, address, number_of, own_path, render
from odradek_console.web.sessions import Session
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.partitioner import partition_of
from odradek_protocol.client.producing import produce_batches
from odradek_protocol.ids import TopicPartition
from odradek_protocol.records.records import Record, build_batch

_turns = count()  # records without a key go to one partition after another
TEXT, HEX = "text", "hex"


async def form(request: web.Request) -> web.Response:
    """With `from`, `partition` and `offset`: filled with that record."""
    session, topic = request[SESSION], request.match_info["topic"]
    info = await session.run(topic_of, session.view.client, topic)
    values = {"key": "", "value": "", "headers": "", "encoding": TEXT, "tombstone": "",
              "partition": ""}  # fmt: skip
    source = request.query.get("from", "")
    if source:
        values |= await session.run(_again, session, request.app[OPTIONS].masks, source,
                                    number_of(request, "partition", 0),
                                    number_of(request, "offset", 0))  # fmt: skip
    return render(
        request, "produce.html", topic=topic, tab="produce", values=values, source=source,
        partitions=list(info.partitions), problem="",
    )  # fmt: skip


def _again(session: Session, masks: Masks, topic: str, partition: int, offset: int
           ) -> dict[str, str]:  # fmt: skip
    """The fields of the form for a record that is there already."""
    query = Query(topic, (partition,), OFFSET, offset=offset, limit=1)
    with session.access.client() as client:
        events = scan(client, query, masks, threading.Event())
        found = next((event for event in events if isinstance(event, Found)), None)
    if found is None or found.record.offset != offset:
        raise web.HTTPNotFound
    record = found.record
    parts = (record.key, record.value, *(one for pair in record.headers for one in pair))
    readable = all(part is None or _is_text(part) for part in parts)

    def shown(part: bytes | None) -> str:
        return (part or b"").decode() if readable else (part or b"").hex()

    headers = [[shown(name), None if v is None else shown(v)] for name, v in record.headers]
    return {
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": json.dumps(headers, ensure_ascii=False) if headers else "",
        "encoding": TEXT if readable else HEX,
        "tombstone": "1" if record.value is None else "",
    }


def _is_text(data: bytes) -> bool:
    """Whether a form gives it back as it is: not control characters, nor a first line break."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return not text.startswith("\n") and all(ord(one) >= 32 or one in "\t\n" for one in text)


async def produce(request: web.Request) -> web.StreamResponse:
    session, topic = request[SESSION], request.match_info["topic"]
    names = ("key", "value", "headers", "encoding", "tombstone", "partition")
    post = await request.post()
    values = {name: str(post.get(name, "")) for name in names}
    info = await session.run(topic_of, session.view.client, topic)
    made: list[tuple[int, int]] = []
    try:
        record = record_of(values)
        partition = _choose(values["partition"], record.key, len(info.partitions))
        change = Change(
            "produce record", topic, "", (Row("record", "–", f"partition {partition}, "
            f"{len(record.value or b'')} bytes"),),
            partial(_produce, place=TopicPartition(topic, partition), record=record, made=made),
        )  # fmt: skip
        await carry_out(request, change)
    except (ValueError, ChangeError) as error:
        return render(
            request, "produce.html", 400, topic=topic, tab="produce", values=values, source="",
            partitions=list(info.partitions), problem=str(error),
        )  # fmt: skip
    ((number, offset),) = made
    session.notice("done", f"Wrote the record to {topic}-{number} at offset {offset}.")
    raise web.HTTPSeeOther(own_path(address("topics", topic, "records")))


def record_of(values: dict[str, str]) -> Record:
    """Raises ValueError with a sentence."""
    encode = (
        _unhex if values["encoding"] == HEX else lambda text: text.replace("\r\n", "\n").encode()
    )
    if HIDDEN in values["value"]:
        raise ValueError(f"the value has {HIDDEN}, which stands for what this console hides")
    headers = []
    if values["headers"].strip():
        try:
            pairs = json.loads(values["headers"])
            headers = [(encode(name), None if v is None else encode(v)) for name, v in pairs]
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                'headers: expected a list of pairs such as [["source", "console"]]'
            ) from error
    return Record(
        0,
        time.time_ns() // 1_000_000,
        encode(values["key"]) if values["key"] else None,
        None if values["tombstone"] else encode(values["value"]),
        headers,
    )


def _unhex(text: str) -> bytes:
    try:
        return binascii.unhexlify("".join(text.split()))
    except binascii.Error as error:
        raise ValueError(f"hex: {error}") from None


def _choose(given: str, key: bytes | None, partitions: int) -> int:
    if given:
        if not given.isdecimal() or int(given) >= partitions:
            raise ValueError(f"partition {given}: the topic has {partitions}")
        return int(given)
    return partition_of(key, partitions) if key is not None else next(_turns) % partitions


def _produce(
    client: KafkaClient, place: TopicPartition, record: Record, made: list[tuple[int, int]]
) -> None:
    info = topic_of(client, place.topic)
    outcome = produce_batches(client, info, {place: build_batch([record])})[place]
    if isinstance(outcome, ClientError):
        raise outcome
    made.append((place.partition, outcome))
