"""Reads a topic for a person: from where they say, what passes the filter, as events.

    for event in scan(client, query, masks, stop):
        Found(partition, record) | ScanProgress(scanned, matched, …) | the last one: Done(…)

`newest` reads windows backwards from the end, doubling them, until enough records have passed;
`tail` begins at the end and waits; everything else reads forwards from its offsets to the ends
that the partitions had at the beginning. The caller ends a scan early by closing the generator or
setting `stop`. Records are READ_COMMITTED, as most consumers read them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from odradek_console.records.filtering import BATCH_RECORDS, Filter
from odradek_console.records.masking import Masks
from odradek_protocol.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from odradek_protocol.client.errors import BrokerError, ClientError
from odradek_protocol.client.fetching import consumable, fetch_once
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.metadata import NO_LEADER, TopicInfo
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.records import Record

if TYPE_CHECKING:  # it imports the codecs of all formats
    from odradek_console.records.decoding import Schemas

NEWEST, OLDEST, OFFSET, TIME, CURSOR, TAIL = "newest", "oldest", "offset", "time", "at", "tail"
STARTS = (NEWEST, OLDEST, OFFSET, TIME, CURSOR, TAIL)

FETCH_BYTES = 1 << 20  # per request: an answer that a page of records fits into
PROGRESS_S = 0.25
TAIL_WAIT_MS = 1_000
WINDOW_MAX = 100_000  # offsets per partition of one step backwards


@dataclass(frozen=True)
class Query:
    topic: str
    partitions: tuple[int, ...] = ()  # none: all
    start: str = NEWEST
    offset: int = 0
    time_ms: int = 0
    cursor: Mapping[int, int] = field(default_factory=dict)  # partition → offset
    text: str = ""  # in key or value, as UTF-8
    keys: frozenset[bytes] = frozenset()  # the whole key is one of them; none: any key
    expression: str = ""
    limit: int = 50


class Found(NamedTuple):
    partition: int
    record: Record


class ScanProgress(NamedTuple):
    scanned: int
    matched: int
    total: int  # offsets to look at, at most; 0 while tailing
    failed: int  # records for which the expression has no answer
    reason: str | None
    per_second: float


class Done(NamedTuple):
    progress: ScanProgress
    cursor: dict[int, int]  # where "more" goes on; empty: there is no more


Event = Found | ScanProgress | Done


def topic_of(client: KafkaClient, name: str) -> TopicInfo:
    """Raises BrokerError if there is no such topic, or the user may not see it."""
    found = client.metadata([name]).topics.get(name)
    if found is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition.value)
    if found.error is not None:
        raise found.error
    return found


class Scan:
    """The state of one scan. Not safe for threads; `stop` may be set by another one."""

    def __init__(
        self,
        client: KafkaClient,
        query: Query,
        masks: Masks,
        stop: threading.Event,
        schemas: Schemas | None = None,
    ) -> None:
        self._client = client
        self._schemas = schemas
        self._query = query
        self._masks = masks.for_topic(query.topic)
        self._stop = stop
        self._info = topic_of(client, query.topic)
        self._needle = query.text.encode()
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._scanned = self._matched = self._failed = self._total = 0
        self._reason: str | None = None
        self._filter: Filter | None = None

    def events(self) -> Iterator[Event]:
        places = self._places()
        low, high = self._ends(places, EARLIEST), self._ends(places, LATEST)
        places = [p for p in places if p in low and p in high]
        if self._query.expression:
            self._filter = Filter(self._query.expression)
        try:
            if self._query.start == NEWEST:
                yield from self._backwards(places, low, high)
            elif self._query.start == TAIL:
                yield from self._tail({p: high[p] for p in places})
            else:
                yield from self._forwards(self._starts(places, low, high), high)
        finally:
            if self._filter is not None:
                self._filter.close()

    # -- where -------------------------------------------------------------------------------------

    def _places(self) -> list[TopicPartition]:
        wanted = self._query.partitions
        if self._query.start == CURSOR:
            wanted = tuple(self._query.cursor)
        return [
            TopicPartition(self._info.name, number)
            for number, one in self._info.partitions.items()
            if one.leader != NO_LEADER and (not wanted or number in wanted)
        ]

    def _ends(self, places: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
        answers = list_offsets(self._client, places, at, IsolationLevel.READ_COMMITTED)
        errors = [one for one in answers.values() if isinstance(one, ClientError)]
        if errors and len(errors) == len(answers):
            raise errors[0]
        return {place: one for place, one in answers.items() if isinstance(one, int)}

    def _starts(
        self,
        places: list[TopicPartition],
        low: Mapping[TopicPartition, int],
        high: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        query = self._query
        if query.start == TIME:
            found = self._ends(places, query.time_ms)
            wanted = {p: found.get(p, -1) if found.get(p, -1) >= 0 else high[p] for p in places}
        elif query.start == CURSOR:
            wanted = {p: query.cursor[p.partition] for p in places}
        else:
            wanted = dict.fromkeys(places, query.offset if query.start == OFFSET else 0)
        return {p: max(at, low[p]) for p, at in wanted.items()}

    # -- reading -----------------------------------------------------------------------------------

    def _backwards(
        self,
        places: list[TopicPartition],
        low: Mapping[TopicPartition, int],
        high: Mapping[TopicPartition, int],
    ) -> Iterator[Event]:
        self._total = sum(high[p] - low[p] for p in places)
        ends = {p: high[p] for p in places if high[p] > low[p]}
        window = self._query.limit
        found: list[Found] = []
        while ends and len(found) < self._query.limit and not self._stop.is_set():
            starts = {p: max(low[p], end - window) for p, end in ends.items()}
            for event in self._span(starts, ends, keep=self._query.limit):
                if isinstance(event, Found):
                    found.append(event)
                else:
                    yield event
            ends = {p: at for p, at in starts.items() if at > low[p]}
            window = min(window * 4, WINDOW_MAX)
        found.sort(key=lambda f: (f.record.timestamp, f.partition, f.record.offset), reverse=True)
        yield from found[: self._query.limit]
        yield Done(self._progress(), {})

    def _forwards(
        self, starts: dict[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[Event]:
        self._total = sum(max(ends[p] - at, 0) for p, at in starts.items())
        cursor = dict(starts)
        count = 0
        pending = {p: at for p, at in starts.items() if at < ends[p]}
        while pending and count < self._query.limit and not self._stop.is_set():
            for place, records, next_offset in self._read(pending):
                passed, end = self._passing(place, records), ends[place]
                room = self._query.limit - count
                shown = [record for record in passed if record.offset < end][:room]
                for record in shown:
                    yield Found(place.partition, record)
                count += len(shown)
                full = count >= self._query.limit and bool(shown)
                cursor[place] = shown[-1].offset + 1 if full else next_offset
                if cursor[place] >= end:
                    pending.pop(place, None)
                else:
                    pending[place] = cursor[place]
                if count >= self._query.limit:
                    break
            yield from self._progress_if_due()
        more = {p.partition: cursor[p] for p in starts if cursor[p] < ends[p]}
        yield Done(self._progress(), more if more and not self._stop.is_set() else {})

    def _span(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        keep: int,
    ) -> Iterator[Event]:
        """The last `keep` records that pass the filter, of each partition between these offsets."""
        pending = {p: at for p, at in starts.items() if at < ends[p]}
        newest: dict[TopicPartition, list[Found]] = {p: [] for p in starts}
        while pending and not self._stop.is_set():
            for place, records, next_offset in self._read(pending):
                wanted = [record for record in records if record.offset < ends[place]]
                passed = self._passing(place, wanted)
                newest[place] += [Found(place.partition, record) for record in passed]
                del newest[place][:-keep]
                if next_offset >= ends[place]:
                    del pending[place]
                else:
                    pending[place] = next_offset
            yield from self._progress_if_due()
        for found in newest.values():
            yield from found

    def _tail(self, at: dict[TopicPartition, int]) -> Iterator[Event]:
        if not at:
            yield Done(self._progress(), {})
            return
        while not self._stop.is_set():
            for place, records, next_offset in self._read(dict(at), TAIL_WAIT_MS):
                for record in self._passing(place, records):
                    yield Found(place.partition, record)
                at[place] = next_offset
            yield self._progress()
        yield Done(self._progress(), {})

    def _read(
        self, offsets: Mapping[TopicPartition, int], wait_ms: int = 0
    ) -> Iterator[tuple[TopicPartition, list[Record], int]]:
        answers = fetch_once(
            self._client, self._info, offsets, max_bytes=FETCH_BYTES, max_wait_ms=wait_ms
        )
        for place, answer in answers.items():
            if not isinstance(answer, Struct):
                raise answer
            yield place, *consumable(answer, offsets[place])

    # -- filtering ---------------------------------------------------------------------------------

    def _passing(self, place: TopicPartition, records: list[Record]) -> list[Record]:
        self._scanned += len(records)
        if self._schemas is not None:
            records = [self._schemas.record(record) for record in records]
        if self._query.keys:
            records = [r for r in records if r.key in self._query.keys]
        if self._masks.rules:
            records = [r._replace(value=self._masks.apply(r.value)) for r in records]
        if self._needle:
            needle = self._needle
            records = [r for r in records if needle in (r.value or b"") or needle in (r.key or b"")]
        if self._filter is not None:
            passed: list[Record] = []
            for at in range(0, len(records), BATCH_RECORDS):
                part = records[at : at + BATCH_RECORDS]
                matched = self._filter.match(place.partition, part)
                passed += [part[index] for index in matched.indexes]
                self._failed += matched.failed
                self._reason = self._reason or matched.reason
                if self._stop.is_set():
                    break
            records = passed
        self._matched += len(records)
        return records

    def _progress(self) -> ScanProgress:
        elapsed_s = max(time.monotonic() - self._began, 0.001)
        return ScanProgress(self._scanned, self._matched, self._total, self._failed, self._reason,
                        self._scanned / elapsed_s)  # fmt: skip

    def _progress_if_due(self) -> Iterator[ScanProgress]:
        now = time.monotonic()
        if now - self._shown_at >= PROGRESS_S:
            self._shown_at = now
            yield self._progress()


def scan(
    client: KafkaClient,
    query: Query,
    masks: Masks,
    stop: threading.Event,
    schemas: Schemas | None = None,
) -> Iterator[Event]:
    """Raises ClientError and FilterError."""
    return Scan(client, query, masks, stop, schemas).events()
