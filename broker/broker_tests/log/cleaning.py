"""The cleaner in a test: its manager, with a loop that runs when the test says so."""

import queue
import time
from collections.abc import Callable

from broker_tests.log.compaction import CompactedLog
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.cleaner_manager import (
    CleanerConfig,
    CleanerManager,
)
from odradek_broker.runtime.disk import Disk

WAIT_SECONDS = 20.0
FAST = CleanerConfig(dedupe_buffer_size=1 << 20, backoff_ms=1)


class Loop:
    """An event loop that runs only when the test says so, in the test's thread."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None]] = queue.Queue()

    def call_soon(self, function: Callable[[], None]) -> None:
        self._queue.put(function)

    def run_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not done():
            assert time.monotonic() < deadline
            try:
                function = self._queue.get(timeout=0.05)
            except queue.Empty:
                continue
            function()

    def wait_for_a_call(self) -> None:
        """Until the cleaner's only thread has called the loop; that thread waits then."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._queue.empty():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def run_one(self) -> None:
        self._queue.get(timeout=WAIT_SECONDS)()


class Cleaning:
    """A manager over the logs of a `CompactedLog`, stopped at the end of the test."""

    def __init__(self, log: CompactedLog, config: CleanerConfig = FAST) -> None:
        self.log = log
        self.loop = Loop()
        self.config = config
        self.manager = CleanerManager(
            log.manager.logs, lambda: self.config, log.clock, self.loop.call_soon
        )

    def run_until(self, done: Callable[[], bool]) -> None:
        self.loop.run_until(done)

    @property
    def runs(self) -> int:
        return self.manager.metrics().runs


def dirty_log(
    disk: Disk | None = None, batches: int = 40, directory: str = "/data"
) -> CompactedLog:
    log = CompactedLog(disk or SimDisk(), directory=directory)
    for number in range(batches):
        log.write([("abc"[number % 3], "v" * 50), (f"only-{number}", "w")])
    log.roll()
    return log


def files(log: CompactedLog, *suffixes: str) -> list[str]:
    return [e.name for e in log.disk.scan(log.log.dir) if e.name.endswith(suffixes)]
