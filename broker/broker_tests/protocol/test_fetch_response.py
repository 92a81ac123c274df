"""The follower's side of the Fetch codec, held equal to kio's classes and to the leader's side."""

import contextlib
import random
from typing import Any

import pytest

from broker_tests.protocol.kio_values import kio_bytes, load, random_instance, to_struct
from broker_tests.protocol.test_produce import topic_key
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.fetch import FetchPartition, FetchRequest, decode_fetch
from odradek_protocol.messages.fetch_response import (
    FetchedPartition,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek_protocol.messages.struct import Struct

VERSIONS = range(12, 19)
ROUNDS = 60


def pair(partition: Struct, name: str, first: str, second: str) -> tuple[int, int] | None:
    value = getattr(partition, name, None)
    found = (getattr(value, first), getattr(value, second)) if value else None
    return None if found == (-1, -1) else found  # the default is not sent


def expected(partition: Struct) -> FetchedPartition:
    aborted = partition.aborted_transactions
    return FetchedPartition(
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        None if aborted is None else [(item.producer_id, item.first_offset) for item in aborted],
        partition.preferred_read_replica,
        partition.records,
        pair(partition, "diverging_epoch", "epoch", "end_offset"),
        pair(partition, "current_leader", "leader_id", "leader_epoch"),
        pair(partition, "snapshot_id", "end_offset", "epoch"),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        instance = random_instance(load("fetch", version, "response"), rng)
        answer = to_struct(instance)
        response = decode_fetch_response(version, b"head" + kio_bytes(instance), 4)
        assert response.throttle_time_ms == answer.throttle_time
        assert response.error_code == answer.error_code
        assert response.session_id == answer.session_id
        assert response.topics == [
            (*topic_key(topic), [expected(partition) for partition in topic.partitions])
            for topic in answer.responses
        ]


def test_records_are_views_into_the_frame() -> None:
    rng = random.Random(1)
    for _ in range(ROUNDS):
        frame = bytearray(kio_bytes(random_instance(load("fetch", 17, "response"), rng)))
        for _, _, partitions in decode_fetch_response(17, frame).topics:
            for partition in partitions:
                assert partition.records is None or partition.records.obj is frame


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_a_decode_error(version: int) -> None:
    rng = random.Random(version)
    data = kio_bytes(random_instance(load("fetch", version, "response"), rng))
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            decode_fetch_response(version, data[:length])


def test_garbage_is_a_decode_error_or_a_response() -> None:
    rng = random.Random(7)
    data = bytearray(kio_bytes(random_instance(load("fetch", 17, "response"), rng)))
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(DecodeError):
            decode_fetch_response(17, damaged)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_by_the_leader_as_they_were_meant(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):

        def topic(items: list[Any]) -> Any:
            raw_id = rng.randbytes(16)
            return (None, raw_id, items) if version >= 13 else (f"topic-{raw_id[0]}", None, items)

        topics = [
            topic(
                [
                    FetchPartition(
                        rng.randrange(100),
                        rng.randrange(50),
                        rng.randrange(1 << 40),
                        rng.randrange(-1, 50),
                        rng.randrange(1 << 30),
                        1 << 20,
                    )
                    for _ in range(rng.randint(0, 200))
                ]
            )
            for _ in range(rng.randint(0, 3))
        ]
        forgotten = [topic([rng.randrange(100)]) for _ in range(rng.randint(0, 3))]
        body = encode_fetch_request(
            version,
            FetchRequest(
                replica_id=3,
                replica_epoch=77,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 23,
                isolation_level=0,
                session_id=5,
                session_epoch=9,
                topics=topics,
                forgotten_topics=forgotten,
            ),
        )
        request = decode_fetch(version, body)
        assert request.replica_id == 3
        assert request.replica_epoch == (77 if version >= 15 else -1)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 1 << 23)
        assert (request.session_id, request.session_epoch) == (5, 9)
        assert (request.isolation_level, request.rack_id) == (0, "")
        assert request.topics == topics
        assert request.forgotten_topics == forgotten
