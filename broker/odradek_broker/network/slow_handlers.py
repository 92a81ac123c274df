"""Logs requests that block the event loop.

Everything else waits while a handler runs. A handler that runs for longer than SLOW_MS without
awaiting is logged with its API and its client, at most once a minute for each API.

    Metadata v12 of "app-1" (10.0.0.7) blocked the event loop for 132 ms (and 3 more like it …)
"""

import logging
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek_broker.runtime import clock
from odradek_broker.runtime.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from odradek_broker.network.exchange import Exchange

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLOW_MS = 50
SLOW_NS = SLOW_MS * 1_000_000


class SlowHandlers:
    def __init__(self) -> None:
        self.count = 0
        self._limited = RateLimitedLog(logger)

    def blocked(self, exchange: "Exchange", name: str, taken_ns: int) -> None:
        """A handler blocked the loop for longer than SLOW_NS."""
        self.count += 1
        self._limited.warning(
            name,
            clock.now_ns() / 1e6,
            "%s v%d of %r (%s) blocked the event loop for %d ms",
            name,
            exchange.api_version,
            exchange.client_id,
            exchange.client_host,
            taken_ns // 1_000_000,
        )


class Watched(Generic[T]):
    """Awaits the outcome of a handler and measures each of its steps."""

    def __init__(
        self, outcome: Awaitable[T], slow: SlowHandlers, exchange: "Exchange", name: str
    ) -> None:
        self._outcome = outcome
        self._slow = slow
        self._exchange = exchange
        self._name = name

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._outcome.__await__()
        error: BaseException | None = None
        while True:
            began_ns = clock.now_ns()
            try:
                # A task sends only None; it throws its cancellation.
                waits_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                taken_ns = clock.now_ns() - began_ns
                if taken_ns > SLOW_NS:
                    self._slow.blocked(self._exchange, self._name, taken_ns)
            error = None
            try:
                yield waits_for
            except BaseException as thrown:
                error = thrown
