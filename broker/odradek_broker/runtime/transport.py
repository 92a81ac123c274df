"""A connection to another broker that carries frames of bytes; `runtime/peer.py` encodes them.

A raw non-blocking socket on the loop, connected when the first call needs it. Calls are pipelined:
each sends one frame (4 bytes size, then the frame, whose bytes 4–7 are the correlation id) and
receives one (size, then the frame, whose bytes 0–3 are the same id).

    connection = FrameConnection("10.0.0.7", 9092, loop)
    answer = await connection.call_frame(7, (frame,), timeout_ms=2000)

Every failure (no connection, connection lost, no response in time) is `PeerUnavailable`; whether
the request was carried out is then unknown. A response that does not come in time closes the
connection and fails all calls on it: a broker answers in order, so the others would not be answered
either. Use one connection per kind of work, not one for everything.

After a connection that failed or got no response, the next attempt backs off (50 ms, doubling up to
1 s, with jitter); until then calls fail at once, and the caller decides when to retry.
"""

import asyncio
import random
import socket
import struct
from collections import deque
from collections.abc import Sequence

from odradek_broker.runtime.byte_stream import ByteStream
from odradek_broker.runtime.peer_security import PeerSecurity
from odradek_broker.runtime.tls_socket import TlsSocket

# A peer that leaves this much unread or unanswered is stuck: more would only fill our memory.
IN_FLIGHT_MAX = 256
OUT_BYTES_MAX = 64 * 1024 * 1024
# Larger than any response that we request (replica.fetch.response.max.bytes is 10 MB by default,
# and one batch may exceed it).
FRAME_BYTES_MAX = 256 * 1024 * 1024
# Responses smaller than this are read through one buffer, several at a time.
SCRATCH_BYTES = 64 * 1024
GATHER_MAX = 64  # buffers per sendmsg
# A SASL session is renewed after this part of its lifetime.
RENEW_AFTER = 0.8

BACKOFF_MIN_SECONDS = 0.05
BACKOFF_MAX_SECONDS = 1.0

_SIZE = struct.Struct(">i")

Answer = asyncio.Future[bytearray]


class PeerUnavailable(Exception):  # noqa: N818 - a state, not a mistake
    """No response came; whether the request was carried out is unknown."""


class PeerRefused(PeerUnavailable):
    """Connection refused: no process listens at this address."""


class FrameConnection:
    """Invariant: `_sock` is set only while connected; `_waiting` has the calls of the current
    connection, in their order."""

    def __init__(
        self,
        host: str,
        port: int,
        loop: asyncio.AbstractEventLoop,
        security: PeerSecurity | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._loop = loop
        self._security = security
        self._renew_at = float("inf")  # loop time; then the other broker ends the session
        self._sock: ByteStream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._proven = False  # it answered since it was connected
        self._failures = 0  # connections in a row that never answered
        self._retry_at = 0.0  # loop time
        self._waiting: dict[int, tuple[Answer, asyncio.TimerHandle]] = {}
        self._out: deque[bytes | memoryview] = deque()
        self._out_bytes = 0
        self._writing = False
        self._scratch = bytearray()
        self._kept = 0  # bytes of an unfinished frame at the start of the scratch buffer
        self._frame: bytearray | None = None  # one too large for it, being filled
        self._filled = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def connected(self) -> bool:
        return self._sock is not None

    def call_frame(self, correlation_id: int, frame: Sequence[bytes], timeout_ms: float) -> Answer:
        """Sends `frame` (in parts); the response's frame, from its correlation id on."""
        answer: Answer = self._loop.create_future()
        refusal = self._refusal()
        if refusal is not None:
            answer.set_exception(PeerUnavailable(f"{self}: {refusal}"))
            return answer
        if self._loop.time() >= self._renew_at and not self._waiting:
            self._disconnect("authenticates again")
        assert correlation_id not in self._waiting, "a correlation id is used once"
        timer = self._loop.call_later(timeout_ms / 1000, self._timed_out, timeout_ms)
        self._waiting[correlation_id] = (answer, timer)
        size = sum(map(len, frame))
        self._out.append(_SIZE.pack(size))
        self._out.extend(part for part in frame if part)
        self._out_bytes += 4 + size
        if self._sock is not None:
            if not self._writing:
                self._flush()
        elif self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())
        return answer

    def close(self) -> None:
        """For good: pending calls and later ones fail."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._disconnect("closed")

    def _refusal(self) -> str | None:
        if self._closed:
            return "closed"
        if self._sock is None and self._connecting is None and self._loop.time() < self._retry_at:
            return "not reachable, backing off before the next attempt"
        if len(self._waiting) >= IN_FLIGHT_MAX or self._out_bytes > OUT_BYTES_MAX:
            return f"{len(self._waiting)} requests are pending already"
        return None

    # --- connecting ----------------------------------------------------------------------

    async def _connect(self) -> None:
        sock = None
        try:
            found = await self._loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(sock, address)
            stream: ByteStream = sock
            lifetime_ms = 0
            if self._security is not None:
                stream, lifetime_ms = await self._security.secure(sock, self.host, self._loop)
        except OSError as error:
            if sock is not None:
                sock.close()
            self._connecting = None
            refused = isinstance(error, ConnectionRefusedError)
            reason = PeerRefused if refused else PeerUnavailable
            self._disconnect(f"cannot connect: {error.strerror or error}", reason)
        except asyncio.CancelledError:
            if sock is not None:
                sock.close()
            raise
        else:
            self._connecting = None
            self._sock = stream
            self._renew_at = float("inf")
            if lifetime_ms:
                self._renew_at = self._loop.time() + lifetime_ms / 1000 * RENEW_AFTER
            self._scratch = bytearray(SCRATCH_BYTES)
            self._loop.add_reader(stream.fileno(), self._on_readable)
            self._flush()

    def _back_off(self) -> None:
        self._failures += 1
        longest = min(BACKOFF_MIN_SECONDS * 2 ** min(self._failures - 1, 10), BACKOFF_MAX_SECONDS)
        self._retry_at = self._loop.time() + longest * random.uniform(0.8, 1.2)

    def _timed_out(self, timeout_ms: float) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._disconnect(f"no response within {timeout_ms:.0f} ms")

    def _disconnect(self, reason: str, kind: type[PeerUnavailable] = PeerUnavailable) -> None:
        """Back to the state before the first call; all pending calls fail."""
        if not self._proven:
            self._back_off()
        self._proven = False
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock.fileno())
            if self._writing:
                self._loop.remove_writer(sock.fileno())
            sock.close()
        self._writing = False
        self._out.clear()
        self._out_bytes = 0
        self._scratch = bytearray()
        self._kept = self._filled = 0
        self._frame = None
        waiting, self._waiting = self._waiting, {}
        for answer, timer in waiting.values():
            timer.cancel()
            if not answer.done():
                answer.set_exception(kind(f"{self}: {reason}"))

    # --- out -----------------------------------------------------------------------------

    def _flush(self) -> None:
        sock = self._sock
        assert sock is not None
        try:
            while self._out:
                parts = [self._out[i] for i in range(min(len(self._out), GATHER_MAX))]
                self._sent(sock.sendmsg(parts))
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(sock.fileno(), self._flush)
            return
        except OSError as error:
            self._disconnect(f"write failed: {error.strerror}")
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(sock.fileno())

    def _sent(self, sent: int) -> None:
        self._out_bytes -= sent
        while sent > 0:
            part = self._out[0]
            if sent < len(part):
                self._out[0] = memoryview(part)[sent:]
                return
            sent -= len(part)
            self._out.popleft()

    # --- in ------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self._read()
        # With TLS, bytes that are decrypted already cause no event of the socket.
        while isinstance(self._sock, TlsSocket) and self._sock.pending():
            self._read()

    def _read(self) -> None:
        sock = self._sock
        assert sock is not None
        into = memoryview(self._scratch)[self._kept :]
        if self._frame is not None:
            into = memoryview(self._frame)[self._filled :]
        try:
            received = sock.recv_into(into)
        except BlockingIOError:
            return
        except OSError as error:
            self._disconnect(f"read failed: {error.strerror}")
            return
        if received == 0:
            self._disconnect("closed by the other side")
        elif self._frame is None:
            self._take_frames(self._kept + received)
        else:
            self._filled += received
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._answered(frame)

    def _take_frames(self, end: int) -> None:
        """Every whole frame in the scratch buffer; the rest is kept, or gets its own buffer."""
        scratch, at = self._scratch, 0
        while end - at >= 4:
            (size,) = _SIZE.unpack_from(scratch, at)
            if not 4 <= size <= FRAME_BYTES_MAX:
                self._disconnect(f"a response of {size} bytes")
                return
            body = at + 4
            if body + size > end:
                if size > SCRATCH_BYTES // 2:
                    # Memory that is not written yet costs nothing, so all of it is allocated.
                    self._frame, self._filled = bytearray(size), end - body
                    self._frame[: end - body] = scratch[body:end]
                    self._kept = 0
                    return
                break
            at = body + size
            self._answered(scratch[body:at])
            if self._sock is None:
                return
        self._kept = end - at
        if at:
            scratch[: self._kept] = scratch[at:end]

    def _answered(self, frame: bytearray) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            self._disconnect(f"a response to request {correlation_id}, which was not sent")
            return
        self._proven, self._failures = True, 0
        answer, timer = waiting
        timer.cancel()
        if not answer.done():  # else the caller was cancelled
            answer.set_result(frame)
