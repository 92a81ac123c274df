"""The replication throttle's arithmetic, with a rate that changes at run time."""

from __future__ import annotations

import pytest

from odradek_broker.partition.throttle import Direction, ReplicationThrottle
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import BrokerId

RATE = "leader.replication.throttled.rate"


@pytest.fixture
def settings() -> Settings:
    return Settings({"node.id": "1", RATE: "1000"})


def test_bytes_that_passed_wait_for_their_time(settings: Settings) -> None:
    throttle = ReplicationThrottle(Direction.LEADER, BrokerId(1), settings)
    assert not throttle.exceeded(0.0)
    throttle.passed(5_000, 0.0)
    assert throttle.exceeded(4_999.0)
    assert not throttle.exceeded(5_000.0)


def test_a_changed_rate_applies_to_bytes_that_have_passed(settings: Settings) -> None:
    throttle = ReplicationThrottle(Direction.LEADER, BrokerId(1), settings)
    throttle.passed(1_000_000, 0.0)  # a quarter of an hour
    settings.apply_dynamic({RATE: "1000000"}, {})
    assert throttle.exceeded(0.0)
    assert not throttle.exceeded(1_000.0)
    throttle.passed(1_000_000, 1_000.0)
    settings.apply_dynamic({RATE: "100000"}, {})
    assert throttle.exceeded(1_500.0)  # half of the pause is left, at a tenth of the rate
    assert throttle.exceeded(6_000.0)
    assert not throttle.exceeded(6_500.0)
