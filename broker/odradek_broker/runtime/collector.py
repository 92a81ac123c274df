"""Keeps the pauses of Python's garbage collector short, however many partitions there are.

A full collection looks at every object that is older than a moment, and stops the event loop
meanwhile: 100 ms for a million, which 20,000 partitions have. Nearly all of them live as long as
their partition and are freed without a collector, by the last reference. So what survived a full
collection that took long is set aside (`gc.freeze`), and the next one looks only at what is newer.

Garbage in a circle that was alive when it was set aside is never found; exceptions and tasks make
such circles, partitions and logs do not.
"""

import gc

from odradek_broker.runtime import clock

FULL = 2  # the generation of a full collection
PAUSE_NS_MAX = 10_000_000


class ShortPauses:
    def __init__(self) -> None:
        self._began_ns = 0

    def install(self) -> None:
        gc.callbacks.append(self._on_collection)

    def set_aside(self) -> None:
        """What is there by now stays, and need not be looked at again."""
        gc.freeze()

    def remove(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began_ns = clock.now_ns()
        elif clock.now_ns() - self._began_ns > PAUSE_NS_MAX:
            gc.freeze()
