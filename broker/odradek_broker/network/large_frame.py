"""A frame that comes in several reads, and is `bytes` in the end without having been copied.

Handlers want `bytes` (wire/byte_range.py), and sockets fill only buffers that can be written to.
BytesIO is both: what it has collected is handed out as it is, if nobody else looks at it.
"""

import socket
from io import BytesIO
from typing import Final

# Frames up to this size get their buffer at once, larger ones grow as bytes arrive.
FIRST_BUFFER_BYTES: Final = 1024 * 1024


class LargeFrame:
    """Invariant: `filled` <= `_capacity` <= `size`."""

    __slots__ = ("_buffer", "_capacity", "filled", "size")

    def __init__(self, size: int, head: bytes | memoryview) -> None:
        self.size = size
        self._buffer = BytesIO()
        self._capacity = 0
        self._grow(min(size, max(FIRST_BUFFER_BYTES, len(head))))
        with self._buffer.getbuffer() as view:
            view[: len(head)] = head
        self.filled = len(head)

    def _grow(self, capacity: int) -> None:
        self._buffer.seek(capacity - 1)
        self._buffer.write(b"\0")
        self._capacity = capacity

    @property
    def complete(self) -> bool:
        return self.filled == self.size

    def receive(self, sock: socket.socket) -> int:
        """Reads what is there; the number of bytes, 0 at the end. OSError as the socket's."""
        if self.filled == self._capacity:
            self._grow(min(2 * self._capacity, self.size))
        with self._buffer.getbuffer() as view:
            received = sock.recv_into(view[self.filled :])
        self.filled += received
        return received

    def finish(self) -> bytes:
        """The frame. It is no more to be received into."""
        return self._buffer.getvalue()
