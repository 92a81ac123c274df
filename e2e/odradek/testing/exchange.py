"""Produce and fetch over the small client of odradek_protocol: no other client is needed.

Made for tests, not for load: a call asks for the metadata first, sends one request per leader and
waits for all in-sync replicas. Reading is READ_COMMITTED: aborted records are left out.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple
from uuid import UUID

from odradek.testing.partitioner import partition_of
from odradek.testing.records import Record, Records
from odradek_protocol.client import BrokerError, ClientError, KafkaClient
from odradek_protocol.client.admin.offsets import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    list_offsets,
)
from odradek_protocol.client.admin.topics import timeout_ms
from odradek_protocol.client.errors import error_in
from odradek_protocol.client.leaders import UNKNOWN_TOPIC, ask_leaders, by_topic
from odradek_protocol.client.metadata import TopicInfo
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records import records as wire
from odradek_protocol.records.control_records import control_type_of
from odradek_protocol.records.record_batch import read_header

ACKS_ALL = -1
FETCH_BYTES_MAX = 8 * 1024 * 1024
ABORT_MARKER = 0
_turns = count()  # records without a key go to one partition after another


def topic_of(client: KafkaClient, topic: str) -> TopicInfo:
    """Raises BrokerError if there is no such topic."""
    found = client.metadata([topic]).topics.get(topic)
    if found is None or (found.error is not None and found.error.code == UNKNOWN_TOPIC):
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic!r}")
    if found.error is not None:
        raise BrokerError(found.error.code, f"topic {topic!r}: {found.error.detail}")
    return found


def places_of(info: TopicInfo) -> list[TopicPartition]:
    return [TopicPartition(info.name, number) for number in info.partitions]


def raise_any(outcome: Mapping[TopicPartition, object], what: str) -> None:
    for place, result in outcome.items():
        if isinstance(result, BrokerError):
            raise BrokerError(result.code, f"{what} {place}: {result.detail}")
        if isinstance(result, ClientError):
            raise result


# -- produce ---------------------------------------------------------------------------------------


def produce(client: KafkaClient, info: TopicInfo, records: Sequence[Record]) -> Records:
    """Appends all records; the same records with topic, partition, offset and timestamp."""
    now_ms = time.time_ns() // 1_000_000
    batches: dict[TopicPartition, Records] = {}
    sent = Records()
    for record in records:
        made = Record(record.value, record.key, record.headers)
        made.topic = info.name
        made.partition = _choose(record, len(info.partitions))
        made.timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
        batches.setdefault(TopicPartition(info.name, made.partition), Records()).append(made)
        sent.append(made)
    if not batches:
        return sent

    def build(places: list[TopicPartition]) -> Struct:
        data = [Struct(index=p.partition, records=_encode(batches[p])) for p in places]
        return Struct(
            transactional_id=None,
            acks=ACKS_ALL,
            timeout=timeout_ms(client),
            topic_data=[Struct(name=info.name, topic_id=info.topic_id, partition_data=data)],
        )

    def read(answer: Struct) -> dict[TopicPartition, int | BrokerError]:
        return {
            TopicPartition(info.name, p.index): error_in(p) or int(p.base_offset)
            for topic in answer.responses
            for p in topic.partition_responses
        }

    outcome = ask_leaders(client, ApiKey.PRODUCE, batches, build, read, wait_for_topics=True)
    raise_any(outcome, "produce to")
    for place, batch in batches.items():
        base_offset = outcome[place]
        assert isinstance(base_offset, int)
        for offset, record in enumerate(batch, base_offset):
            record.offset = offset
    return sent


def _choose(record: Record, partitions: int) -> int:
    if record.partition is not None:
        if not 0 <= record.partition < partitions:
            raise ValueError(f"{record!r} is for partition {record.partition} of {partitions}")
        return record.partition
    if record.key is not None:
        return partition_of(record.key, partitions)
    return next(_turns) % partitions


def _encode(batch: Records) -> bytes:
    return wire.build_batch([
        wire.Record(
            offset,
            record.timestamp_ms or 0,
            record.key,
            record.value,
            [(name.encode(), data) for name, data in record.headers],
        )
        for offset, record in enumerate(batch)
    ])  # fmt: skip


# -- fetch -----------------------------------------------------------------------------------------


class Span(NamedTuple):
    """Offsets from `start` up to and without `end`."""

    start: int
    end: int


def spans(client: KafkaClient, places: Iterable[TopicPartition]) -> dict[TopicPartition, Span]:
    """What consumers that read committed records can read now."""
    wanted = list(places)
    found = [
        list_offsets(client, wanted, at, IsolationLevel.READ_COMMITTED, wait_for_topics=True)
        for at in (EARLIEST, LATEST)
    ]
    for outcome in found:
        raise_any(outcome, "offsets of")
    starts, ends = found
    return {place: Span(_number(starts[place]), _number(ends[place])) for place in wanted}


def _number(found: int | ClientError) -> int:
    assert isinstance(found, int)
    return found


def fetch(client: KafkaClient, info: TopicInfo, wanted: Mapping[TopicPartition, Span]) -> Records:
    """All committed records of these spans, merged by their time; the order in each partition is
    kept."""
    found: dict[TopicPartition, Records] = {place: Records() for place in wanted}
    next_offsets = {p: span.start for p, span in wanted.items() if span.start < span.end}
    while next_offsets:
        for place, answer in _fetch_once(client, info, next_offsets).items():
            records, next_offset = _committed(place, answer, next_offsets[place])
            end = wanted[place].end
            found[place] += [record for record in records if record.offset < end]
            if next_offset >= end:
                del next_offsets[place]
            else:
                next_offsets[place] = next_offset
    return Records(heapq.merge(*found.values(), key=lambda record: record.timestamp_ms or 0))


def _fetch_once(
    client: KafkaClient, info: TopicInfo, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Struct]:
    def build(places: list[TopicPartition]) -> Struct:
        topics = [
            Struct(
                topic=topic,
                topic_id=info.topic_id or UUID(int=0),
                partitions=[
                    Struct(
                        partition=number,
                        fetch_offset=offsets[TopicPartition(topic, number)],
                        partition_max_bytes=FETCH_BYTES_MAX,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(places).items()
        ]
        return Struct(
            max_wait=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=IsolationLevel.READ_COMMITTED,
            session_epoch=-1,
            topics=topics,
            forgotten_topics_data=[],
        )

    def read(answer: Struct) -> dict[TopicPartition, Struct | BrokerError]:
        return {
            TopicPartition(info.name, p.partition_index): error_in(p) or p
            for topic in answer.responses
            for p in topic.partitions
        }

    outcome = ask_leaders(client, ApiKey.FETCH, offsets, build, read)
    raise_any(outcome, "read")
    return {place: answer for place, answer in outcome.items() if isinstance(answer, Struct)}


def _committed(place: TopicPartition, answer: Struct, at: int) -> tuple[list[Record], int]:
    """The committed records of an answer from offset `at` on, and the offset after its last batch.

    The answer names the aborted transactions: producer, and the offset of their first record. Its
    batches are skipped from there until the producer's abort marker.
    """
    data = memoryview(bytes(answer.records or b""))
    aborted = sorted((t.first_offset, t.producer_id) for t in answer.aborted_transactions or ())
    skipping: set[int] = set()
    found: list[Record] = []
    position, next_offset = 0, at
    while position + 12 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > len(data):
            break  # the rest of the last batch did not fit into the answer
        batch = data[position : position + size]
        header = read_header(batch)
        while aborted and aborted[0][0] <= header.last_offset:
            skipping.add(aborted.pop(0)[1])
        if header.is_control:
            (marker,) = wire.read_records(batch)
            if control_type_of(marker.key) == ABORT_MARKER:
                skipping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipping):
            found += [
                _read(place, record) for record in wire.read_records(batch) if record.offset >= at
            ]
        next_offset = header.next_offset
        position += size
    return found, next_offset


def _read(place: TopicPartition, found: wire.Record) -> Record:
    headers = [(name.decode(), data) for name, data in found.headers]
    record = Record(found.value, found.key, headers)
    record.topic, record.partition = place
    record.offset, record.timestamp_ms = found.offset, found.timestamp
    return record
