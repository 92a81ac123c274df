"""Writes down every order: a consumer of aiokafka."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer


async def audit(bootstrap: str, count: int) -> list[str]:
    """The first `count` orders, as "key: value"."""
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        lines = []
        async for message in consumer:
            lines.append(f"{(message.key or b'').decode()}: {(message.value or b'').decode()}")
            if len(lines) == count:
                break
        return lines
    finally:
        await consumer.stop()
