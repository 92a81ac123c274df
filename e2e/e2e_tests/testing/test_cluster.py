"""A Kafka of three brokers: racks, leaders, and what happens to processes."""

import pytest

from odradek.testing import Kafka, Record
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.kafka(
    brokers=3, racks=["a", "b", "c"], config={"min.insync.replicas": 2, "num.partitions": 3}
)


def test_racks_and_settings(kafka: Kafka) -> None:
    assert [(broker.id, broker.rack) for broker in kafka.brokers] == [(1, "a"), (2, "b"), (3, "c")]
    kafka.topics.create("orders")
    assert kafka.topics.partitions("orders") == 3
    info = kafka.client.metadata(["orders"]).topics["orders"]
    assert all(len(p.replicas) == 3 for p in info.partitions.values())


def test_moving_a_leader(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    before = kafka.leader_of("orders")
    after = kafka.move_leader("orders")
    assert after.id != before.id
    assert kafka.leader_of("orders").id == after.id
    assert kafka.move_leader("orders", to=before.id).id == before.id
    with pytest.raises(AssertionError, match="orders-0 cannot move to broker 9"):
        kafka.move_leader("orders", to=9)
    assert not kafka.touched, "the next test may use the same cluster"


def test_nothing_is_lost_when_the_leader_is_killed(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    kafka.produce("orders", "a")
    killed = kafka.leader_of("orders")
    killed.kill()
    assert not killed.running
    kafka.produce("orders", "b")
    assert kafka.read("orders") == ["a", "b"]
    assert kafka.leader_of("orders").id != killed.id
    killed.start()
    assert killed.running


def test_a_killed_broker_is_replaced_for_the_next_test(kafka: Kafka) -> None:
    assert len(kafka.client.metadata(()).brokers) == 3


def test_pause_and_restart(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    paused = kafka.leader_of("orders")
    paused.pause()
    assert "paused" in repr(paused)
    wait_until(lambda: kafka.leader_of("orders").id != paused.id, "another broker leads")
    kafka.produce("orders", Record("a"))
    paused.resume()
    paused.restart()
    assert kafka.read("orders", 1) == ["a"]
