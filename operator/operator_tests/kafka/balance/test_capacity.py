"""Answers about capacity, against what simulating the days one after the other gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_operator.kafka.balance.capacity import (
    Retention,
    Wanted,
    fillings,
    limits_of,
    losses,
    need,
)
from odradek_operator.kafka.balance.model import Bools, BrokerModel, LoadedPartition, build
from odradek_protocol.ids import TopicPartition
from odradek_testkit.skewed_clusters import skewed

GB, DAY_S, DAY_MS = 1e9, 86_400.0, 86_400_000.0
MB_S = 1e6
SMALL = Retention(ms=2 * DAY_MS, segment_bytes=0.0)


def brokers(room: float, *racks: str) -> list[BrokerModel]:
    """`room`: of the disks; replicas may use 80 % of it."""
    return [BrokerModel(n, rack, disk_bytes_max=0.8 * room) for n, rack in enumerate(racks)]


def part(number: int, *replicas: int, **loads: float) -> LoadedPartition:
    return LoadedPartition(TopicPartition("t", number), replicas, **loads)  # type: ignore[arg-type]


def test_a_disk_fills_unless_retention_stops_it() -> None:
    """1 MB/s is 86.4 GB a day: with retention of two days it ends at 172.8 GB."""
    one = [part(0, 0, 1, size_bytes=50 * GB, bytes_in=MB_S)]
    for room, days in ((100 * GB, 50 / 86.4), (170 * GB, 120 / 86.4), (180 * GB, None)):
        cluster = build(brokers(room, "a", "b", "c"), one)
        first, _, last = fillings(cluster, limits_of(cluster, {"t": SMALL}))
        assert first.used_bytes == 50 * GB
        assert first.final_bytes == pytest.approx(172.8 * GB)
        assert first.room_bytes == pytest.approx(room)
        assert last.full_in_s is None
        assert last.used_bytes == 0
        if days is None:
            assert first.full_in_s is None
        else:
            assert first.full_in_s == pytest.approx(days * DAY_S, rel=1e-6)


def test_a_topic_without_known_limits_grows_for_ever() -> None:
    cluster = build(brokers(100 * GB, "a"), [part(0, 0, size_bytes=GB, bytes_in=MB_S)])
    (found,) = fillings(cluster, limits_of(cluster, {"t": Retention(ms=-1)}))
    assert found.full_in_s == pytest.approx(99e3, rel=1e-6)
    (found,) = fillings(cluster, limits_of(cluster, {"t": Retention(compacts=True)}))
    assert (found.full_in_s, found.final_bytes) == (None, GB)
    by_size = Retention(ms=-1, bytes=30 * GB, segment_bytes=GB)
    (found,) = fillings(cluster, limits_of(cluster, {"t": by_size}))
    assert (found.full_in_s, found.final_bytes) == (None, 31 * GB)
    unknown = build([BrokerModel(0, "a")], [part(0, 0, size_bytes=GB, bytes_in=MB_S)])
    (found,) = fillings(unknown, limits_of(unknown, {}))
    assert found.full_in_s is None


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), days=st.floats(0.5, 20.0))
def test_the_time_is_that_of_a_simulation(seed: int, days: float) -> None:
    """Every broker that is said to be full after t is just below its room before t, and not
    after; one that is never full is not full after the retention either."""
    cluster = skewed(6, 120, seed)
    limits = limits_of(
        cluster, {name: Retention(ms=days * DAY_MS, segment_bytes=0.0) for name in cluster.topics}
    )
    for number, one in enumerate(fillings(cluster, limits)):
        mine = (cluster.replicas == number).any(axis=1)

        def used(seconds: float, mine: Bools = mine) -> float:
            grown = np.minimum(cluster.size_bytes + cluster.bytes_in * seconds, limits)
            return float(grown[mine].sum())

        if one.full_in_s is None:
            assert used(1e12) < one.room_bytes
        elif one.full_in_s > 1.0:
            assert used(one.full_in_s * 0.999) < one.room_bytes <= used(one.full_in_s * 1.001)


def test_the_loss_of_a_rack() -> None:
    """Rack a leads both; t-1 has all its replicas there; t-2 needs two of its replicas."""
    partitions = [
        part(0, 0, 1, 2, size_bytes=10 * GB, bytes_in=1.0, bytes_out=3.0),
        part(1, 0, size_bytes=GB, bytes_in=1.0, bytes_out=1.0),
        part(2, 1, 0, size_bytes=GB, bytes_in=1.0, bytes_out=1.0),
    ]
    cluster = build(brokers(100 * GB, "a", "b", "c"), partitions)
    a, b, c = losses(cluster, ["a", "b", "c"], np.array([2, 1, 2], dtype=np.int32))
    assert (a.rack, a.brokers, a.offline, a.not_writable) == ("a", 1, 1, 1)
    # Broker 1 leads t-0 (3 to consumers, 1 to the last follower) and t-2 without its follower.
    assert a.busiest_out == (1, 2.0, 5.0)
    assert not a.fits  # three replicas do not fit onto two brokers
    assert (b.offline, b.not_writable) == (0, 1)
    assert (c.offline, c.not_writable) == (0, 0)
    four = build(brokers(20 * GB, "a", "b", "c", "c"), partitions)
    a, *_ = losses(four, ["a", "b", "c"], np.ones(3, dtype=np.int32))
    # 12 GB are lost, 21 GB are left; three disks of 20 GB remain.
    assert a.fits
    assert a.disk_after == pytest.approx(33 / 60, rel=0.01)


def test_how_many_brokers_for_twice_the_load() -> None:
    racks = ("a", "b", "c")
    partitions = [
        part(n, n % 3, (n + 1) % 3, size_bytes=GB, bytes_in=MB_S, bytes_out=2 * MB_S)
        for n in range(30)
    ]
    flat = {"t": Retention(ms=1000.0, segment_bytes=0.0)}  # sizes as they are
    cluster = build(brokers(40 * GB, *racks), partitions)
    limits = limits_of(cluster, flat)
    # 120 GB after doubling, 32 GB per broker: four, so six in three racks.
    found = need(cluster, limits, Wanted(2.0))
    assert (found.by["disk"], found.decided_by, found.brokers) == (4, "disk", 6)
    assert found.problems == ()
    assert found.disk_after == pytest.approx(0.5, abs=0.1)
    # 180 MB/s are sent; 20 per broker: nine.
    found = need(cluster, limits, Wanted(2.0, network_bytes_max=20e6))
    assert (found.by["network"], found.decided_by, found.brokers) == (9, "network", 9)
    assert found.out_after is not None
    assert found.out_after <= 24e6  # ten per cent above the average of nine, and one partition
    found = need(cluster, limits, Wanted(2.0, cpu_cores=2.0))
    assert (found.by["cpu"], found.decided_by) == (6, "cpu")
    found = need(cluster, limits, Wanted(1.0))
    assert (found.brokers, found.decided_by) == (3, "")


def test_a_partition_that_no_broker_can_serve_is_a_problem() -> None:
    one = [part(0, 0, 1, 2, size_bytes=GB, bytes_in=50 * MB_S)]
    cluster = build(brokers(1000 * GB, "a", "b", "c"), one)
    found = need(cluster, limits_of(cluster, {"t": SMALL}), Wanted(2.0, network_bytes_max=60e6))
    assert any("a partition is large" in problem for problem in found.problems)
