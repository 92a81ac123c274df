"""Marks large orders: a FastStream application."""

from __future__ import annotations

from faststream import FastStream
from faststream.kafka import KafkaBroker

LARGE = 1000


def application(bootstrap: str) -> FastStream:
    broker = KafkaBroker(bootstrap)

    @broker.subscriber("amounts", group_id="stream", auto_offset_reset="earliest")
    @broker.publisher("large")
    async def mark(amount: int) -> str:
        return "large" if amount >= LARGE else "small"

    return FastStream(broker)
