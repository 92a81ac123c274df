"""confluent-kafka: the happy path, a broker that fails requests, and a leader that is killed."""

import json

import pytest

from odradek.testing import Kafka, Record

pytest.importorskip("confluent_kafka")
from shop.invoices import bill

ORDERS = [
    Record(json.dumps({"id": n, "price": 10, "count": n}), key=f"customer-{n}") for n in (1, 2)
]


def invoices(kafka: Kafka) -> list[tuple[int, int]]:
    found = [json.loads(record.text) for record in kafka.read("invoices", 2)]
    return sorted((invoice["order"], invoice["total"]) for invoice in found)


def test_every_order_gets_an_invoice(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=3)
    kafka.produce("orders", *ORDERS)
    bill(kafka.bootstrap, 2)
    assert invoices(kafka) == [(1, 10), (2, 20)]
    kafka.wait_for("billing", lag=0)


def test_no_invoice_is_lost_or_doubled_when_requests_fail(kafka: Kafka) -> None:
    kafka.produce("orders", *ORDERS)
    kafka.topics.create("invoices")
    kafka.fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2)
    bill(kafka.bootstrap, 2)
    assert invoices(kafka) == [(1, 10), (2, 20)]


@pytest.mark.kafka(brokers=3, racks=["a", "b", "c"])
def test_a_broker_dies(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    kafka.topics.create("invoices", partitions=1)
    kafka.produce("orders", *ORDERS)
    kafka.leader_of("orders").kill()
    bill(kafka.bootstrap, 2)
    assert invoices(kafka) == [(1, 10), (2, 20)]
