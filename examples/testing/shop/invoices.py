"""Orders become invoices: a consumer and a producer of confluent-kafka."""

from __future__ import annotations

import json

from confluent_kafka import Consumer, Producer


def bill(bootstrap: str, count: int) -> None:
    """Reads `count` orders, writes an invoice for each, and commits."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    producer = Producer({"bootstrap.servers": bootstrap, "retry.backoff.ms": 10})
    consumer.subscribe(["orders"])
    try:
        for _ in range(count):
            message = consumer.poll(30)
            if message is None or message.error():
                raise RuntimeError(f"no order: {message and message.error()}")
            order = json.loads(message.value() or b"{}")
            invoice = {"order": order["id"], "total": order["price"] * order["count"]}
            producer.produce("invoices", json.dumps(invoice), message.key())
        producer.flush()
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
