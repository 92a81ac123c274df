"""Requests to many brokers at once, in threads: one that hangs does not hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from odradek_protocol.client.errors import ClientError

THREADS_MAX = 16  # a thread waits for one broker; more would only help with more dead brokers

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


def fan_out(asks: Mapping[Key, Callable[[], Answer]]) -> dict[Key, Answer | ClientError]:
    """Calls each; the answer or the ClientError of each, in the order of `asks`."""
    if len(asks) < 2:
        return {key: _outcome(ask) for key, ask in asks.items()}
    from concurrent.futures import ThreadPoolExecutor  # imported late: most commands ask one broker

    with ThreadPoolExecutor(min(len(asks), THREADS_MAX), "kafka-client") as threads:
        running = {key: threads.submit(_outcome, ask) for key, ask in asks.items()}
        return {key: future.result() for key, future in running.items()}


def _outcome(ask: Callable[[], Answer]) -> Answer | ClientError:
    try:
        return ask()
    except ClientError as error:
        return error
