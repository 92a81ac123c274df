"""Which request blocked the event loop is logged, once a minute for each API."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from odradek_broker.network import slow_handlers
from odradek_broker.network.slow_handlers import SlowHandlers, Watched
from odradek_broker.runtime.rate_limited_log import PERIOD_MS


def exchange(api_key: int = 3) -> Any:
    return SimpleNamespace(
        api_key=api_key, api_version=12, client_id="app-1", client_host="10.0.0.7"
    )


class Time:
    def __init__(self) -> None:
        self.now = 10**12

    def now_ns(self) -> int:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(slow_handlers, "clock", time)
    return time


def test_one_line_a_minute_for_each_api(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowHandlers()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            slow.blocked(exchange(), "Metadata", 132_000_000)
        slow.blocked(exchange(19), "CreateTopics", 60_000_000)
        time.now += PERIOD_MS * 1_000_000
        slow.blocked(exchange(), "Metadata", 70_000_000)
    assert [record.getMessage() for record in caplog.records] == [
        "Metadata v12 of 'app-1' (10.0.0.7) blocked the event loop for 132 ms",
        "CreateTopics v12 of 'app-1' (10.0.0.7) blocked the event loop for 60 ms",
        "Metadata v12 of 'app-1' (10.0.0.7) blocked the event loop for 70 ms "
        "(and 2 more like it in the last 60 s)",
    ]
    assert slow.count == 5


def test_only_the_time_that_it_runs_counts_and_only_at_a_stretch(time: Time) -> None:
    slow = SlowHandlers()

    async def handler(runs_ms: int) -> int:
        time.now += runs_ms * 1_000_000
        await asyncio.sleep(0)
        time.now += runs_ms * 1_000_000
        return 7

    async def story() -> None:
        assert await Watched(handler(30), slow, exchange(), "Metadata") == 7
        assert slow.count == 0
        await Watched(handler(51), slow, exchange(), "Metadata")
        assert slow.count == 2

    asyncio.run(story())


def test_errors_and_cancellations_pass_through() -> None:
    slow = SlowHandlers()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def waits() -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        with pytest.raises(ValueError, match="no"):
            await Watched(fails(), slow, exchange(), "Metadata")

        async def run() -> None:
            await Watched(waits(), slow, exchange(), "Metadata")

        task = asyncio.ensure_future(run())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
