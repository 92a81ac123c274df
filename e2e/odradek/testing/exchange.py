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

from odradek.testing.records import Record, Records
from odradek_protocol.client import BrokerError, ClientError, KafkaClient
from odradek_protocol.client.admin.offsets import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    list_offsets,
)
from odradek_protocol.client.fetching import consumable, fetch_once
from odradek_protocol.client.leaders import UNKNOWN_TOPIC
from odradek_protocol.client.metadata import TopicInfo
from odradek_protocol.client.partitioner import partition_of
from odradek_protocol.client.producing import produce_batches
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records import records as wire

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

    encoded = {place: _encode(batch) for place, batch in batches.items()}
    outcome = produce_batches(client, info, encoded)
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
    """The end offsets that consumers of committed records see now."""
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
        outcome = fetch_once(client, info, next_offsets)
        raise_any(outcome, "read")
        for place, answer in outcome.items():
            assert isinstance(answer, Struct)
            records, next_offset = consumable(answer, next_offsets[place])
            end = wanted[place].end
            found[place] += [_read(place, one) for one in records if one.offset < end]
            if next_offset >= end:
                del next_offsets[place]
            else:
                next_offsets[place] = next_offset
    return Records(heapq.merge(*found.values(), key=lambda record: record.timestamp_ms or 0))


def _read(place: TopicPartition, found: wire.Record) -> Record:
    headers = [(name.decode(), data) for name, data in found.headers]
    record = Record(found.value, found.key, headers)
    record.topic, record.partition = place
    record.offset, record.timestamp_ms = found.offset, found.timestamp
    return record
