"""Clients push their metrics (KIP-714): Apache Kafka's tool makes a subscription, librdkafka and
the Java producer push, unmodified, and the values are on /metrics. Apache Kafka has no such
endpoint without a plugin, so this runs on our broker only."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from odradek_testkit.clients import create_topic, wait_until
from odradek_testkit.connecting import for_java
from odradek_testkit.engines import RunningBroker, kafka_tool

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker({}, directory=tmp_path_factory.mktemp("telemetry")) as broker:
        yield broker


def metrics_tool(server: RunningBroker, *args: str) -> str:
    return kafka_tool(TOOL, *for_java(server), *args).stdout


def pushed(server: RunningBroker, client_id: str) -> list[str]:
    with urllib.request.urlopen(f"http://{server.admin}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    label = f'client_id="{client_id}"'
    return [x for x in text.splitlines() if x.startswith("kafka_client_") and label in x]


def test_subscriptions_are_kept_and_listed(server: RunningBroker) -> None:
    assert "Altered client metrics config" in metrics_tool(
        server, "--alter", "--name", "kept", "--metrics", "org.apache.kafka.consumer.",
        "--interval", "60000", "--match", "client_id=[a-c].*",
    )  # fmt: skip
    assert "kept" in metrics_tool(server, "--list")
    described = metrics_tool(server, "--describe", "--name", "kept")
    assert re.search(r"interval\.ms=60000", described), described
    assert "match=client_id=[a-c].*" in described
    metrics_tool(server, "--delete", "--name", "kept")
    assert "kept" not in metrics_tool(server, "--list")


def test_without_subscriptions_clients_are_not_asked(server: RunningBroker) -> None:
    """As on Apache Kafka without a plugin: librdkafka would write a line to stderr."""
    keys = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    assert (
        "GetTelemetrySubscriptions(71): UNSUPPORTED" in kafka_tool(keys, *for_java(server)).stdout
    )


def test_librdkafka_and_java_push(server: RunningBroker, topic: str) -> None:
    """1. A subscription for two clients. 2. Each pushes. 3. Another client pushes nothing."""
    create_topic(server, topic)
    metrics_tool(
        server, "--alter", "--name", "mine", "--metrics", "*", "--interval", "200",
        "--match", "client_id=(py|java)-.*",
    )  # fmt: skip
    producers = [
        Producer({"bootstrap.servers": server.bootstrap, "client.id": name})
        for name in ("py-1", "other")
    ]

    def one_more() -> list[str]:
        for producer in producers:
            producer.produce(topic, b"x")
            producer.poll(0.05)
        return pushed(server, "py-1")

    wait_until(lambda: bool(one_more()))
    kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "400",
        "--record-size", "10", "--throughput", "200", "--producer-props",
        f"bootstrap.servers={server.bootstrap}", "client.id=java-1",
    )  # fmt: skip
    wait_until(lambda: bool(pushed(server, "java-1")))
    assert any("kafka_client_producer_" in line for line in pushed(server, "java-1"))
    assert pushed(server, "other") == []
