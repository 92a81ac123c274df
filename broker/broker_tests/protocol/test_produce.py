"""The hand-written Produce codec, held equal to kio's classes in every version."""

import random

import pytest

from broker_tests.protocol.kio_values import kio_bytes, load, random_instance, to_struct
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.api import response_header, supported_versions
from odradek_protocol.messages.produce import (
    ProducePartition,
    ProduceTopic,
    decode_produce,
    encode_produce_response,
)
from odradek_protocol.messages.struct import Struct
from odradek_protocol.primitives import ITEMS_MAX, NodeEndpoint
from odradek_protocol.varint import Buffer

VERSIONS = supported_versions(0)
ROUNDS = 60


def topic_key(topic: Struct) -> tuple[str | None, bytes | None]:
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
        frame = b"head" + kio_bytes(instance)
        request = decode_produce(version, frame, 4)
        expected = to_struct(instance)
        assert request.transactional_id == expected.transactional_id
        assert (request.acks, request.timeout_ms) == (expected.acks, expected.timeout)
        assert [(topic.name, topic.topic_id) for topic in request.topics] == [
            topic_key(topic) for topic in expected.topic_data
        ]
        assert [[asked_of(one) for one in topic.partitions] for topic in request.topics] == [
            [(partition.index, partition.records) for partition in topic.partition_data]
            for topic in expected.topic_data
        ]


def asked_of(partition: ProducePartition) -> tuple[int, Buffer | None]:
    records = partition.records
    return partition.index, None if records is None else records.from_byte(0)


def test_nothing_is_answered_of_a_partition_before_something_is_done() -> None:
    one = ProducePartition(7)
    assert (one.error_code, one.error_message, one.current_leader) == (0, None, None)
    assert (one.base_offset, one.log_append_time_ms, one.log_start_offset) == (-1, -1, -1)
    assert list(one.record_errors) == []


def result_of(partition: Struct) -> ProducePartition:
    leader = getattr(partition, "current_leader", None)
    errors = getattr(partition, "record_errors", ())
    result = ProducePartition(partition.index)
    result.error_code = partition.error_code
    result.base_offset = partition.base_offset
    result.log_append_time_ms = partition.log_append_time
    result.log_start_offset = getattr(partition, "log_start_offset", -1)
    result.record_errors = [
        (error.batch_index, error.batch_index_error_message) for error in errors
    ]
    result.error_message = getattr(partition, "error_message", None)
    result.current_leader = (leader.leader_id, leader.leader_epoch) if leader else None
    return result


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        instance = random_instance(load("produce", version, "response"), rng)
        answer = to_struct(instance)
        topics = [
            ProduceTopic(*topic_key(topic), [result_of(one) for one in topic.partition_responses])
            for topic in answer.responses
        ]
        endpoints = [
            NodeEndpoint(node.node_id, node.host, node.port, node.rack)
            for node in getattr(answer, "node_endpoints", ())
        ]
        written = encode_produce_response(version, 77, topics, answer.throttle_time, endpoints)
        assert written == response_header(0, version, 77) + kio_bytes(instance)


def test_records_are_a_range_of_the_frame_that_is_not_copied() -> None:
    frame = b"\xff\xff\0\x01\0\0\0\0\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x05\0\0\0\x03abc"
    ((partition,),) = (topic.partitions for topic in decode_produce(3, frame).topics)
    assert partition.index == 5
    assert partition.records is not None
    assert partition.records.data is frame
    assert (partition.records.start, partition.records.end) == (len(frame) - 3, len(frame))
    assert partition.records.from_byte(0) == b"abc"


def test_results_of_older_versions_ignore_what_they_cannot_say() -> None:
    result = ProducePartition(0)
    result.error_message = "too large"
    result.current_leader = (1, 2)
    for version in VERSIONS:
        assert encode_produce_response(version, 1, [ProduceTopic("a", bytes(16), [result])])


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
