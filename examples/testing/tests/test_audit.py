"""aiokafka, in a test with an event loop of its own."""

import asyncio

import pytest

from odradek.testing import Kafka

pytest.importorskip("aiokafka")
from shop.audit import audit


def test_orders_are_written_down(kafka: Kafka) -> None:
    async def story() -> list[str]:
        await kafka.aio.run(kafka.topics.create, "orders", partitions=1)
        auditing = asyncio.create_task(audit(kafka.bootstrap, 2))
        await kafka.aio.produce("orders", "a", "b", key="c")
        return await auditing

    assert asyncio.run(story()) == ["c: a", "c: b"]
