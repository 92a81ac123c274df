"""Records: look, filter, follow, export, produce.

The address is the query: /topics/orders/records?start=newest&q=4711&filter=value.amount>10.0. The
page with a filter, and a live tail, get their rows from `stream`: lines of JSON, each an event with
the row's HTML, which the server has escaped. To cancel, the browser closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiohttp import web

from odradek_cli.errors import UsageError
from odradek_cli.reading import parse_time
from odradek_console.records import export
from odradek_console.records.filtering import FilterError
from odradek_console.records.masking import Masks
from odradek_console.records.scan import (
    CURSOR,
    NEWEST,
    OFFSET,
    STARTS,
    TAIL,
    TIME,
    Done,
    Event,
    Found,
    Query,
    ScanProgress,
    scan,
    topic_of,
)
from odradek_console.records.showing import AUTO, FORMATS, HEX, TEXT, show
from odradek_console.web.guard import HEADERS, explained
from odradek_console.web.rendering import (
    OPTIONS,
    SESSION,
    address,
    environment,
    number_of,
    render,
)
from odradek_console.web.sessions import SCANS_MAX, Session
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.errors import DecodeError

if TYPE_CHECKING:
    from odradek_console.records.decoding import Schemas

logger = logging.getLogger(__name__)

LIMITS = (20, 50, 100, 500)
EXPORT_MAX = 100_000
QUERY_CHARS_MAX = 500
_END = object()


class QueryError(Exception):
    """A sentence about a parameter of the address."""


def query_of(request: web.Request) -> Query:
    given = request.query
    start = given.get("start", NEWEST)
    if start not in STARTS:
        raise QueryError(f"start {start}: one of {', '.join(STARTS)}")
    query = Query(
        request.match_info["topic"],
        _numbers(given.get("partition", "")),
        start,
        text=given.get("q", "")[:QUERY_CHARS_MAX],
        keys=_keys(given.get("key", "")[:QUERY_CHARS_MAX]),
        expression=given.get("filter", "").strip(),
        limit=min(number_of(request, "limit", 50), max(LIMITS)) or 50,
    )
    if start == OFFSET:
        return replace(query, offset=number_of(request, "offset", 0))
    if start == TIME:
        try:
            return replace(query, time_ms=parse_time(given.get("time", ""), "time"))
        except UsageError as error:
            raise QueryError(str(error)) from None
    if start == CURSOR:
        return replace(query, cursor=_cursor(given.get("at", "")))
    return query


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part for part in text.replace(" ", "").split(",") if part]
    if not all(part.isdecimal() and len(part) < 8 for part in parts):
        raise QueryError(f"partition {text}: expected numbers such as 0,2")
    return tuple(int(part) for part in parts)


def _keys(text: str) -> frozenset[bytes]:
    """The text, and for 0x… also the bytes that it spells."""
    if not text:
        return frozenset()
    found = {text.encode()}
    if text.startswith("0x"):
        with contextlib.suppress(ValueError):
            found.add(bytes.fromhex(text[2:]))
    return frozenset(found)


def _cursor(text: str) -> dict[int, int]:
    """ "0-17,1-5" → {0: 17, 1: 5}."""
    found = {}
    for part in text.split(","):
        number, _, offset = part.partition("-")
        if not (number.isdecimal() and offset.isdecimal() and len(part) < 30):
            raise QueryError(f"at {text}: expected partition-offset pairs such as 0-17,1-5")
        found[int(number)] = int(offset)
    return found


# -- the page --------------------------------------------------------------------------------------


async def records(request: web.Request) -> web.Response:
    session, name = request[SESSION], request.match_info["topic"]
    info = await session.run(topic_of, session.view.client, name)
    wanted = request.query.get("format", AUTO)
    wanted = wanted if wanted in FORMATS else AUTO
    problem, rows, done = "", [], None
    try:
        query = query_of(request)
        streamed = query.start == TAIL or bool(query.expression or query.text or query.keys)
        if not streamed:
            events = [event async for event in _events(request, session, query)]
            rows = [event for event in events if isinstance(event, Found)]
            done = next((event for event in events if isinstance(event, Done)), None)
    except (QueryError, FilterError) as error:
        problem, query, streamed = f"{error}.", Query(name), False
    more = _more(request, done) if done is not None else ""
    return render(
        request,
        "records.html",
        topic=name,
        tab="records",
        partitions=list(info.partitions),
        query=query,
        given=request.query,
        wanted=wanted,
        formats=FORMATS,
        limits=LIMITS,
        rows=[row_values(name, found, wanted) for found in rows],
        streamed=streamed,
        more=more,
        problem=problem,
        masked=bool(request.app[OPTIONS].masks.for_topic(name).rules),
        stream_path=f"{address('topics', name, 'records', 'stream')}?{request.query_string}",
        export_path=f"{address('topics', name, 'records', 'export')}?{request.query_string}",
        now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"),
    )


def row_values(topic: str, found: Found, wanted: str) -> dict[str, Any]:
    record = found.record
    return {
        "topic": topic,
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": show(record.key, wanted),
        "value": show(record.value, wanted),
        "headers": [(show(n, AUTO), show(v, AUTO)) for n, v in record.headers],
    }


def _more(request: web.Request, done: Done) -> str:
    """The address of the next page of a scan that goes forwards."""
    if not done.cursor:
        return ""
    at = ",".join(f"{number}-{offset}" for number, offset in done.cursor.items())
    kept = {k: v for k, v in request.query.items() if k not in ("start", "at", "offset", "time")}
    topic = request.match_info["topic"]
    return address("topics", topic, "records", **{**kept, "start": CURSOR, "at": at})


# -- events ----------------------------------------------------------------------------------------


@asynccontextmanager
async def _slot(session: Session) -> AsyncIterator[None]:
    if session.scans >= SCANS_MAX:
        raise FilterError(
            f"you have {SCANS_MAX} searches running already: stop one, or close its page"
        )
    session.scans += 1
    try:
        yield
    finally:
        session.scans -= 1


async def _events(
    request: web.Request, session: Session, query: Query
) -> AsyncGenerator[Event, None]:
    """A scan in threads, with connections of its own: it must not hold up the other pages."""
    stop = threading.Event()
    masks, schemas = request.app[OPTIONS].masks, _schemas_of(request)
    async with _slot(session):
        client = session.access.client()
        loop = asyncio.get_running_loop()
        events = _guarded(client, query, masks, stop, schemas)
        running: asyncio.Future[Any] | None = None
        try:
            while not session.closed:
                running = loop.run_in_executor(session.threads, next, events, _END)
                event = await asyncio.shield(running)
                if event is _END:
                    return
                yield event
        finally:
            stop.set()
            if running is not None and not running.done():
                await asyncio.wait([running])
            try:
                await loop.run_in_executor(session.threads, events.close)
                await loop.run_in_executor(session.threads, client.close)
            except RuntimeError:  # the session has ended, and its threads with it
                events.close()
                client.close()


def _schemas_of(request: web.Request) -> Schemas | None:
    """None for the formats that show bytes as they are stored."""
    stored = request.query.get("format", AUTO) in (TEXT, HEX)
    return None if stored else request.app[OPTIONS].schemas


def _guarded(
    client: KafkaClient,
    query: Query,
    masks: Masks,
    stop: threading.Event,
    schemas: Schemas | None,
) -> Generator[Event, None, None]:
    try:
        yield from scan(client, query, masks, stop, schemas)
    except DecodeError as error:
        raise FilterError(f"records that cannot be read: {error}") from error


async def stream(request: web.Request) -> web.StreamResponse:
    session, topic = request[SESSION], request.match_info["topic"]
    wanted = request.query.get("format", AUTO)
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    # aiohttp prepares before the middlewares see the response: so the headers are set there.
    await prepare(request, response)
    row = environment().get_template("record_row.html")

    async def send(event: str, **values: Any) -> None:
        await response.write(json.dumps({"event": event, **values}).encode() + b"\n")

    events = None
    try:
        query = query_of(request)
        events = _events(request, session, query)
        async for event in events:
            if isinstance(event, Found):
                html = row.render(
                    row=row_values(topic, event, wanted), options=request.app[OPTIONS]
                )
                await send("record", html=html)
            else:
                progress = event.progress if isinstance(event, Done) else event
                await send("progress", **_progress(progress))
                if isinstance(event, Done):
                    await send("done", more=_more(request, event))
    except (QueryError, FilterError) as error:
        await send("error", message=f"{error}.")
    except ClientError as error:
        await send("error", message=explained(error)["message"])
    except ConnectionError:
        logger.debug("a browser left a search of %s", topic)
    finally:
        if events is not None:
            await events.aclose()
    return response


def _progress(found: ScanProgress) -> dict[str, Any]:
    return {
        "scanned": found.scanned,
        "matched": found.matched,
        "total": found.total,
        "failed": found.failed,
        "reason": found.reason,
        "rate": round(found.per_second),
    }


async def prepare(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers["Cache-Control"] = "no-store"
    await response.prepare(request)


async def export_records(request: web.Request) -> web.StreamResponse:
    """`as`: ndjson or csv; what the page shows, with up to 100,000 records."""
    session, topic = request[SESSION], request.match_info["topic"]
    kind = request.query.get("as", export.NDJSON)
    if kind not in export.CONTENT_TYPES:
        raise web.HTTPBadRequest(text=f"as: one of {', '.join(export.CONTENT_TYPES)}\n")
    try:
        query = query_of(request)
    except QueryError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None
    if query.start == TAIL:
        raise web.HTTPBadRequest(text="a live tail has no end: choose another start\n")
    if query.start != NEWEST:
        query = replace(query, limit=EXPORT_MAX)
    await session.run(topic_of, session.view.client, topic)
    safe = "".join(one if one.isalnum() or one in "._-" else "_" for one in topic)
    response = web.StreamResponse(headers={
        "Content-Type": f"{export.CONTENT_TYPES[kind]}; charset=utf-8",
        "Content-Disposition": f'attachment; filename="{safe}.{kind}"',
    })  # fmt: skip
    await prepare(request, response)
    if kind == export.CSV:
        await response.write(export.csv_row(export.COLUMNS).encode())
    line = export.csv_line if kind == export.CSV else export.ndjson_line
    events = _events(request, session, query)
    try:
        async for event in events:
            if isinstance(event, Found):
                await response.write(line(topic, event).encode())
    except (ClientError, FilterError) as error:
        # The status is sent: end the connection, so that nobody takes the file for complete.
        logger.warning("an export of %s ended early: %s", topic, error)
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        logger.debug("a browser left an export of %s", topic)
    finally:
        await events.aclose()
    return response
