"""A range of a `bytes` object, without a copy, which compiled code reads like an array in C.

Only `bytes` are read that fast: reading an item of a memoryview is a call into the interpreter and
creates an object. So a request is one `bytes`, and its records are a range of it. Example:
`ByteRange(b"abcdef", 2, 5).part(1, 2)` is the range 3 to 5, the bytes `de`.
"""

from typing import Final

from odradek_protocol.varint import Buffer

# Up to this size a copy is cheaper than a memoryview.
COPY_BYTES_MAX: Final = 4096


class ByteRange:
    """Bytes `start` to `end` (not included) of `data`."""

    __slots__ = ("data", "end", "start")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data = data
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return self.end - self.start

    def part(self, at: int, size: int) -> "ByteRange":
        """`size` bytes of it, from its byte `at` on."""
        if at == 0 and size == len(self):
            return self
        start = self.start + at
        return ByteRange(self.data, start, start + size)

    def from_byte(self, at: int) -> Buffer:
        """Its bytes from byte `at` on, as any kind of buffer."""
        start = self.start + at
        if self.end - start <= COPY_BYTES_MAX:
            return self.data[start : self.end]
        return memoryview(self.data)[start : self.end]


def whole(data: Buffer) -> ByteRange:
    """The range of all bytes; copied unless they are `bytes`."""
    return ByteRange(data if isinstance(data, bytes) else bytes(data), 0, len(data))
