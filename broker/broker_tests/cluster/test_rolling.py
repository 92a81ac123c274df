"""Rolling restart under load by SIGTERM: leaders move first, so that clients notice nothing."""

from __future__ import annotations

import time

import pytest

from odradek_testkit.cluster import Cluster
from odradek_testkit.load import Load

CONFIG = {"min.insync.replicas": "2"}


def roll(cluster: Cluster, topic: str, load: Load, rounds: int) -> None:
    """Each broker in turn, when all replicas are in sync; prints latencies and errors."""
    began = time.monotonic()
    took = []
    for _ in range(rounds):
        for node_id in cluster.nodes:
            cluster.wait_in_sync(topic)
            stopping = time.monotonic()
            cluster.stop(node_id)
            took.append(time.monotonic() - stopping)
            cluster.start([node_id])
    cluster.wait_in_sync(topic)
    load.wait_for_every_partition()
    latencies = sorted(w.done_at_s - w.sent_at_s for w in load.history.acked())
    print(
        f"\nrolled {rounds} × {len(cluster.nodes)} brokers in {time.monotonic() - began:.1f} s; "
        f"SIGTERM to exit {max(took):.2f} s at most; produce p50 "
        f"{1000 * latencies[len(latencies) // 2]:.0f} ms, p99 "
        f"{1000 * latencies[len(latencies) * 99 // 100]:.0f} ms, max {1000 * latencies[-1]:.0f} ms"
    )


def test_rolling_restart_without_an_error(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=6, config=CONFIG)
    with Load(cluster, topic, partitions=6, per_second=600) as load:
        roll(cluster, topic, load, rounds=1)
    load.check()
    assert [write.error for write in load.history.errors()] == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_rolls(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=6, config=CONFIG)
    with Load(cluster, topic, partitions=6, producers=2, per_second=1_000) as load:
        roll(cluster, topic, load, rounds=5)
    print(load.check(), "acknowledged writes")
    assert [write.error for write in load.history.errors()] == []


@pytest.mark.long
def test_all_stop_cleanly(cluster: Cluster, topic: str) -> None:
    """One after the other, the last one without a quorum; then a cold start."""
    cluster.create_topic(topic, config=CONFIG)
    with Load(cluster, topic) as load:
        load.wait_for_acks(300)
    cluster.stop()
    cluster.start()
    cluster.wait_in_sync(topic)
    load.check()
