"""The event loop as a port: run something soon, later, or in a thread.

asyncio's loop is a `Scheduler`; the broker uses `event_loop.EndOfPass`, the simulator has its own.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    def call_soon(self, callback: Callable[[], None]) -> object: ...

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Cancellable: ...


class Threads(Protocol):
    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Runs `job` in a thread; then `done` on the loop, with the job's exception or None."""


class LoopThreads:
    """The threads of an asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        future = self._loop.run_in_executor(None, job)
        future.add_done_callback(lambda finished: done(finished.exception()))
