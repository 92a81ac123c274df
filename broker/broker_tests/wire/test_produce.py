"""The hand-written Produce codec, held equal to kio's classes in every version."""

import random
from typing import Any

import pytest

from broker_tests.wire.kio_values import kio_bytes, load, random_instance, to_struct
from odradek_broker.wire.api import response_header, supported_versions
from odradek_broker.wire.errors import DecodeError
from odradek_broker.wire.primitives import ITEMS_MAX, NodeEndpoint
from odradek_broker.wire.produce import (
    ProducePartitionResult,
    decode_produce,
    encode_produce_response,
)

VERSIONS = supported_versions(0)
ROUNDS = 60


def topic_key(topic: Any) -> tuple[str | None, bytes | None]:
    """(name, raw topic id) of a topic in a request or response of any version."""
    name = getattr(topic, "name", getattr(topic, "topic", None))
    if not hasattr(topic, "topic_id"):
        return name, None
    return name, topic.topic_id.bytes if topic.topic_id else bytes(16)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        instance = random_instance(load("produce", version, "request"), rng)
        frame = bytearray(b"head" + kio_bytes(instance))
        request = decode_produce(version, frame, 4)
        expected = to_struct(instance)
        assert request.transactional_id == expected.transactional_id
        assert (request.acks, request.timeout_ms) == (expected.acks, expected.timeout)
        assert [(name, topic_id) for name, topic_id, _ in request.topics] == [
            topic_key(topic) for topic in expected.topic_data
        ]
        assert [partitions for _, _, partitions in request.topics] == [
            [(partition.index, partition.records) for partition in topic.partition_data]
            for topic in expected.topic_data
        ]


def result_of(partition: Any) -> ProducePartitionResult:
    leader = getattr(partition, "current_leader", None)
    errors = getattr(partition, "record_errors", ())
    return ProducePartitionResult(
        partition.index,
        partition.error_code,
        partition.base_offset,
        partition.log_append_time,
        getattr(partition, "log_start_offset", -1),
        [(error.batch_index, error.batch_index_error_message) for error in errors],
        getattr(partition, "error_message", None),
        (leader.leader_id, leader.leader_epoch) if leader else None,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        instance = random_instance(load("produce", version, "response"), rng)
        answer = to_struct(instance)
        topics = [
            (*topic_key(topic), [result_of(partition) for partition in topic.partition_responses])
            for topic in answer.responses
        ]
        endpoints = [
            NodeEndpoint(node.node_id, node.host, node.port, node.rack)
            for node in getattr(answer, "node_endpoints", ())
        ]
        written = encode_produce_response(version, 77, topics, answer.throttle_time, endpoints)
        assert written == response_header(0, version, 77) + kio_bytes(instance)


def test_records_are_a_writable_slice_of_the_frame() -> None:
    """The log patches base offsets in place."""
    frame = bytearray(b"\xff\xff\0\x01\0\0\0\0\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x05\0\0\0\x03abc")
    ((_, _, [(partition, records)]),) = decode_produce(3, frame).topics
    assert partition == 5
    assert records is not None
    records[0:1] = b"z"
    assert frame.endswith(b"zbc")


def test_results_of_older_versions_ignore_what_they_cannot_say() -> None:
    result = ProducePartitionResult(0, error_message="too large", current_leader=(1, 2))
    for version in VERSIONS:
        assert encode_produce_response(version, 1, [("a", bytes(16), [result])])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_a_decode_error(version: int) -> None:
    rng = random.Random(version)
    data = kio_bytes(random_instance(load("produce", version, "request"), rng))
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            decode_produce(version, data[:length])


def test_counts_are_bounded() -> None:
    head = b"\xff\xff\0\x01\0\0\0\0"
    topics = (ITEMS_MAX + 1).to_bytes(4, "big")
    with pytest.raises(DecodeError, match="array of"):
        decode_produce(3, head + topics + b"\0\0\0\0\0\0" * (ITEMS_MAX + 1))
    with pytest.raises(DecodeError, match="array of"):
        decode_produce(3, head + b"\0\0\0\x01\0\0" + topics + b"\0" * 8 * (ITEMS_MAX + 1))
