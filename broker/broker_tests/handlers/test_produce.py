"""Produce without sockets: the responses, and leaders that are isolated."""

import asyncio
from pathlib import Path

import pytest

from broker_tests.log.support import batch
from broker_tests.partition.support import topic
from broker_tests.replication.support import Cluster, Exchange, run
from odradek_broker.handlers import produce
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages import api
from odradek_protocol.messages.produce import decode_produce
from odradek_protocol.messages.struct import Struct

VERSION = 12


class DisconnectedError(Exception):
    """The client would have lost its connection here."""


class Connection(Exchange):
    __slots__ = ()

    def disconnect(self, reason: str) -> None:
        raise DisconnectedError(reason)


def ask(cluster: Cluster, broker: int) -> None:
    partition = Struct(index=0, records=batch("a"))
    request = Struct(
        acks=-1, timeout=0, topic_data=[Struct(name="orders", partition_data=[partition])]
    )
    connection = Connection(cluster.context(BrokerId(broker)), 0, VERSION, "PLAINTEXT")
    produce.serve(connection, api.encode_request(0, VERSION, request), 0)


def test_an_isolated_leader_closes_the_connection(tmp_path: Path) -> None:
    """After a mere error librdkafka asks the same broker for the leader again."""

    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        service = cluster.nodes[BrokerId(1)].service
        service.isolation.cut_off = lambda: True
        ask(cluster, 1)  # its followers have fetched recently: an append may still be committed
        service.isolation.is_isolated_leader = lambda _: True  # type: ignore[method-assign,assignment]
        with pytest.raises(DisconnectedError, match="isolated"):
            ask(cluster, 1)
        service.isolation.cut_off = lambda: False
        ask(cluster, 2)  # not the leader, and the metadata names the leader

    run(story, tmp_path)


@pytest.mark.parametrize("acks", [1, -1])
def test_each_partition_is_answered_in_its_place(tmp_path: Path, acks: int) -> None:
    """Request and response of a partition are one object; it releases its records."""
    bad = batch("b")
    bad[-1] ^= 1

    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(partitions=3))
        await cluster.produce(1, "first", index=2)
        asked = [(2, batch("c", "d")), (0, bad), (7, batch("x")), (1, batch("a")), (2, batch("e"))]
        partitions = [Struct(index=index, records=records) for index, records in asked]
        topics = [
            Struct(name="orders", partition_data=partitions),
            Struct(name="other", partition_data=[Struct(index=0, records=None)]),
        ]
        body = api.encode_request(0, VERSION, Struct(acks=acks, timeout=9000, topic_data=topics))
        request = decode_produce(VERSION, body)
        exchange = Exchange(cluster.context(BrokerId(1)), 0, VERSION, "PLAINTEXT")
        produce.ProduceCall(exchange, request).start()
        assert not exchange.answer.done(), "nothing is written before the end of the loop pass"
        data = await asyncio.wait_for(exchange.answer, 60)
        answer = api.decode_response(0, VERSION, bytes(data[5:]))
        orders, other = answer.responses
        assert [
            (one.index, one.error_code, one.base_offset) for one in orders.partition_responses
        ] == [
            (2, ErrorCode.none, 1),
            (0, ErrorCode.corrupt_message, -1),
            (7, ErrorCode.unknown_topic_or_partition, -1),
            (1, ErrorCode.none, 0),
            (2, ErrorCode.none, 3),
        ]
        (nowhere,) = other.partition_responses
        assert (nowhere.index, nowhere.error_code) == (0, ErrorCode.unknown_topic_or_partition)
        for one in request.topics:
            assert [partition.records for partition in one.partitions] == [None] * len(
                one.partitions
            )
        assert cluster.values(1, 2) == ["first", "c", "d", "e"]
        assert cluster.values(1, 1) == ["a"]
        assert cluster.values(1, 0) == []

    run(story, tmp_path)


def test_only_the_partition_that_is_not_committed_in_time_times_out(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(partitions=2))
        cluster.down |= {BrokerId(2), BrokerId(3)}
        bad = batch("b")
        bad[-1] ^= 1
        partitions = [Struct(index=0, records=batch("a")), Struct(index=1, records=bad)]
        asked = Struct(
            acks=-1, timeout=50, topic_data=[Struct(name="orders", partition_data=partitions)]
        )
        exchange = Exchange(cluster.context(BrokerId(1)), 0, VERSION, "PLAINTEXT")
        produce.serve(exchange, api.encode_request(0, VERSION, asked), 0)
        data = await asyncio.wait_for(exchange.answer, 60)
        (orders,) = api.decode_response(0, VERSION, bytes(data[5:])).responses
        assert [(one.error_code, one.base_offset) for one in orders.partition_responses] == [
            (ErrorCode.request_timed_out, -1),
            (ErrorCode.corrupt_message, -1),
        ]

    run(story, tmp_path, replica_lag_time_max_ms="60000")
