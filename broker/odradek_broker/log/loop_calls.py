"""Lets a thread run a function in the event loop's thread and wait for its result.

Used by the cleaner's threads, whose shared state belongs to the loop's thread.
"""

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

T = TypeVar("T")


class LoopStoppedError(Exception):
    """There will be no result: the owner of the loop is stopping."""


class LoopCalls:
    """Invariant: after `stop` no thread waits here."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` is thread-safe, as `loop.call_soon_threadsafe`."""
        self._call_soon = call_soon
        self._waiting: set[Future[object]] = set()
        self._stopped = False

    def call(self, function: Callable[[], T]) -> T:
        """Returns or raises as `function` does; LoopStoppedError if it was not run."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception):
                    raise

        self._waiting.add(future)  # type: ignore[arg-type]
        try:
            # In this order: `stop` either finds the future or is seen here.
            if self._stopped:
                raise LoopStoppedError
            self._schedule(run)
            return future.result()
        except CancelledError:
            raise LoopStoppedError from None
        finally:
            self._waiting.discard(future)

    def _schedule(self, run: Callable[[], None]) -> None:
        try:
            self._call_soon(run)
        except RuntimeError:  # the loop is closed
            raise LoopStoppedError from None

    def stop(self) -> None:
        """Calls that are running are completed; the others raise LoopStoppedError."""
        self._stopped = True
        for future in list(self._waiting):
            future.cancel()
