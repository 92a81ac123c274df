"""engine="apache": the same API on Apache Kafka from its Maven artifacts."""

from collections.abc import Callable

import pytest

from odradek.testing import Kafka, Record, UnsupportedError

pytestmark = [pytest.mark.java, pytest.mark.kafka(engine="apache")]


def test_the_same_test_on_apache_kafka(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=3)
    sent = [Record(f"v{n}", key=f"k{n}", timestamp_ms=1_000 + n) for n in range(20)]
    kafka.produce("orders", *sent)
    assert kafka.read("orders", 20) == sent
    kafka.topics.empty("orders")
    assert kafka.read("orders") == []
    assert kafka.leader_of("orders").id == 1
    assert kafka.topics.list() == ["orders"]


def test_it_is_emptied_between_tests_and_restarts_with_its_data(kafka: Kafka) -> None:
    assert kafka.topics.list() == []
    kafka.topics.create("orders", partitions=1)
    kafka.produce("orders", "a")
    (broker,) = kafka.brokers
    broker.kill()
    broker.start()
    assert kafka.read("orders", 1) == ["a"]


def test_features_of_our_engine_only_are_refused(kafka: Kafka) -> None:
    faults: list[Callable[[], None]] = [
        lambda: kafka.advance(hours=1),
        lambda: kafka.fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER"),
        lambda: kafka.brokers[0].fill_disk(),
        lambda: kafka.cut(kafka.brokers[0]),
    ]
    for fault in faults:
        with pytest.raises(UnsupportedError, match="Apache Kafka cannot do this"):
            fault()
    assert not kafka.touched
