"""Clients that claim or hold a broker's request memory do not stop replication or the quorum."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack

from confluent_kafka import Producer

from broker_tests.clients.test_request_memory import MB, claim
from broker_tests.cluster.conftest import StartCluster
from odradek_testkit.cluster import DEADLINE_S, Cluster


def produce(cluster: Cluster, topic: str, count: int) -> None:
    """acks=all, one by one, each over all three brokers."""
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0}
    producer = Producer({**settings, "message.timeout.ms": 20_000})
    failed = []
    for number in range(count):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % 3,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        assert producer.flush(DEADLINE_S) == 0
    assert failed == []


def test_silent_length_prefixes_and_half_sent_batches(
    start_cluster: StartCluster, topic: str
) -> None:
    """On every broker at once: all memory claimed, and more half-sent than there is room for."""
    settings = {
        "queued.max.request.bytes": str(16 * MB),
        "socket.request.max.bytes": str(8 * MB),
        "replica.lag.time.max.ms": "5000",
    }
    cluster = start_cluster(3, settings)
    cluster.create_topic(topic, partitions=3)
    controller = cluster.controller()
    epochs = {p: state.leader_epoch for p, state in cluster.partitions(topic).items()}
    with ExitStack() as stack:
        for node in cluster.nodes.values():
            host, _, port = node.address.rpartition(":")

            def connect(host: str = host, port: str = port) -> socket.socket:
                return stack.enter_context(socket.create_connection((host, int(port)), 10))

            for _ in range(2):
                claim(connect(), 8 * MB)
            for _ in range(30):
                sock = connect()
                sock.setblocking(False)
                half = struct.pack(">i", MB) + bytes(600_000)
                try:
                    while half:
                        half = half[sock.send(half) :]
                except BlockingIOError:
                    pass  # it does not take more for now
        produce(cluster, topic, 60)
        assert cluster.all_in_sync(topic)
        assert cluster.controller() == controller
    assert epochs == {p: state.leader_epoch for p, state in cluster.partitions(topic).items()}
