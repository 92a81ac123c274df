"""Loads over windows: exact for what happened, whatever the replicas' coming and going."""

from __future__ import annotations

import random

import pytest

from odradek_broker.partition.load import COUNTERS, ReplicaLoad
from odradek_broker.partition.load_history import (
    PARTS,
    PER_STEP,
    SAMPLE_SECONDS,
    WINDOWS,
    LoadHistory,
)


def opened(now_ms: float) -> ReplicaLoad:
    load = ReplicaLoad()
    load.since_ms = now_ms
    return load


def rate(history: LoadHistory, name: str, load: ReplicaLoad, now_ms: float) -> dict[str, float]:
    window = history.window(name, [load], now_ms, 0.0)
    return dict(zip(COUNTERS, window.rates(load), strict=True))


def test_counters_are_named_in_their_order() -> None:
    load = ReplicaLoad()
    for number, name in enumerate(COUNTERS):
        setattr(load, name, number + 1)
    assert load.counters() == tuple(range(1, len(COUNTERS) + 1))


def test_rates_of_each_window_after_two_days() -> None:
    """1,000 bytes/s for two days, then 5,000 in the last hour."""
    history, load, now = LoadHistory(0.0, 0.0), opened(0.0), 0.0
    steps, last_hour = int(48 * 3600 / SAMPLE_SECONDS), int(3600 / SAMPLE_SECONDS)
    for step in range(steps):
        per_second = 5_000 if step >= steps - last_hour else 1_000
        load.appended(int(per_second * SAMPLE_SECONDS), 15)
        now += SAMPLE_SECONDS * 1000
        for _ in history.sample([load], now, now / 10_000):
            pass
        history.validate()
    for name, seconds in WINDOWS.items():
        window = history.window(name, [load], now, now / 10_000)
        assert seconds <= window.seconds <= seconds * (1 + 1 / PARTS) + SAMPLE_SECONDS
        assert window.cpu_used == pytest.approx(0.1)
        assert window.cpu(load) == pytest.approx(0.1)  # the only replica
    assert rate(history, "minute", load, now)["bytes_in"] == pytest.approx(5_000)
    assert rate(history, "minute", load, now)["messages_in"] == pytest.approx(1)
    assert 4_200 <= rate(history, "hour", load, now)["bytes_in"] <= 5_000
    day = rate(history, "day", load, now)["bytes_in"]
    assert day == pytest.approx((1_000 * 24 + 4_000) / 24, rel=0.05)


def test_a_broker_that_has_just_started_has_short_windows() -> None:
    history, load = LoadHistory(0.0, 0.0), opened(0.0)
    load.bytes_out = 3_000
    window = history.window("day", [load], 3_000.0, 0.0)
    assert window.seconds == 3.0
    assert rate(history, "day", load, 3_000.0)["bytes_out"] == 1_000
    assert rate(history, "day", load, 0.0)["bytes_out"] == 0.0  # no time has passed


def test_a_replica_is_measured_since_it_was_opened() -> None:
    """Not over the whole window, which began before it, and not from the counters of the replica
    that had its place in the samples."""
    history, old, now = LoadHistory(0.0, 0.0), opened(0.0), 0.0
    for _ in range(8):
        old.bytes_in += 10**9
        now += SAMPLE_SECONDS * 1000
        list(history.sample([old], now, 0.0))
    young = opened(now)
    young.bytes_in = 600
    now += SAMPLE_SECONDS * 1000
    list(history.sample([young], now, 0.0))
    assert young.at == old.at
    assert rate(history, "minute", young, now)["bytes_in"] == pytest.approx(600 / SAMPLE_SECONDS)
    assert rate(history, "hour", young, now)["bytes_in"] == pytest.approx(600 / SAMPLE_SECONDS)


@pytest.mark.parametrize("seed", range(3))
def test_replicas_come_and_go_between_the_slices_of_a_sample(seed: int) -> None:
    """Whatever is opened and closed meanwhile: no rate is above what the replica really had."""
    rng = random.Random(seed)
    history, now = LoadHistory(0.0, 0.0), 0.0
    loads = [opened(0.0) for _ in range(PER_STEP + 500)]
    for _ in range(12):
        now += SAMPLE_SECONDS * 1000
        for load in loads:
            load.bytes_in += int(100 * min(SAMPLE_SECONDS, (now - load.since_ms) / 1000))
        for _ in history.sample(loads, now, 0.0):
            for _ in range(50):
                loads.pop(rng.randrange(len(loads)))
                loads.append(opened(now))
    now += 1.0
    for name in WINDOWS:
        window = history.window(name, loads, now, 0.0)
        assert max(window.rates(load)[0] for load in loads) <= 100.1
        assert min(window.rates(load)[0] for load in loads) >= 0.0


def test_cpu_is_divided_in_proportion_to_what_requests_cost() -> None:
    history, busy, quiet, idle = LoadHistory(0.0, 0.0), opened(0.0), opened(0.0), opened(0.0)
    busy.produces, quiet.produces = 3_000, 1_000
    loads = [busy, quiet, idle]
    window = history.window("minute", loads, 10_000.0, 4.0)
    assert window.cpu_used == pytest.approx(0.4)
    assert [window.cpu(load) for load in loads] == pytest.approx([0.3, 0.1, 0.0])
