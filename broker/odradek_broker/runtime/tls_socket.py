"""A non-blocking TLS socket with the methods and exceptions of a plain one.

So connections to clients (`network/`) and to other brokers (`runtime/transport.py`) have one code
path for both. Differences that remain for the owner:

- `handshake()` has to succeed before the first byte;
- received bytes may wait in memory while the kernel has nothing to read: `pending()`;
- a read may have to wait until the socket is writable (an answer to a key update): then
  `read_wants_write` is set;
- a write that raised BlockingIOError must be repeated with the same bytes, or more of them: a part
  of them is encrypted already. The queues of both owners guarantee that, because they advance by
  what was accepted only.

OpenSSL works on memory (MemoryBIO), not on the socket, from which it would read each record with
two system calls; librdkafka sends a record for each message and one for its header (adr/0017).

A memory BIO keeps the size that it once had, so it gets at most PIECE_BYTES at a time.
"""

import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

# The largest payload of a TLS record.
RECORD_BYTES: Final = 16 * 1024
# Handed to OpenSSL at a time: about one record.
PIECE_BYTES: Final = RECORD_BYTES + 32
# Read from a socket at a time.
RAW_BYTES: Final = 256 * 1024
# Encrypted and sent at a time: the memory of a connection whose client does not read.
WRITE_BYTES_MAX: Final = 64 * 1024


def shared_buffer() -> memoryview:
    """For all TLS sockets of a thread: bytes before they are decrypted or encrypted."""
    return memoryview(bytearray(RAW_BYTES + RECORD_BYTES))


def server_side(context: ssl.SSLContext, sock: socket.socket, shared: memoryview) -> "TlsSocket":
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    return TlsSocket(sock, tls, incoming, outgoing, shared)


def client_side(
    context: ssl.SSLContext, sock: socket.socket, host: str, shared: memoryview
) -> "TlsSocket":
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    return TlsSocket(sock, tls, incoming, outgoing, shared)


class TlsSocket:
    """Invariant: bytes that OpenSSL has made are in `_unsent` or sent when a method returns."""

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        shared: memoryview,
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._raw = shared[:RAW_BYTES]
        self._small = shared[RAW_BYTES:]
        self._unsent: list[bytes | memoryview] = []
        # Bytes of the owner in `_unsent`, which were not reported to it as accepted yet.
        self._encrypted = 0
        self._ended = False
        self.read_wants_write = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def handshake(self) -> str:
        """ "" when it is complete, "read" or "write" if it waits for that. Raises OSError."""
        wants = ""
        try:
            if self._unsent:
                self._flush(0)
            count = self._sock.recv_into(self._raw, PIECE_BYTES)
            if count:
                self._incoming.write(self._raw[:count])
            else:
                self._incoming.write_eof()
        except BlockingIOError:
            if self._unsent:
                return "write"
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            wants = "read"
        except ssl.SSLError:
            self._flush_quietly()  # sends the TLS alert with the reason
            raise
        try:
            self._flush(0)
        except BlockingIOError:
            if wants:
                return "write"
            self.read_wants_write = True
        return wants

    def getpeercert(self) -> Any:
        """As SSLSocket's: None if the other side has shown no certificate."""
        return self._tls.getpeercert()

    # --- in ------------------------------------------------------------------------------

    def pending(self) -> bool:
        """Whether a read returns something without an event of the socket."""
        if self.read_wants_write:
            return False
        return self._ended or self._incoming.pending > 0 or self._tls.pending() > 0

    def recv(self, buflen: int, /) -> bytes:
        if not self.read_wants_write and not self._incoming.pending and not self._tls.pending():
            return self._receive_small(buflen)
        count = self.recv_into(self._small, buflen)
        return bytes(self._small[:count])

    def _receive_small(self, buflen: int) -> bytes:
        """One small request is one record as a rule: it is read without a copy of ours."""
        if self._ended:
            return b""
        count = self._sock.recv_into(self._raw, PIECE_BYTES)
        if not count:
            self._ended = True
            return b""
        self._incoming.write(self._raw[:count])
        data = b""
        try:
            data = self._tls.read(buflen)
            self._ended = not data  # the other side has said goodbye
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._flush_quietly()
            raise
        if self._outgoing.pending:
            self._flush_later()
        if self._incoming.pending and not self._ended and not self.read_wants_write:
            count = self._decrypt(self._small, 0, buflen - len(data))
            data += bytes(self._small[:count])
        if not data and not self._ended:
            raise BlockingIOError
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, /) -> int:
        """Fills the buffer with all records that have arrived, by one read of the socket."""
        if self.read_wants_write:
            self._flush(0)
            self.read_wants_write = False
        view = memoryview(buffer)
        limit = len(view)
        if 0 < nbytes < limit:
            limit = nbytes
        filled = 0
        if self._incoming.pending or self._tls.pending():
            filled = self._decrypt(view, 0, limit)
        if filled < limit and not self._ended and not self.read_wants_write:
            try:
                filled = self._receive(view, filled, limit)
            except BlockingIOError:
                if not filled:
                    raise
        if not filled and not self._ended:
            raise BlockingIOError
        return filled

    def _receive(self, view: memoryview, filled: int, limit: int) -> int:
        """Reads the socket; bytes that do not fit into the view stay in the memory BIO.

        That is little: decrypted bytes are fewer than the bytes read, but for the beginning of a
        record that OpenSSL had already.
        """
        raw = self._raw
        wanted = limit - filled
        wanted = RAW_BYTES if wanted > RAW_BYTES else wanted
        wanted = PIECE_BYTES if wanted < PIECE_BYTES else wanted
        count = self._sock.recv_into(raw, wanted)
        if not count:
            self._ended = True
            return filled
        incoming = self._incoming
        at = 0
        while at < count:
            end = at + PIECE_BYTES
            if end > count or filled == limit or self.read_wants_write:
                end = count
            incoming.write(raw[at:end])
            at = end
            if filled < limit and not self.read_wants_write:
                filled = self._decrypt(view, filled, limit)
        return filled

    def _decrypt(self, view: memoryview, filled: int, limit: int) -> int:
        # `Any`: with a buffer it returns an int, which its type does not say.
        read: Any = self._tls.read
        incoming = self._incoming
        try:
            while filled < limit:
                count: int = read(limit - filled, view[filled:limit])
                if not count:
                    self._ended = True  # the other side sent close_notify
                    break
                filled += count
                if not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._flush_quietly()
            raise
        if self._outgoing.pending:
            self._flush_later()
        return filled

    def _flush_later(self) -> None:
        """Answers a record of TLS itself (a key update), at once or before the next read."""
        try:
            self._flush(0)
        except BlockingIOError:
            self.read_wants_write = True

    # --- out -----------------------------------------------------------------------------

    def send(self, data: Any, /) -> int:
        if self._unsent and self._send_rest():
            return self._accepted()
        self._encrypt(data)
        self._flush(0)
        return self._accepted()

    def sendmsg(self, buffers: Sequence[Any], _: Sequence[Any] = (), flags: int = 0, /) -> int:
        """One write for all buffers: records are as large as possible."""
        if self._unsent and self._send_rest():
            return self._accepted()
        if len(buffers) == 1:
            self._encrypt(buffers[0])
        else:
            parts, size = [], 0
            for buffer in buffers:
                parts.append(memoryview(buffer)[: WRITE_BYTES_MAX - size])
                size += len(parts[-1])
                if size >= WRITE_BYTES_MAX:
                    break
            self._encrypt(b"".join(parts))
        self._flush(flags)
        return self._accepted()

    def send_file(self, file: int, position: int, length: int) -> int:
        """As os.sendfile: a part of the range, 0 if the file ends before it."""
        if self._unsent and self._send_rest():
            return self._accepted()
        wanted = length if length < WRITE_BYTES_MAX else WRITE_BYTES_MAX
        count = os.preadv(file, [self._raw[:wanted]], position)
        if not count:
            return 0
        self._encrypt(self._raw[:count])
        self._flush(0)
        return self._accepted()

    def _send_rest(self) -> bool:
        """Sends bytes encrypted before; returns whether bytes of the owner were among them."""
        self._flush(0)
        return self._encrypted > 0

    def _accepted(self) -> int:
        count, self._encrypted = self._encrypted, 0
        return count

    def _encrypt(self, data: Any) -> None:
        """The beginning of `data`, up to WRITE_BYTES_MAX."""
        size = len(data)
        if size <= RECORD_BYTES:
            self._tls.write(data)
            self._encrypted = size
            return
        size = WRITE_BYTES_MAX if size > WRITE_BYTES_MAX else size
        view = memoryview(data)
        write, read = self._tls.write, self._outgoing.read
        at = 0
        while at < size:
            end = at + RECORD_BYTES
            at += write(view[at : end if end < size else size])
            self._unsent.append(read())
        self._encrypted = size

    def _flush(self, flags: int) -> None:
        """Sends OpenSSL's output. Raises BlockingIOError if the socket does not take all."""
        unsent = self._unsent
        if self._outgoing.pending:
            unsent.append(self._outgoing.read())
        while unsent:
            if len(unsent) == 1:
                sent = self._sock.send(unsent[0], flags)
            else:
                sent = self._sock.sendmsg(unsent, (), flags)
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent[0])
                unsent.pop(0)
            if sent:
                unsent[0] = memoryview(unsent[0])[sent:]

    def _flush_quietly(self) -> None:
        with suppress(OSError):
            self._flush(0)

    # --- the socket ----------------------------------------------------------------------

    def peek(self, count: int) -> bytes:
        """The next bytes on the wire, which are not decrypted."""
        return self._sock.recv(count, socket.MSG_PEEK)

    def expect(self, count: int) -> None:
        """The socket is readable from now on when this many bytes have arrived (or the end)."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def close(self) -> None:
        """Sends close_notify if the socket accepts it at once, and closes."""
        with suppress(OSError, ValueError):
            self._tls.unwrap()
        self._flush_quietly()
        self._sock.close()
