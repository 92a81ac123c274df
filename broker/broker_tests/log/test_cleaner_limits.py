"""The throttle of the cleaner, and the memory of its map and of its reads."""

import psutil

from broker_tests.log.cleaning import dirty_log
from odradek_broker.log.batches import scan_batches
from odradek_broker.log.offset_map import OffsetMap
from odradek_broker.log.throttle import Throttle


def test_the_throttle_spreads_bytes_over_time() -> None:
    now_ms = 0.0
    waits: list[float] = []

    def wait(seconds: float) -> None:
        nonlocal now_ms
        waits.append(seconds)
        now_ms += 1000 * seconds

    throttle = Throttle(1000, lambda: now_ms, wait)
    for _ in range(4):
        throttle.take(500)
    assert waits == [0.5, 0.5, 0.5]
    now_ms += 10_000
    throttle.take(1)  # idle time earns no credit
    assert len(waits) == 3
    throttle.bytes_per_second = float("inf")
    throttle.take(10**12)
    throttle.take(10**12)
    assert sum(waits) < 1.6


def test_a_map_of_128_mb_uses_memory_only_for_its_entries() -> None:
    """The default budget must not make a small broker large."""
    process = psutil.Process()
    before = process.memory_info().rss
    offset_map = OffsetMap(128 * 1024**2, 0.9)
    offset_map.put([b"%d" % number for number in range(1000)], range(1000))
    assert process.memory_info().rss - before < 16 * 1024**2
    offset_map.close()


def test_sealed_segments_are_read_in_pieces_of_the_buffer_size() -> None:
    """However large a segment is; only a batch that is larger is read as a whole."""
    log = dirty_log()
    segment = log.log.segments[0]
    largest = 0

    class Watched:
        def pread(self, length: int, position: int) -> bytes:
            nonlocal largest
            largest = max(largest, length)
            return segment.file().pread(length, position)

    for _ in scan_batches(Watched(), "", 0, segment.size, 200):  # type: ignore[arg-type]
        pass
    assert largest == 200
