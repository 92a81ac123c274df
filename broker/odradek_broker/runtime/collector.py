"""Keeps the pauses of Python's garbage collector short, however many partitions there are.

A full collection visits every object in the oldest generation, and blocks the event loop for that
time: 100 ms for a million objects, which 20,000 partitions have. Nearly all of them live as long as
their partition and are freed by their reference count, without the collector. So the objects that
survived a slow full collection are frozen (`gc.freeze`), and the next one visits only newer
objects.

A reference cycle that is frozen while it is alive is never collected; exceptions and tasks create
such cycles, partitions and logs do not.
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
        """Excludes the objects of the start from later collections."""
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
