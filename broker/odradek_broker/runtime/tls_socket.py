"""A non-blocking TLS socket with the methods and exceptions of a plain one.

So connections to clients (`network/`) and to other brokers (`runtime/transport.py`) have one code
path for both. Differences that remain for the owner:

- `handshake()` has to succeed before the first byte;
- decrypted bytes may wait in memory while the kernel has nothing to read: `pending()`;
- a read may have to wait until the socket is writable (an answer to a key update): then
  `read_wants_write` is set.

Python's `ssl` repeats a write that could not be completed only with the same bytes, or more of
them; the queues of both owners guarantee that, because they advance by what was accepted only.
"""

import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

# The largest payload of a TLS record.
RECORD_BYTES = 16 * 1024
# A record that has at least this much is likely followed by the next one.
MORE_FROM_BYTES = 4 * 1024
# Written at once: as many records as a socket's buffer usually takes.
WRITE_BYTES_MAX = 256 * 1024
# A file is read in parts of this size to be encrypted.
FILE_CHUNK_BYTES = 256 * 1024


class TlsSocket(ssl.SSLSocket):
    """Made by an SSLContext whose `sslsocket_class` it is."""

    read_wants_write = False

    def handshake(self) -> str:
        """ "" when it is complete, "read" or "write" if it waits for that. Raises OSError."""
        try:
            self.do_handshake()
        except ssl.SSLWantReadError:
            return "read"
        except ssl.SSLWantWriteError:
            return "write"
        return ""

    # --- in ------------------------------------------------------------------------------

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        self.read_wants_write = False
        try:
            return super().recv(buflen, flags)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.read_wants_write = True
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Fills the buffer with the records that have arrived, not only with the first."""
        self.read_wants_write = False
        view = memoryview(buffer)
        limit = min(nbytes or len(view), len(view))
        filled = 0
        try:
            while filled < limit:
                received = super().recv_into(view[filled:limit], limit - filled, flags)
                filled += received
                if received < MORE_FROM_BYTES:
                    break
        except ssl.SSLWantReadError:
            if not filled:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.read_wants_write = True
            if not filled:
                raise BlockingIOError from None
        return filled

    # --- out -----------------------------------------------------------------------------

    def send(self, data: Any, flags: int = 0) -> int:
        try:
            return super().send(memoryview(data)[:WRITE_BYTES_MAX], flags)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def sendmsg(self, buffers: Sequence[Any], *_: object) -> int:  # type: ignore[override]
        """One write for all buffers: records are as large as possible."""
        if len(buffers) == 1:
            return self.send(buffers[0])
        parts, size = [], 0
        for buffer in buffers:
            parts.append(memoryview(buffer)[: WRITE_BYTES_MAX - size])
            size += len(parts[-1])
            if size >= WRITE_BYTES_MAX:
                break
        return self.send(b"".join(parts))

    def send_file(self, file: int, position: int, length: int) -> int:
        """As os.sendfile: a part of the range, 0 if the file ends before it."""
        chunk = os.pread(file, min(length, FILE_CHUNK_BYTES), position)
        return self.send(chunk) if chunk else 0

    def peek(self, count: int) -> bytes:
        """The next bytes on the wire, which are not decrypted."""
        return socket.socket.recv(self, count, socket.MSG_PEEK)

    def close(self) -> None:
        """Says goodbye, if the socket takes that at once."""
        with suppress(OSError, ValueError):
            self.unwrap()
        super().close()
