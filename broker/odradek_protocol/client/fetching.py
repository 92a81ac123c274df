"""Reads records: one Fetch request per leader, filtered as a consumer would see the answer.

    answers = fetch_once(client, info, {TopicPartition("orders", 0): 7})
    records, next_offset = consumable(answers[TopicPartition("orders", 0)], 7)

Without fetch sessions and without a group: for programs that look at records, such as
`odradek.testing` and the console. A metadata request precedes each fetch (ask_leaders).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from odradek_protocol.client.admin.offsets import IsolationLevel
from odradek_protocol.client.errors import BrokerError, ClientError, error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.leaders import ask_leaders, by_topic
from odradek_protocol.client.metadata import TopicInfo
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.control_records import control_type_of
from odradek_protocol.records.record_batch import HEADER_BYTES, LOG_OVERHEAD, read_header

if TYPE_CHECKING:
    from odradek_protocol.records.records import Record

FETCH_BYTES_MAX = 8 * 1024 * 1024
ABORT_MARKER = 0


def fetch_once(
    client: KafkaClient,
    info: TopicInfo,
    offsets: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    max_bytes: int = FETCH_BYTES_MAX,
    max_wait_ms: int = 0,
) -> dict[TopicPartition, Struct | ClientError]:
    """Partitions of one topic → their part of the answer, or why there is none.

    A leader waits up to `max_wait_ms` for a first record if it has none from these offsets on.
    """

    def build(places: list[TopicPartition]) -> Struct:
        topics = [
            Struct(
                topic=topic,
                topic_id=info.topic_id or UUID(int=0),
                partitions=[
                    Struct(
                        partition=number,
                        fetch_offset=offsets[TopicPartition(topic, number)],
                        partition_max_bytes=max_bytes,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(places).items()
        ]
        return Struct(
            max_wait=max_wait_ms,
            min_bytes=1 if max_wait_ms else 0,
            max_bytes=max_bytes,
            isolation_level=isolation,
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

    return ask_leaders(client, ApiKey.FETCH, offsets, build, read)


def consumable(answer: Struct, at: int) -> tuple[list[Record], int]:
    """The records of an answer from offset `at` on, and the offset after its last whole batch.

    For READ_COMMITTED the answer names the aborted transactions: producer, and the offset of their
    first record. Its batches are skipped from there until the producer's abort marker.
    """
    from odradek_protocol.records.records import read_records  # late: it brings the codecs

    data = memoryview(bytes(answer.records or b""))
    aborted = sorted((t.first_offset, t.producer_id) for t in answer.aborted_transactions or ())
    skipping: set[int] = set()
    found: list[Record] = []
    position, next_offset = 0, at
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        size = header.batch_length + LOG_OVERHEAD
        if position + size > len(data):
            break  # the rest of the last batch did not fit into the answer
        batch = data[position : position + size]
        while aborted and aborted[0][0] <= header.last_offset:
            skipping.add(aborted.pop(0)[1])
        if header.is_control:
            (marker,) = read_records(batch)
            if control_type_of(marker.key) == ABORT_MARKER:
                skipping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipping):
            found += [record for record in read_records(batch) if record.offset >= at]
        next_offset = header.next_offset
        position += size
    return found, next_offset
