"""Produce where the leader was left behind by the other brokers."""

from pathlib import Path

import pytest

from broker_tests.log.support import batch
from broker_tests.partition.support import topic
from broker_tests.replication.support import Cluster, Exchange, run
from odradek_broker.handlers import produce
from odradek_broker.model.ids import BrokerId
from odradek_broker.wire import api
from odradek_broker.wire.struct import Struct

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
    produce.serve(connection, bytearray(api.encode_request(0, VERSION, request)), 0)


def test_a_leader_left_behind_closes_the_connection(tmp_path: Path) -> None:
    """An error alone does not help librdkafka: it asks the broker that answered last who leads."""

    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        service = cluster.nodes[BrokerId(1)].service
        service.cut_off = lambda: True
        ask(cluster, 1)  # its followers were heard just now: it may succeed
        service.leads_in_vain = lambda _: True  # type: ignore[method-assign]
        with pytest.raises(DisconnectedError, match="cut off"):
            ask(cluster, 1)
        service.cut_off = lambda: False
        ask(cluster, 2)  # not the leader, and it knows who is

    run(story, tmp_path)
