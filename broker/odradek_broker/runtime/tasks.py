"""The event loop as a port: run something soon, later, or in a thread.

asyncio's loop (and uvloop's) has exactly these methods; the simulator brings its own.
"""

from collections.abc import Callable
from typing import Any, Protocol


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Cancellable: ...

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Cancellable: ...
