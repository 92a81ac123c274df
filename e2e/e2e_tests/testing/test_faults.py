"""Faults of requests, disk and time, which only brokers in testing mode have."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from odradek.testing import Kafka, Record
from odradek.testing.control import ControlError
from odradek_broker.model.config_table import BROKER_CONFIGS
from odradek_protocol.client import (
    AnyBroker,
    ApiKey,
    BrokerError,
    ClientError,
    KafkaClient,
    Struct,
)
from odradek_testkit.engines import RunningBroker
from odradek_testkit.waiting import wait_until


def test_a_client_retries_what_failed(kafka: Kafka) -> None:
    """librdkafka gets the error twice, tries again, and the record is there once."""
    kafka.topics.create("orders", partitions=1)
    kafka.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "retry.backoff.ms": 10})
    producer.produce("orders", b"a")
    assert producer.flush(30) == 0
    assert kafka.read("orders") == ["a"]
    assert "NOT_LEADER_OR_FOLLOWER" in _refused(kafka, "PRODUCE", "NOT_LEADER_OR_FOLLOWER")


def test_an_error_that_is_not_retried_reaches_the_program(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    kafka.fail_next("PRODUCE", "TOPIC_AUTHORIZATION_FAILED")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    errors: list[KafkaError | None] = []
    producer.produce("orders", b"a", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.name() for error in errors if error] == ["TOPIC_AUTHORIZATION_FAILED"]
    assert kafka.read("orders") == [], "it was not carried out"


@pytest.mark.parametrize("api", ["INIT_PRODUCER_ID", "CREATE_TOPICS", "DELETE_RECORDS", "FETCH"])
def test_errors_at_the_top_and_inside_of_responses(kafka: Kafka, api: str) -> None:
    kafka.produce("orders", "a")
    assert "CLUSTER_AUTHORIZATION_FAILED" in _refused(kafka, api, "CLUSTER_AUTHORIZATION_FAILED")


def _refused(kafka: Kafka, api: str, error: str) -> str:
    def call() -> None:
        if api == "INIT_PRODUCER_ID":
            request = Struct(transactional_id=None, transaction_timeout=1000)
            answer = kafka.client.call(AnyBroker(), ApiKey.INIT_PRODUCER_ID, request)
            if answer.error_code:
                raise BrokerError(answer.error_code)
        elif api == "CREATE_TOPICS":
            kafka.topics.create("new")
        elif api == "DELETE_RECORDS":
            kafka.topics.empty("orders")
        elif api == "FETCH":
            kafka.read("orders")
        else:
            kafka.produce("orders", "b")

    times = 1 if api != "PRODUCE" else 1000
    kafka.fail_next(api, error, times)
    if api == "PRODUCE":  # our own client repeats it until the deadline: only see that it waits
        waiting = threading.Thread(target=call)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        kafka.heal()
        waiting.join(30)
        return error
    with pytest.raises(ClientError) as raised:
        call()
    call()  # only the next one failed
    return str(raised.value)


def test_delays(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    kafka.delay_next("PRODUCE", 300)
    began = time.monotonic()
    kafka.produce("orders", "a")
    assert time.monotonic() - began >= 0.3
    kafka.brokers[0].slow_down(200)
    began = time.monotonic()
    kafka.topics.list()
    assert time.monotonic() - began >= 0.2
    kafka.heal()
    assert kafka.read("orders") == ["a"]


def test_faults_that_are_impossible_are_refused(kafka: Kafka) -> None:
    with pytest.raises(ValueError, match="there is no API 'Brew'"):
        kafka.fail_next("Brew", "NOT_CONTROLLER")
    with pytest.raises(ValueError, match="there is no error 'TEAPOT'"):
        kafka.fail_next("PRODUCE", "TEAPOT")
    with pytest.raises(ControlError, match="no error code"):
        kafka.fail_next("ALTER_CONFIGS", "NOT_CONTROLLER")


def test_a_full_disk(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "retries": 0})
    kafka.brokers[0].fill_disk()
    errors: list[KafkaError | None] = []
    producer.produce("orders", b"a", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.name() for error in errors if error] == ["KAFKA_STORAGE_ERROR"]
    kafka.brokers[0].free_disk()
    kafka.produce("orders", "b")
    assert kafka.read("orders") == ["b"]


def test_retention_without_waiting(kafka: Kafka) -> None:
    day_ms = 24 * 3600 * 1000
    kafka.topics.create("orders", partitions=1, config={"retention.ms": str(day_ms)})
    kafka.topics.create("kept", partitions=1, config={"retention.ms": "-1"})
    kafka.produce("orders", "a")
    kafka.produce("kept", "a")
    kafka.advance(hours=23)
    assert kafka.read("orders") == ["a"]
    kafka.advance(hours=2)
    assert kafka.read("orders") == []
    assert kafka.read("kept") == ["a"]


def test_a_silent_member_times_out_without_waiting(kafka: Kafka) -> None:
    kafka.produce("orders", "a")
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
        "session.timeout.ms": 45_000, "heartbeat.interval.ms": 15_000,
    })  # fmt: skip
    consumer.subscribe(["orders"])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        (member,) = kafka.groups.describe("g").members
        kafka.advance(seconds=40)
        assert [m.member_id for m in kafka.groups.describe("g").members] == [member.member_id]
        kafka.advance(seconds=10)
        assert member.member_id not in {m.member_id for m in kafka.groups.describe("g").members}
    finally:
        consumer.close()


def test_a_transaction_times_out_without_waiting(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "transactional.id": "t",
        "transaction.timeout.ms": 60_000,
    })  # fmt: skip
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"a")
    producer.flush(30)
    kafka.produce("orders", "b")
    assert kafka.read("orders") == [], "behind the open transaction"
    kafka.advance(seconds=61)
    assert kafka.read("orders", 1) == ["b"]


@pytest.mark.kafka(brokers=3)
def test_an_isolated_leader_is_replaced_and_comes_back(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    isolated = kafka.leader_of("orders")
    kafka.cut(isolated)
    others = [broker for broker in kafka.brokers if broker is not isolated]

    def leader_seen_by_others() -> int:
        with KafkaClient(others[0].address) as client:
            return client.metadata(["orders"]).topics["orders"].partitions[0].leader

    wait_until(lambda: leader_seen_by_others() not in (isolated.id, -1), "another broker leads")
    kafka.heal()
    wait_until(
        lambda: len(kafka.client.metadata(["orders"]).topics["orders"].partitions[0].isr) == 3,
        "it is in sync again",
    )
    kafka.produce("orders", Record("a"))
    assert kafka.read("orders") == ["a"]


def test_a_normal_broker_has_no_control_socket(tmp_path: Path) -> None:
    """Neither a setting nor a variable switches it on; only the flag of the command line does."""
    env = {"KAFKA_TESTING_CONTROL": str(tmp_path / "c"), "TESTING_CONTROL": str(tmp_path / "c")}
    with RunningBroker(directory=tmp_path / "b", env=env) as broker:
        sockets = subprocess.run(
            ["cat", f"/proc/{broker.pid}/net/unix"], capture_output=True, text=True, check=True
        ).stdout
        assert str(tmp_path) not in sockets
        assert not [p for p in tmp_path.rglob("*") if p.is_socket()]
    code = (
        "import sys, odradek_broker.main, odradek_broker.wiring, odradek_broker.broker;"
        "print([m for m in sys.modules if m.startswith('odradek_broker.testing')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert not [name for name in BROKER_CONFIGS if "testing" in name]


def test_only_the_owner_may_open_the_control_socket(kafka: Kafka) -> None:
    path = kafka.brokers[0]._server.directory / "control"
    assert path.is_socket()
    assert path.stat().st_mode & 0o077 == 0
