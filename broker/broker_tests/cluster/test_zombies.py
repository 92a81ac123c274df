"""SIGSTOP: a broker is replaced while it is paused, and resumes without knowing of it.

1  the leader is stopped; records wait in its sockets
2  its session ends, another broker leads in a higher epoch, clients go on there
3  the old leader resumes and handles those requests before it has the new metadata
4  it must acknowledge none of them, and must truncate what the new leader does not have
"""

from __future__ import annotations

import pytest

from odradek_testkit import raw_requests as raw
from odradek_testkit.cluster import Cluster
from odradek_testkit.load import Load

# librdkafka waits this long for an answer before it looks elsewhere; its default is 60 s.
IMPATIENT = {"socket.timeout.ms": 2_000, "request.timeout.ms": 2_000}
CONFIG = {"min.insync.replicas": "2"}
ENOUGH = 300
NOT_A_NUMBER = b"zombie----"  # a value that makes the final read fail


def test_a_zombie_leader_acknowledges_nothing(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=1, config=CONFIG)
    with Load(cluster, topic, partitions=1, settings=IMPATIENT) as load:
        load.wait_for_acks(ENOUGH)
        zombie = cluster.nodes[cluster.leader(topic, 0)]
        with raw.connect(zombie, timeout_s=60) as connection:
            assert connection.ask(raw.api_versions_request())
            zombie.pause()
            connection.send(raw.produce_request(topic, raw.batch(NOT_A_NUMBER)))
            cluster.wait_until(lambda: cluster.leader(topic, 0) not in (zombie.node_id, -1))
            load.wait_for_acks(ENOUGH)
            zombie.resume()
            try:
                error, _ = raw.produced(connection.receive())
            except ConnectionError:
                error = -1  # no answer is correct, too
            assert error != 0, "a leader whose session had ended acknowledged a write"
        cluster.wait_in_sync(topic)
        load.wait_for_acks(ENOUGH)
    load.check()


@pytest.mark.long
def test_a_zombie_controller_decides_nothing(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config=CONFIG)
    with Load(cluster, topic, settings=IMPATIENT) as load:
        load.wait_for_acks(ENOUGH)
        zombie = cluster.controller()
        epoch = cluster.quorum().leader_epoch
        cluster.nodes[zombie].pause()
        successor = cluster.controller()
        assert successor != zombie
        load.wait_for_every_partition()
        cluster.create_topic(topic + "-2", replication_factor=2)
        cluster.nodes[zombie].resume()
        cluster.wait_until(lambda: cluster.quorum(of=zombie).leader_id == cluster.controller())
        assert cluster.quorum().leader_epoch > epoch
        cluster.wait_in_sync(topic)
        load.wait_for_every_partition()
    load.check()
