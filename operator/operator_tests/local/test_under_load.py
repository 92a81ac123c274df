"""The guarantees of the operator under load, on processes: rolls, scale, the loss of a rack.

Each prints latencies and times; the numbers in docs/ come from here.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from odradek_testkit.engines import kafka_jars
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TOPIC = {"partitions": 6, "replicationFactor": 3, "config": {"min.insync.replicas": 2}}


def costs(load: Load) -> str:
    """Latencies of the acknowledged writes, and the longest time without any acknowledgement."""
    took = sorted(w.done_at_s - w.sent_at_s for w in load.history.acked())
    times = sorted(w.done_at_s for w in load.history.acked())
    gap = max(b - a for a, b in pairwise(times))
    return (
        f"{len(took)} acknowledged, p50 {1000 * took[len(took) // 2]:.0f} ms, "
        f"p99 {1000 * took[len(took) * 99 // 100]:.0f} ms, max {1000 * took[-1]:.0f} ms, "
        f"longest silence {1000 * gap:.0f} ms"
    )


def judge(load: Load) -> None:
    load.check()
    assert [write.error for write in load.history.errors()] == []


def test_ten_rolling_restarts(tmp_path: Path) -> None:
    with Local(tmp_path, brokers=3) as local:
        local.topic("orders", **TOPIC)
        local.settle()
        with Load(local, "orders", partitions=6, per_second=300) as load:
            began = time.monotonic()
            for number in range(10):
                pids = local.runtime.report.clusters[KEY].pids
                local.annotations["odradek.dev/restart"] = str(number)
                after = local.settle()
                assert not pids.items() & after.pids.items()
                assert after.status.preferred_leaders_percent == 100
            took = (time.monotonic() - began) / 30
            load.wait_for_acks(100)
        judge(load)
        print(f"\n10 rolls of 3 brokers, {took:.1f} s per broker; {costs(load)}")


def test_a_rack_at_a_time(tmp_path: Path) -> None:
    """Six brokers in three racks: two of one rack go together where they share no partition."""
    with Local(tmp_path, brokers=6, rolling={"maxUnavailable": 2}) as local:
        local.topic("orders", **TOPIC)
        local.settle()
        local.done.clear()
        with Load(local, "orders", partitions=6, per_second=300) as load:
            local.annotations["odradek.dev/restart"] = "1"
            began = time.monotonic()
            local.settle(240)
            took = time.monotonic() - began
            load.wait_for_acks(100)
        judge(load)
        rolled = [line for line in local.done if line.startswith("restart")]
        print(f"\nsix brokers in {len(rolled)} steps, {took:.1f} s; {costs(load)}\n{rolled}")
        assert len(rolled) <= 5, rolled


def test_three_to_six_to_three(tmp_path: Path) -> None:
    with Local(tmp_path, brokers=3, rebalance="auto") as local:
        local.topic("orders", **TOPIC)
        local.settle()
        with Load(local, "orders", partitions=6, per_second=300) as load:
            began = time.monotonic()
            local.spec["brokers"] = 6
            local.settle(240)
            up = time.monotonic() - began
            assert {r for p in local.kafka().partitions for r in p.replicas} == set(range(6))
            local.spec["brokers"] = 3
            local.settle(240)
            down = time.monotonic() - began - up
            load.wait_for_acks(100)
        judge(load)
        assert set(local.kafka().registered) == {0, 1, 2}
        print(f"\n3 to 6 in {up:.1f} s, 6 to 3 in {down:.1f} s; {costs(load)}")


def test_the_loss_of_a_rack(tmp_path: Path) -> None:
    """kill -9 of both brokers of one rack at once; they are not restarted for five seconds."""
    with Local(tmp_path, brokers=6) as local:
        local.topic("orders", **TOPIC)
        local.settle()
        with Load(local, "orders", partitions=6, per_second=300) as load:
            load.wait_for_acks(300)
            for broker in (1, 4):
                local.kill(broker)
            gone = time.monotonic()
            acked = load.acked
            while time.monotonic() < gone + 5:
                time.sleep(0.1)  # the load goes on in its thread
            assert load.acked > acked, "two racks of three carry on"
            local.settle()
            load.wait_for_every_partition()
        judge(load)
        print(f"\nrack b killed; {costs(load)}")


@pytest.mark.java
def test_apache_kafka_is_rolled_and_scaled_by_the_same_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """engine: apache: three brokers that vote, a roll under load, one more, and back."""
    monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    with Local(tmp_path, brokers=3, engine="apache") as local:
        local.topic("orders", **TOPIC)
        before = local.settle(240)
        local.done.clear()
        with Load(local, "orders", partitions=6, per_second=200) as load:
            began = time.monotonic()
            local.annotations["odradek.dev/restart"] = "1"
            after = local.settle(300)
            took = (time.monotonic() - began) / 3
            load.wait_for_acks(100)
        judge(load)
        assert not before.pids.items() & after.pids.items()
        last = [line for line in local.done if line.startswith("restart")][-1]
        assert last.startswith(f"restart broker {before.status.controller}:")
        local.spec["brokers"] = 4
        local.settle(240)
        assert local.kafka().live == {0, 1, 2, 3}
        local.spec["brokers"] = 3
        local.settle(240)
        assert set(local.kafka().registered) == {0, 1, 2}
        print(f"\nApache Kafka, {took:.1f} s per broker; {costs(load)}")


@pytest.mark.java
def test_dedicated_controllers_are_rolled_before_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three controllers, three brokers of Apache Kafka: formed, rolled, one killed, under load."""
    monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    with Local(tmp_path, brokers=3, engine="apache", controllers={"replicas": 3}) as local:
        local.topic("orders", **TOPIC)
        before = local.settle(300)
        kafka = local.kafka()
        assert kafka.voters == {10_000, 10_001, 10_002}
        assert kafka.live == {0, 1, 2}
        assert [(c.rack, c.ready) for c in before.status.controllers] == [
            ("a", True), ("b", True), ("c", True),
        ]  # fmt: skip
        active = [c.id for c in before.status.controllers if c.active]
        assert active == [before.status.controller]
        local.done.clear()
        with Load(local, "orders", partitions=6, per_second=200) as load:
            local.annotations["odradek.dev/restart"] = "1"
            after = local.settle(400)
            load.wait_for_acks(100)
            rolled = [line.split(":")[0] for line in local.done if line.startswith("restart")]
            local.kill(after.status.controller)
            load.wait_for_acks(200)  # brokers serve clients while another controller takes over
            local.settle(300)
            load.wait_for_every_partition()
        judge(load)
        assert not before.pids.items() & after.pids.items()
        assert [line.split()[1] for line in rolled] == ["controller"] * 3 + ["broker"] * 3
        assert rolled[2] == f"restart controller {active[0]}"
        print(f"\n{rolled}; {costs(load)}")
