"""Keeps the pauses of Python's garbage collector short, however many partitions there are.

A full collection visits every object that survived the younger generations, and blocks the event
loop for that time: 2 ms for a thousand objects that are not in the processor's cache. Nearly all of
them live as long as their partition and are freed by their reference count, without the collector.
So:

    many at once   while thousands of partitions are created, opened or moved (`growing`), the
                   existing objects are frozen (`gc.freeze`) before a full collection visits them
    otherwise      the objects that survived a slow full collection are frozen, and the next one
                   visits only newer objects

A reference cycle that is frozen while it is alive is never collected; exceptions and tasks create
such cycles, partitions and logs do not. Most cycles become garbage soon, and the younger
generations, which are always collected, find them before they are frozen.
"""

import gc

from odradek_broker.runtime import clock

FULL = 2  # the generation of a full collection
PAUSE_NS_MAX = 10_000_000
# Work that was too much for one slice makes more work elsewhere: fetch sessions, requests.
GROWING_NS = 5_000_000_000
# A start may take any time.
UNTIL_TOLD = 1 << 62


class _Growth:
    """State of the whole process, like the collector itself."""

    until_ns = 0


def growing() -> None:
    """Call it while many long-lived objects are being created, and again as long as that lasts."""
    _Growth.until_ns = max(_Growth.until_ns, clock.now_ns() + GROWING_NS)


class ShortPauses:
    def __init__(self) -> None:
        self._began_ns = 0

    def install(self) -> None:
        """Called at the start of the broker, when nearly all new objects are long-lived."""
        _Growth.until_ns = UNTIL_TOLD
        gc.callbacks.append(self._on_collection)

    def set_aside(self) -> None:
        """The broker has started: excludes the objects of the start from later collections."""
        gc.freeze()
        _Growth.until_ns = 0
        growing()

    def remove(self) -> None:
        _Growth.until_ns = 0
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began_ns = clock.now_ns()
            if self._began_ns < _Growth.until_ns:
                gc.freeze()
        elif clock.now_ns() - self._began_ns > PAUSE_NS_MAX:
            gc.freeze()
