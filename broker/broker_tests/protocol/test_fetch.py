"""The hand-written Fetch codec, held equal to kio's classes in every version."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from broker_tests.protocol.kio_values import kio_bytes, load, random_instance, to_struct
from broker_tests.protocol.test_produce import topic_key
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.api import response_header, supported_versions
from odradek_protocol.messages.fetch import (
    LONG_MAX,
    FetchPartition,
    FetchPartitionResult,
    decode_fetch,
    encode_fetch_response,
)
from odradek_protocol.messages.struct import Struct
from odradek_protocol.primitives import ITEMS_MAX, NodeEndpoint

VERSIONS = supported_versions(1)
ROUNDS = 60


@dataclass
class Range:
    """Stands in for the log's FileRange."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)


def joined(chunks: list[Any]) -> bytes:
    return b"".join(chunk.data if isinstance(chunk, Range) else chunk for chunk in chunks)


def partition_of(partition: Struct) -> FetchPartition:
    directory_id = getattr(partition, "replica_directory_id", None)
    return FetchPartition(
        partition.partition,
        getattr(partition, "current_leader_epoch", -1),
        partition.fetch_offset,
        getattr(partition, "last_fetched_epoch", -1),
        getattr(partition, "log_start_offset", -1),
        partition.partition_max_bytes,
        directory_id.bytes if directory_id else None,
        getattr(partition, "high_watermark", LONG_MAX),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        instance = random_instance(load("fetch", version, "request"), rng)
        request = decode_fetch(version, b"head" + kio_bytes(instance), 4)
        expected = to_struct(instance)
        if version >= 15:
            state = expected.replica_state
            assert (request.replica_id, request.replica_epoch) == (
                state.replica_id,
                state.replica_epoch,
            )
        else:
            assert request.replica_id == expected.replica_id
        assert request.max_wait_ms == expected.max_wait
        assert request.min_bytes == expected.min_bytes
        assert request.max_bytes == expected.max_bytes
        assert request.isolation_level == expected.isolation_level
        assert request.session_id == getattr(expected, "session_id", 0)
        assert request.session_epoch == getattr(expected, "session_epoch", -1)
        assert request.rack_id == getattr(expected, "rack_id", "")
        assert request.cluster_id == getattr(expected, "cluster_id", None)
        assert request.topics == [
            (*topic_key(topic), [partition_of(partition) for partition in topic.partitions])
            for topic in expected.topics
        ]
        assert request.forgotten_topics == [
            (*topic_key(topic), topic.partitions)
            for topic in getattr(expected, "forgotten_topics_data", ())
        ]


def result_of(partition: Struct, as_range: bool) -> FetchPartitionResult:
    def pair(name: str, first: str, second: str) -> tuple[int, int] | None:
        value = getattr(partition, name, None)
        return (getattr(value, first), getattr(value, second)) if value else None

    aborted = partition.aborted_transactions
    records = partition.records
    return FetchPartitionResult(
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        getattr(partition, "log_start_offset", -1),
        None if aborted is None else [(item.producer_id, item.first_offset) for item in aborted],
        getattr(partition, "preferred_read_replica", -1),
        Range(records) if as_range and records is not None else records,
        pair("diverging_epoch", "epoch", "end_offset"),
        pair("current_leader", "leader_id", "leader_epoch"),
        pair("snapshot_id", "end_offset", "epoch"),
    )


@pytest.mark.parametrize("as_range", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_kio_writes_them(version: int, as_range: bool) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        instance = random_instance(load("fetch", version, "response"), rng)
        answer = to_struct(instance)
        topics = [
            (*topic_key(topic), [result_of(partition, as_range) for partition in topic.partitions])
            for topic in answer.responses
        ]
        endpoints = [
            NodeEndpoint(node.node_id, node.host, node.port, node.rack)
            for node in getattr(answer, "node_endpoints", ())
        ]
        chunks, size = encode_fetch_response(
            version,
            77,
            answer.throttle_time,
            getattr(answer, "error_code", 0),
            getattr(answer, "session_id", 0),
            topics,
            endpoints,
        )
        written = joined(chunks)
        assert written == response_header(1, version, 77) + kio_bytes(instance)
        assert size == len(written)


def test_bytes_next_to_each_other_are_one_chunk() -> None:
    results = [
        FetchPartitionResult(0, records=b"abc"),
        FetchPartitionResult(1),
        FetchPartitionResult(2, records=Range(b"in a file")),
        FetchPartitionResult(3, records=Range(b"in another")),
    ]
    chunks, _ = encode_fetch_response(12, 1, 0, 0, 0, [("a", None, results)])
    assert [type(chunk) for chunk in chunks] == [bytes, Range, bytes, Range, bytes]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_a_decode_error(version: int) -> None:
    rng = random.Random(version)
    data = kio_bytes(random_instance(load("fetch", version, "request"), rng))
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            decode_fetch(version, data[:length])


def test_counts_are_bounded() -> None:
    head = b"\xff" * 4 + b"\0" * 13
    topics = (ITEMS_MAX + 1).to_bytes(4, "big")
    with pytest.raises(DecodeError, match="array of"):
        decode_fetch(4, head + topics + b"\0\0\0\0\0\0" * (ITEMS_MAX + 1))
    with pytest.raises(DecodeError, match="array of"):
        decode_fetch(4, head + b"\0\0\0\x01\0\0" + topics + b"\0" * 16 * (ITEMS_MAX + 1))
