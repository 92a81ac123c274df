"""A Kafka for tests with TLS, users and ACLs, used by the clients that people have."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from odradek.testing import Kafka, UnsupportedError
from odradek_testkit.engines import kafka_tool

SECURE = {"tls": True, "sasl": "SCRAM-SHA-512"}


def produce(settings: dict[str, Any], topic: str, *values: str) -> list[str | None]:
    """The error of each record, None for none."""
    producer = Producer({**settings, "allow.auto.create.topics": "false"})
    errors: list[str | None] = []
    for value in values:
        producer.produce(
            topic,
            value.encode(),
            on_delivery=lambda error, _: errors.append(error.name() if error else None),
        )
    assert producer.flush(30) == 0
    return errors


@pytest.mark.kafka(**SECURE)
def test_confluent(kafka: Kafka) -> None:
    kafka.topics.create("orders")
    settings = kafka.client_settings("confluent")
    assert settings["security.protocol"] == "SASL_SSL"
    assert (settings["sasl.username"], settings["sasl.password"]) == (kafka.user, kafka.password)
    assert produce(settings, "orders", "a", "b") == [None, None]
    assert kafka.read("orders", 2) == ["a", "b"]
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = consumer.consume(2, 30)
    assert [message.value() for message in found] == [b"a", b"b"]
    consumer.close()


@pytest.mark.kafka(**SECURE)
def test_wrong_passwords_and_plaintext_are_refused(kafka: Kafka) -> None:
    wrong = {**kafka.client_settings("confluent"), "sasl.password": "wrong"}
    with pytest.raises(KafkaException):
        AdminClient(wrong).list_topics(timeout=3)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=1)
    assert kafka.password is not None
    assert kafka.password not in "".join(kafka.logs().values())


@pytest.mark.kafka(**SECURE)
def test_another_user(kafka: Kafka) -> None:
    bob = kafka.add_user("bob", "a secret of bob")
    assert "secret" not in repr(bob)
    kafka.topics.create("orders")
    assert produce(kafka.client_settings(login=bob), "orders", "a") == [None]


@pytest.mark.kafka(tls=True)
def test_tls_alone(kafka: Kafka) -> None:
    assert kafka.ca_file is not None
    assert kafka.ca_file.exists()
    assert kafka.user is None
    kafka.topics.create("orders")
    assert produce(kafka.client_settings("confluent"), "orders", "a") == [None]


def test_aiokafka() -> None:
    asyncio.run(_aiokafka())


async def _aiokafka() -> None:
    for sasl in ("PLAIN", "SCRAM-SHA-256"):
        async with Kafka(tls=True, sasl=sasl) as kafka:
            await kafka.aio.run(kafka.topics.create, "orders")
            producer = aiokafka.AIOKafkaProducer(**kafka.client_settings("aiokafka"))
            await producer.start()
            await producer.send_and_wait("orders", b"a")
            await producer.stop()
            assert await kafka.aio.read("orders", 1) == ["a"]


@pytest.mark.java
@pytest.mark.kafka(**SECURE)
def test_java(kafka: Kafka, tmp_path: Path) -> None:
    lines = [f"{name}={value}" for name, value in kafka.client_settings("java").items()]
    config = tmp_path / "client.properties"
    config.write_text("\n".join(lines))
    kafka.topics.create("orders")
    listed = kafka_tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap,
        "--command-config", str(config), "--list",
    )  # fmt: skip
    assert listed.stdout.split() == ["orders"]


@pytest.mark.kafka(brokers=3, sasl="PLAIN", tls=True, acls=True)
def test_acls_of_a_cluster_and_its_failover(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    settings = kafka.client_settings("confluent")
    assert produce(settings, "orders", "a") == ["TOPIC_AUTHORIZATION_FAILED"]
    kafka.allow("WRITE", topic="ord*")
    assert produce(settings, "orders", "b") == [None]
    kafka.leader_of("orders").kill()
    assert produce(settings, "orders", "c") == [None]
    assert kafka.read("orders", 2) == ["b", "c"]


@pytest.mark.parametrize("_again", range(2))
@pytest.mark.kafka(sasl="SCRAM-SHA-512", acls=True)
def test_each_test_begins_without_rights(kafka: Kafka, _again: int) -> None:
    kafka.topics.create("orders")
    settings = kafka.client_settings("confluent")
    assert produce(settings, "orders", "a") == ["TOPIC_AUTHORIZATION_FAILED"]
    kafka.allow("WRITE", topic="orders")
    assert produce(settings, "orders", "b") == [None]


def test_what_security_refuses(kafka: Kafka) -> None:
    assert kafka.client_settings("java") == {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "PLAINTEXT",
    }
    with pytest.raises(ValueError, match="expected one of java, confluent, aiokafka"):
        kafka.client_settings("sarama")
    with pytest.raises(UnsupportedError, match="there are no ACLs"):
        kafka.allow("READ", topic="orders")
    with pytest.raises(UnsupportedError, match="SCRAM"):
        kafka.add_user("bob", "x")
