"""A frame that is received in several reads, and becomes `bytes` without a copy.

Handlers need `bytes` (odradek_protocol/byte_range.py), but sockets fill only writable buffers.
BytesIO is both: it returns its contents as `bytes` without a copy, if nothing else views them.

Its buffer grows with the bytes that arrive: 68 KB after a bare length prefix, later at most four
times the bytes that arrived (twice, from 1 MB on). The owner takes the memory before it grows it.
"""

from io import BytesIO
from typing import Final

from odradek_broker.runtime.byte_stream import ByteStream

# A batch of 64 KB with its headers fits.
FIRST_BUFFER_BYTES: Final = 68 * 1024
# Up to here a buffer grows fourfold, so that a batch of 1 MB is moved once or not at all.
FAST_GROWTH_BYTES: Final = 1024 * 1024
# The client id is within these, in the longest header that clients send.
HEAD_BYTES: Final = 300


def first_capacity(size: int, arrived: int) -> int:
    """The first size of the buffer for a frame of `size` bytes, of which `arrived` have arrived."""
    return min(size, max(FIRST_BUFFER_BYTES, 4 * arrived))


class LargeFrame:
    """Invariant: `filled` <= `capacity` <= `size`."""

    __slots__ = (
        "_buffer",
        "capacity",
        "filled",
        "rate",
        "seen",
        "seen_before",
        "size",
        "started_ms",
        "window_filled",
        "window_ms",
    )

    def __init__(self, size: int, head: bytes | memoryview, capacity: int, now_ms: float) -> None:
        self.size = size
        self._buffer = BytesIO()
        self.capacity = 0
        self.grow(capacity)
        with self._buffer.getbuffer() as view:
            view[: len(head)] = head
        self.filled = len(head)
        # How fast it arrives, maintained by receiving.py:
        self.started_ms = now_ms
        self.window_ms = now_ms  # when the current window began, and the bytes filled then
        self.window_filled = self.filled
        self.seen = self.filled  # filled at the last sweep, and at the one before; -1: no sweep yet
        self.seen_before = -1
        self.rate = -1.0  # bytes/s between the last two sweeps; negative if not known yet

    @property
    def complete(self) -> bool:
        return self.filled == self.size

    @property
    def full(self) -> bool:
        """The buffer has to grow before another byte fits."""
        return self.filled == self.capacity

    def growth(self) -> int:
        """By how much it would grow next."""
        factor = 4 if self.capacity < FAST_GROWTH_BYTES else 2
        return min(factor * self.capacity, self.size) - self.capacity

    def grow(self, more: int) -> None:
        self.capacity += more
        self._buffer.seek(self.capacity - 1)
        self._buffer.write(b"\0")

    def head(self) -> bytes:
        """The first bytes that have arrived."""
        with self._buffer.getbuffer() as view:
            return bytes(view[: min(self.filled, HEAD_BYTES)])

    def receive(self, sock: ByteStream) -> int:
        """Reads the available bytes; their number, 0 at the end of the stream. Raises OSError."""
        with self._buffer.getbuffer() as view:
            received = sock.recv_into(view[self.filled :])
        self.filled += received
        return received

    def finish(self) -> bytes:
        """The whole frame; nothing can be received into it any more."""
        return self._buffer.getvalue()
