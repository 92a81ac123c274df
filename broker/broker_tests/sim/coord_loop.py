"""An asyncio event loop in simulated time: production services with tasks and futures run in it.

One per life of a host. Callbacks are events of the world: they die with the life, and wait while
the host is paused. Only what asyncio's own tasks, futures, `sleep`, `timeout` and `to_thread` need
is here; "threads" take a few milliseconds of simulated time and run nothing at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any, TypeVar

from broker_tests.sim.world import World

T = TypeVar("T")
THREAD_MS_MAX = 8


class _Handle:
    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], at_s: float) -> None:
        self._callback: Callable[..., Any] | None = callback
        self._args = args
        self._at_s = at_s

    def cancel(self) -> None:
        self._callback = None

    def cancelled(self) -> bool:
        return self._callback is None

    def when(self) -> float:
        return self._at_s

    def run(self, loop: SimLoop) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(loop)
        try:
            callback(*self._args)
        finally:
            asyncio._set_running_loop(before)


class SimLoop(asyncio.AbstractEventLoop):
    """Has only the methods that the broker calls; make it with `sim_loop`."""

    def __init__(self, world: World, node_id: int, rng: Random) -> None:
        self._world = world
        self._node_id = node_id
        self._rng = rng
        # A task that the garbage collector finds would run its `finally` at an unknown time.
        self._tasks: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self._world.now_ms / 1000

    def _schedule(
        self, delay_ms: int, callback: Callable[..., Any], args: tuple[Any, ...]
    ) -> _Handle:
        handle = _Handle(callback, args, self.time() + delay_ms / 1000)
        self._world.after_on(self._node_id, delay_ms, handle.run, self)
        return handle

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: object, context: Context | None = None
    ) -> _Handle:
        return self._schedule(0, callback, args)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: object,
        context: Context | None = None,
    ) -> _Handle:
        return self._schedule(max(0, round(delay * 1000)), callback, args)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: object,
        context: Context | None = None,
    ) -> _Handle:
        return self.call_later(when - self.time(), callback, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], **_: object
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self._schedule(self._rng.randint(0, THREAD_MS_MAX), run, ())
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Futures whose error was not fetched because their host died."""

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


def sim_loop(world: World, node_id: int, rng: Random) -> SimLoop:
    return SimLoop(world, node_id, rng)  # type: ignore[abstract]
