"""Transactions in /metrics of a real broker: one is committed, one aborted, one times out."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from odradek_testkit.clients import create_topic
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="metrics of our broker")

COORDINATOR = "odradek_transaction_coordinator"
VERIFIER = "kafka_server_addpartitionstotxnmanager"


def scrape(broker: RunningBroker) -> dict[str, float]:
    """By name and the value of the label."""
    with urllib.request.urlopen(f"http://{broker.admin}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        " ".join((one.name, *one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        if family.name.startswith((COORDINATOR, VERIFIER))
        for one in family.samples
    }


def producer_of(broker: RunningBroker, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.init_transactions(30)
    return producer


def send(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(30)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Of its own, because all of its transactions are counted."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    with RunningBroker(settings, directory=tmp_path / "broker") as running:
        yield running


def test_transactions_are_counted(broker: RunningBroker, topic: str) -> None:
    create_topic(broker, topic)
    quick, slow = producer_of(broker, "quick"), producer_of(broker, "slow", 1_500)
    send(quick, topic)
    quick.commit_transaction(30)
    send(quick, topic)
    quick.abort_transaction(30)
    send(quick, topic)
    wait_until(lambda: scrape(broker)[f"{COORDINATOR}_oldest_open_seconds"] > 0)
    now = scrape(broker)
    assert now[f"{COORDINATOR}_transactional_ids Ongoing"] == 1
    assert now[f"{COORDINATOR}_transactional_ids Empty"] == 1
    assert now[f"{COORDINATOR}_ended_total commit"] == 1
    assert now[f"{COORDINATOR}_ended_total abort"] == 1
    assert now[f"{COORDINATOR}_timed_out_total"] == 0
    assert now[f"{COORDINATOR}_partitions active"] > 0
    assert now[f"{VERIFIER}_verification_total"] >= 3
    assert now[f"{VERIFIER}_verificationfailure_total"] == 0
    send(slow, topic)
    wait_until(lambda: scrape(broker)[f"{COORDINATOR}_timed_out_total"] == 1)
    wait_until(lambda: scrape(broker)[f"{COORDINATOR}_ended_total abort"] == 2)
    quick.commit_transaction(30)
    wait_until(lambda: scrape(broker)[f"{COORDINATOR}_oldest_open_seconds"] == 0)
