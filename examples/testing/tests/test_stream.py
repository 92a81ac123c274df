"""FastStream: the application runs against a real broker, not against its in-memory one."""

import asyncio

import pytest

from odradek.testing import Kafka

pytest.importorskip("faststream.kafka")
from shop.stream import application


def test_large_amounts_are_marked(kafka: Kafka) -> None:
    async def story() -> None:
        for topic in ("amounts", "large"):
            await kafka.aio.run(kafka.topics.create, topic, partitions=1)
        app = application(kafka.bootstrap)
        running = asyncio.create_task(app.run())
        await kafka.aio.produce("amounts", "5", "5000")
        assert await kafka.aio.read("large", 2) == ["small", "large"]
        app.exit()
        await running

    asyncio.run(story())
