"""/v1/loads and the counters of /metrics, compared with what clients and followers did."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_tests.admin.test_admin_server import get, labels, samples
from broker_tests.cluster.conftest import StartCluster
from odradek_testkit.clients import consume, numbered, produce
from odradek_testkit.cluster import Cluster

RECORDS = 500


def loads(cluster: Cluster, broker: int, query: str = "") -> dict[str, Any]:
    status, body = get(cluster.nodes[broker], f"/v1/loads{query}")
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def replica(cluster: Cluster, broker: int, window: str = "minute") -> dict[str, Any]:
    """The only partition of `orders` on this broker; `broker_cpu` is that of the whole broker."""
    found = loads(cluster, broker, f"?topic=orders&window={window}")
    (row,) = found["replicas"]
    values = dict(zip(found["columns"], row, strict=True))
    return {**values, "seconds": found["seconds"], "broker_cpu": found["cpu"]}


@pytest.mark.timeout(180)
def test_leader_and_followers_are_counted(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic("orders", partitions=1)
    leader = cluster.leader("orders", 0)
    followers = sorted({1, 2, 3} - {leader})
    # librdkafka compresses nothing by default, so the bytes are at least those of the records.
    produce(cluster, "orders", numbered(RECORDS, size=1000))
    consume(cluster, "orders", RECORDS)
    cluster.wait_until(
        lambda: all(
            replica(cluster, f)["disk_bytes"] == replica(cluster, leader)["disk_bytes"]
            for f in followers
        )
    )
    where = labels(topic="orders", partition="0")
    counted = {b: samples(cluster.nodes[b]) for b in cluster.nodes}
    led, size = counted[leader], replica(cluster, leader)["disk_bytes"]
    assert led["odradek_replica_messages_in_total", where] == RECORDS
    assert led["odradek_replica_bytes_in_total", where] == size
    assert led["odradek_replica_bytes_out_total", where] == size
    assert led["odradek_replica_replicated_out_total", where] == 2 * size
    assert led["odradek_replica_replicated_in_total", where] == 0
    for follower in followers:
        followed = counted[follower]
        assert followed["odradek_replica_replicated_in_total", where] == size
        assert followed["odradek_replica_bytes_in_total", where] == 0
        assert followed["odradek_replica_bytes_out_total", where] == 0

    # All windows begin when the replica was opened, perhaps less than a second ago.
    for window in ("minute", "hour", "day"):
        now = replica(cluster, leader, window)
        assert now["leads"] is True
        assert now["bytes_in"] > 0
        assert now["bytes_out"] == pytest.approx(now["bytes_in"], rel=0.01)
        assert 0 < now["cpu"] <= now["broker_cpu"] * 1.01  # of one answer: both decay with time
        other = replica(cluster, followers[0], window)
        assert other["leads"] is False
        assert other["replicated_in"] > 0
        assert other["bytes_in"] == 0
    assert get(cluster.nodes[leader], "/v1/loads?window=week")[0] == 400
