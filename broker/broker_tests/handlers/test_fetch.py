"""Fetch by followers and by consumers in racks: which replica answers, and with what."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker_tests.handlers.test_forwarding import with_rights
from broker_tests.partition.support import ONE, TOPIC_ID, topic
from broker_tests.replication.support import ALL, Cluster, Exchange, run, until
from odradek_broker.handlers import fetch, registry
from odradek_broker.model.principal import Principal
from odradek_broker.partition.read_replica import RACK_AWARE
from odradek_broker.runtime.metrics import Metrics
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages import api
from odradek_protocol.messages.fetch import FetchPartition, FetchRequest
from odradek_protocol.messages.fetch_response import (
    FetchedPartition,
    FetchedResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek_protocol.messages.struct import Struct


async def follower_fetch(
    cluster: Cluster, broker: int, partition: FetchPartition, epoch: int = 103, **options: Any
) -> FetchedPartition:
    """A fetch of broker 3, a follower."""
    body = encode_fetch_request(
        17,
        FetchRequest(
            replica_id=3,
            replica_epoch=epoch,
            max_wait_ms=options.get("max_wait_ms", 0),
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[(None, TOPIC_ID.bytes, [partition])],
            forgotten_topics=[],
        ),
    )
    response = await cluster.consume(broker, body)
    assert response.error_code == 0
    return response.topics[0][2][0]


def consumer_request(offset: int, rack: str, version: int) -> bytes:
    partition = Struct(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    name = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "orders"}
    request = Struct(
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[Struct(**name, partitions=[partition])],
        rack_id=rack,
    )
    return api.encode_request(1, version, request)


async def consumer_fetch(
    cluster: Cluster, broker: int, offset: int, rack: str = "", version: int = 17
) -> FetchedPartition:
    body = consumer_request(offset, rack, version)
    response = await cluster.consume(broker, body, version)
    return response.topics[0][2][0]


def at(offset: int, *, leader_epoch: int = 0, last_epoch: int = 0) -> FetchPartition:
    return FetchPartition(0, leader_epoch, offset, last_epoch, 0, 1 << 20)


def test_a_follower_reads_what_is_written_a_consumer_what_is_committed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        cluster.down |= {2, 3}  # type: ignore[arg-type]
        await cluster.produce(1, "b", acks_all=False)
        fetched = await follower_fetch(cluster, 1, at(1))
        assert fetched.records
        assert fetched.high_watermark == 1
        read = await consumer_fetch(cluster, 1, 1)
        assert (read.error_code, bytes(read.records or b""), read.high_watermark) == (0, b"", 1)

    run(story, tmp_path, replica_lag_time_max_ms="60000")


@pytest.mark.parametrize(
    ("partition", "epoch", "expected"),
    [
        pytest.param(at(1, leader_epoch=9), 103, ErrorCode.unknown_leader_epoch, id="newer"),
        pytest.param(at(1, leader_epoch=-1), 103, ErrorCode.invalid_request, id="no epoch"),
        pytest.param(at(1), 9, ErrorCode.not_leader_or_follower, id="from before a restart"),
        pytest.param(at(9, last_epoch=-1), 103, ErrorCode.offset_out_of_range, id="past the end"),
        pytest.param(at(1, last_epoch=7), 103, ErrorCode.offset_out_of_range, id="unheard of"),
    ],
)
def test_invalid_follower_fetches_are_refused(
    tmp_path: Path, partition: FetchPartition, epoch: int, expected: ErrorCode
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        before = cluster.partition(1).leading.followers[3].log_end_offset  # type: ignore
        fetched = await follower_fetch(cluster, 1, partition, epoch)
        assert ErrorCode(fetched.error_code) is expected
        after = cluster.partition(1).leading.followers[3].log_end_offset  # type: ignore
        assert before == after

    run(story, tmp_path)


def test_a_fetch_at_the_wrong_broker_names_the_leader(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        fetched = await follower_fetch(cluster, 2, at(0))
        assert fetched.error_code == ErrorCode.not_leader_or_follower
        assert fetched.current_leader == (1, 0)

    run(story, tmp_path)


def test_a_replica_id_on_a_client_listener_is_refused(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        body = encode_fetch_request(
            17,
            FetchRequest(
                replica_id=3,
                replica_epoch=103,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[],
                forgotten_topics=[],
            ),
        )
        exchange = Exchange(cluster.context(ONE), 1, 17, "EXTERNAL")
        fetch.serve(exchange, body, 0)
        response = decode_fetch_response(17, memoryview(await exchange.answer)[5:])
        assert response.error_code == ErrorCode.cluster_authorization_failed

    run(story, tmp_path)


def test_client_quotas_do_not_throttle_replication(tmp_path: Path) -> None:
    """Everybody may read a byte per second: a consumer gets no records, a follower gets all."""

    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a" * 1_000)
        await until(lambda: all(cluster.partition(i).high_watermark == 1 for i in ALL))
        quotas = cluster.context(ONE).quotas
        quotas.apply({(("user", None),): {"consumer_byte_rate": 1.0, "request_percentage": 1e-9}})
        read = await cluster.consume(1, consumer_request(0, "", 17), 17)
        assert not read.topics
        for _ in range(3):
            assert (await follower_fetch(cluster, 1, at(0))).records

    run(story, tmp_path)


@pytest.mark.parametrize("may", [False, True])
def test_a_client_cannot_say_that_a_follower_has_stopped(tmp_path: Path, may: bool) -> None:
    """The attack: on a listener that brokers share with clients, a client without CLUSTER_ACTION
    opens a session as broker 3 and then forgets a partition in it; the leader would keep broker 3
    out of the ISR. 1. the session opens, its partition is refused; 2. the partition is forgotten:
    nothing has changed, unless the sender may act as a broker."""

    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        cluster.down |= {3}  # type: ignore[arg-type]  # its own fetches would clear the mark
        rights = {"test": ["CLUSTER_ACTION"]} if may else {}
        apis = registry.build_apis(Metrics())
        changed = {"apis": apis, "authorizer": with_rights(**rights)}
        broker: Any = SimpleNamespace(**{**vars(cluster.context(ONE)), **changed})

        async def fetch_as_broker_3(session: tuple[int, int], **named: Any) -> FetchedResponse:
            request = FetchRequest(
                replica_id=3,
                replica_epoch=103,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=session[0],
                session_epoch=session[1],
                topics=named.get("topics", []),
                forgotten_topics=named.get("forgotten", []),
            )
            exchange = Sent(broker, 1, 17, "PLAINTEXT")
            fetch.serve(exchange, encode_fetch_request(17, request), 0)
            return decode_fetch_response(17, memoryview(await exchange.answer)[5:])

        opened = await fetch_as_broker_3((0, 0), topics=[(None, TOPIC_ID.bytes, [at(1)])])
        assert opened.session_id
        sessions = broker.fetch_sessions._sessions
        assert sessions[opened.session_id].privileged is may
        if not may:
            code = opened.topics[0][2][0].error_code
            assert code == ErrorCode.topic_authorization_failed
        leading = cluster.partition(1).leading
        assert leading is not None
        assert not leading.followers[BrokerId(3)].stopped
        forgotten = [(None, TOPIC_ID.bytes, [0])]
        await fetch_as_broker_3((opened.session_id, 1), forgotten=forgotten)
        assert leading.followers[BrokerId(3)].stopped is may

    run(story, tmp_path, replica_lag_time_max_ms="60000")


class Sent(Exchange):
    """A request of User:test."""

    @property
    def principal(self) -> Principal:
        return Principal("User", "test")


def test_consumers_are_sent_to_the_replica_in_their_rack(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        await until(lambda: all(cluster.partition(i).high_watermark == 1 for i in ALL))
        for rack, expected in (("a", -1), ("b", 2), ("c", 3), ("d", -1), ("", -1)):
            read = await consumer_fetch(cluster, 1, 0, rack)
            assert read.preferred_read_replica == expected
            assert bool(read.records) == (expected < 0)
        read = await consumer_fetch(cluster, 2, 0, "b")
        assert read.records
        assert (read.high_watermark, read.preferred_read_replica) == (1, -1)
        # It has only what is there, and an old client knows nothing of followers.
        assert (await consumer_fetch(cluster, 1, 9, "b")).preferred_read_replica == -1
        old = await consumer_fetch_by_name(cluster, 2)
        assert old == ErrorCode.not_leader_or_follower

    run(story, tmp_path, replica_selector_class=RACK_AWARE)


async def consumer_fetch_by_name(cluster: Cluster, broker: int) -> int:
    """Fetch v10, from before consumers knew of followers."""
    body = consumer_request(0, "", version=10)
    exchange = Exchange(cluster.context(ALL[broker - 1]), 1, 10, "PLAINTEXT")
    fetch.serve(exchange, body, 0)
    response = api.decode_response(1, 10, bytes((await exchange.answer)[4:]))
    return int(response.responses[0].partitions[0].error_code)


def test_without_a_selector_everybody_reads_from_the_leader(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        read = await consumer_fetch(cluster, 1, 0, "b")
        assert read.records
        assert read.preferred_read_replica == -1

    run(story, tmp_path)


def test_a_consumer_that_waits_at_a_follower_is_woken_by_its_high_watermark(
    tmp_path: Path,
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        await until(lambda: cluster.partition(2).high_watermark == 1)
        body = api.encode_request(
            1,
            17,
            Struct(
                max_wait=60_000,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[
                    Struct(
                        topic_id=UUID(bytes=TOPIC_ID.bytes),
                        partitions=[
                            Struct(
                                partition=0,
                                current_leader_epoch=-1,
                                fetch_offset=1,
                                log_start_offset=-1,
                                partition_max_bytes=1 << 20,
                            )
                        ],
                    )
                ],
                rack_id="b",
            ),
        )
        exchange = Exchange(cluster.context(ALL[1]), 1, 17, "PLAINTEXT")
        fetch.serve(exchange, body, 0)
        assert not exchange.answer.done()
        await cluster.produce(1, "b")
        await until(exchange.answer.done, 2)
        response = decode_fetch_response(17, memoryview(await exchange.answer)[5:])
        assert response.topics[0][2][0].records

    run(story, tmp_path)
