"""One client connection: bytes in → frames → exchanges; answers in order → bytes out.

Raw non-blocking socket, driven by the poller (runtime/poller.py), so that nothing is copied by a
transport on the way and log ranges go out by sendfile.

In: what a read brings is cut into frames, which are copied out (a produce request keeps its frame
until the end of the loop pass). Clients that send much are read through a large buffer that all
connections share. A frame that does not fit into one read goes straight into a buffer of its own
(`large_frame.py`), which grows with the bytes that really arrive, so a client that claims 100 MB
and sends nothing costs nothing.

Reading pauses (and TCP slows the client down) while one of these holds:
- MAX_IN_FLIGHT requests of this connection are unanswered or unsent,
- the broker's request memory is used up (`memory.py`),
- a request that must not be overtaken (everything but produce and fetch) is being awaited,
- UNSENT_BYTES_MAX of answers wait to be sent: a client that does not read gets no new ones.
"""

import logging
import os
import socket
from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be

from odradek_broker.log.types import FileRange
from odradek_broker.network.exchange import Exchange
from odradek_broker.network.large_frame import LargeFrame
from odradek_broker.runtime import clock
from odradek_broker.runtime.poller import READABLE, WRITABLE, Pollable

if TYPE_CHECKING:
    from odradek_broker.network.server import Server

logger = logging.getLogger(__name__)

CLOSED_BY_CLIENT: Final = "closed by the client"  # why most connections end
# Clients keep 5 produce requests in flight by default; librdkafka up to 1,000,000. More than
# this brings no throughput, it only moves the queue from the client into our memory.
MAX_IN_FLIGHT: Final = 64
# Answers in memory, that is, not records, which stay in their files.
UNSENT_BYTES_MAX: Final = 256 * 1024
# The smallest frame: api key, version, correlation id.
MIN_FRAME_BYTES: Final = 8
# Asked of a socket at a time, until a read brings so much that the next one goes to the shared
# buffer.
SMALL_READ_BYTES: Final = 16 * 1024
BULK_FROM_BYTES: Final = 4 * 1024
# A flush stops after this and lets other connections have their turn.
SEND_BUDGET_BYTES: Final = 4 * 1024 * 1024
# Buffers per sendmsg; the kernel's limit is 1024.
GATHER_MAX: Final = 64
# What is sent leaves the queue when so much of it is, or when all is: an answer with the records of
# 10,000 partitions has twice as many parts, and taking each from the front would move the others.
SENT_MAX: Final = 256


class Connection(Pollable):
    __slots__ = (
        "_backlog",
        "_bulk",
        "_frame",
        "_held_bytes",
        "_muted",
        "_next",
        "_out",
        "_pending",
        "_progress",
        "_reading",
        "_resuming",
        "_writing",
        "client_host",
        "closed",
        "flush_queued",
        "last_active_ms",
        "listener",
        "server",
        "sock",
    )

    def __init__(
        self, server: "Server", sock: socket.socket, listener: str, client_host: str
    ) -> None:
        self.server = server
        self.sock = sock
        self.listener = listener
        self.client_host = client_host
        self.closed = False
        self.flush_queued = False
        self.last_active_ms = server.pass_ms()
        # A frame too large for one read, being filled.
        self._frame: LargeFrame | None = None
        self._bulk = False  # the last read brought much
        # Bytes read but not yet taken as frames: less than a frame, or held by a pause.
        self._backlog = b""
        # Lists, which compiled code handles faster than deques. Not answered, or behind one that
        # is not; at most MAX_IN_FLIGHT:
        self._pending: list[Exchange] = []
        # To be sent, from _out[_next] on; an Exchange in it marks the end of its answer. Empty when
        # all is sent.
        self._out: list[bytes | FileRange | Exchange] = []
        self._next = 0
        self._progress = 0  # bytes of _out[_next] that are sent
        self._muted = False
        self._held_bytes = 0  # request memory taken for a frame that is not started yet
        self._reading = True
        self._resuming = False
        self._writing = False
        self._watch()

    @property
    def awaits_answer(self) -> bool:
        """A request of it is being worked on or waits in the purgatory."""
        return bool(self._pending)

    @property
    def quiet(self) -> bool:
        """All that was asked is answered and sent."""
        return not self._pending and not self._out

    def on_ready(self, events: int) -> None:
        # What is neither is an error or the end, which the next read or write tells.
        if self._reading and events & ~WRITABLE:
            self._read()
        if self._writing and events & ~READABLE and not self.closed:
            self.flush(clock.now_ns())

    def _watch(self) -> None:
        """Tells the poller what this connection waits for from now on."""
        events = (READABLE if self._reading else 0) | (WRITABLE if self._writing else 0)
        self.server.poller.watch(self.sock.fileno(), self, events)

    # --- in ------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            if self._frame is not None:
                self._read_frame(self._frame)
            elif self._bulk or self._backlog:
                self._read_scratch()
            else:
                self._read_small()
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(f"read failed: {error.strerror}")

    def _read_small(self) -> None:
        data = self.sock.recv(SMALL_READ_BYTES)
        if not data:
            self.close(CLOSED_BY_CLIENT)
            return
        self._bulk = len(data) >= BULK_FROM_BYTES
        self.last_active_ms = self.server.pass_ms()
        self._take_frames(data, len(data))

    def _read_scratch(self) -> None:
        scratch = self.server.scratch
        kept = len(self._backlog)
        if kept:
            scratch[:kept] = self._backlog
            received = self.sock.recv_into(scratch[kept:])
        else:
            received = self.sock.recv_into(scratch)
        if received == 0:
            self.close(CLOSED_BY_CLIENT)
            return
        self._backlog = b""
        self._bulk = received >= BULK_FROM_BYTES
        self.last_active_ms = self.server.pass_ms()
        self._take_frames(scratch, kept + received)

    def _read_frame(self, frame: LargeFrame) -> None:
        if frame.receive(self.sock) == 0:
            self.close("closed by the client in the middle of a request")
            return
        self.last_active_ms = self.server.pass_ms()
        if frame.complete:
            self._frame = None
            self._start(frame.finish())
            if not self.closed and self._must_wait():
                self._pause()

    def _take_frames(self, data: bytes | memoryview, end: int) -> None:
        """Starts every whole frame in `data[:end]`; what is left is kept for the next read."""
        at = 0
        limit = self.server.frame_bytes_max
        while end - at >= 4:
            size = _size_at(data, at)
            if not MIN_FRAME_BYTES <= size <= limit:
                self.close(
                    f"a request of {size} bytes, outside {MIN_FRAME_BYTES}–{limit} "
                    "(socket.request.max.bytes)"
                )
                return
            must_wait = self._must_wait()
            if must_wait or not self.server.memory.take(size):
                self._backlog = _copy(data, at, end)
                self._pause()
                if not must_wait:
                    self.server.memory.wait(self._resume)
                return
            self._held_bytes = size
            body = at + 4
            if body + size > end:
                self._frame = LargeFrame(size, data[body:end])
                return
            at = body + size
            self._start(_copy(data, body, at))
            if self.closed:
                return
        if at < end:
            self._backlog = _copy(data, at, end)

    def _start(self, frame: bytes) -> None:
        """Hands one whole request over; its memory is given back when its answer is sent."""
        self._held_bytes = 0
        exchange = self.server.dispatcher.open(self, frame)
        if exchange is None:
            self.server.memory.give_back(len(frame))
            return
        self._pending.append(exchange)
        self.server.dispatcher.start(exchange, frame)

    # --- pausing -------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        unsent = len(self._out) - self._next
        if self._muted or len(self._pending) + unsent >= MAX_IN_FLIGHT:
            return True
        return unsent > 0 and self._unsent_bytes() > UNSENT_BYTES_MAX

    def _unsent_bytes(self) -> int:
        size = 0
        for index in range(self._next, len(self._out)):
            item = self._out[index]
            if isinstance(item, bytes):
                size += len(item)
        return size

    def mute(self) -> None:
        """The request being started is awaited and must not be overtaken."""
        self._muted = True

    def is_of_broker(self) -> None:
        """Another broker sent a request that must not wait: it is read before clients."""
        if not self.closed:
            self.server.poller.urgent.add(self.sock.fileno())

    def unmute(self) -> None:
        self._muted = False
        if not self._reading:
            self._resume()

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._watch()

    def _resume(self) -> None:
        # Starting a frame from the backlog may answer at once, which would resume again.
        if self.closed or self._reading or self._resuming or self._must_wait():
            return
        self._resuming = True
        self._reading = True
        self._watch()
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self._take_frames(backlog, len(backlog))
        self._resuming = False

    # --- out -----------------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        if self.closed:
            self.server.memory.give_back(exchange.request_bytes)
            return
        pending = self._pending
        if pending[0] is not exchange:
            return  # an earlier request has to be answered first
        while pending and (chunks := pending[0].chunks) is not None:
            self._out.extend(chunks)
            self._out.append(pending.pop(0))
        self.server.flush_soon(self)

    def flush(self, started_ns: int) -> int:
        """Sends as much as the socket takes; the rest follows when it is writable again.

        It is `started_ns` now; returns when it last looked at the clock.
        """
        self.last_active_ms = self.server.pass_ms()
        now_ns = started_ns
        budget = SEND_BUDGET_BYTES
        try:
            while self._out and budget > 0:
                head = self._out[self._next]
                if isinstance(head, Exchange):
                    now_ns = clock.now_ns()
                    self._step()
                    self._sent(head, started_ns, now_ns)
                elif isinstance(head, bytes):
                    now_ns = self._send_bytes(head, now_ns)
                else:
                    budget -= self._send_range(head)
        except BlockingIOError:
            self._await_writable(started_ns)
            return now_ns
        except OSError as error:
            self.close(f"write failed: {error.strerror}")
            return now_ns
        if self._out:
            self._await_writable(started_ns)
            return now_ns
        if self._writing:
            self._writing = False
            self._watch()
        if not self._reading:
            self._resume()
        return now_ns

    def _step(self) -> None:
        """The first of what is to be sent is sent."""
        self._progress = 0
        self._next += 1
        if self._next == len(self._out):
            self._out.clear()
            self._next = 0
        elif self._next == SENT_MAX:
            del self._out[:SENT_MAX]
            self._next = 0

    def _send_bytes(self, head: bytes, started_ns: int) -> int:
        """As `flush`, for the bytes up to the next range of a file."""
        unsent = len(self._out) - self._next
        if unsent == 2 and not self._progress:  # one answer, and the mark of its end
            self._progress = self.sock.send(head)
            if self._progress == len(head):
                self._step()
            return started_ns
        buffers: list[bytes | memoryview] = []
        flags = 0
        for index in range(self._next, len(self._out)):
            item = self._out[index]
            if isinstance(item, bytes):
                buffers.append(item)
                if len(buffers) == GATHER_MAX:
                    break
            elif isinstance(item, FileRange):
                # The records follow by sendfile: let the kernel put them into one packet.
                flags = socket.MSG_MORE
                break
        if self._progress:
            buffers[0] = memoryview(buffers[0])[self._progress :]
        sent = self.sock.sendmsg(buffers, (), flags)
        sent_ns = clock.now_ns()
        for buffer in buffers:
            if sent < len(buffer):
                self._progress += sent
                return sent_ns
            sent -= len(buffer)
            self._step()
            while self._out and isinstance(self._out[self._next], Exchange):
                exchange = self._out[self._next]
                assert isinstance(exchange, Exchange)
                self._step()
                self._sent(exchange, started_ns, sent_ns)
        return sent_ns

    def _send_range(self, part: FileRange) -> int:
        sent = os.sendfile(
            self.sock.fileno(),
            part.file.fileno(),
            part.position + self._progress,
            min(part.length - self._progress, SEND_BUDGET_BYTES),
        )
        if sent == 0:
            raise OSError(0, "the log was truncated while a range of it was being sent")
        self._progress += sent
        if self._progress == part.length:
            self._step()
        return sent

    def _sent(self, exchange: Exchange, started_ns: int, sent_ns: int) -> None:
        exchange.observe_sent(exchange.sending_ns or started_ns, sent_ns)
        self.server.memory.give_back(exchange.request_bytes)

    def _await_writable(self, started_ns: int) -> None:
        for index in range(self._next, len(self._out)):
            item = self._out[index]
            if isinstance(item, Exchange):
                item.sending_ns = item.sending_ns or started_ns
                break
        if not self._writing:
            self._writing = True
            self._watch()

    # --- the end -------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._reading = self._writing = False
        self._watch()
        self.sock.close()
        unsent = [item for item in self._out[self._next :] if isinstance(item, Exchange)]
        for exchange in (*unsent, *(e for e in self._pending if e.chunks is not None)):
            self.server.memory.give_back(exchange.request_bytes)
        waiting = [e for e in self._pending if e.chunks is None]
        self._pending.clear()
        self._out.clear()
        if self._held_bytes:
            self.server.memory.give_back(self._held_bytes)
        for exchange in waiting:
            # One without a hook is answered some day, into the void, and gives back then.
            if exchange.on_disconnect is not None:
                exchange.on_disconnect()
                self.server.memory.give_back(exchange.request_bytes)
        self.server.connection_closed(self, reason)


# `bytes` are looked into by compiled code without a call, and a memoryview is not.


def _size_at(data: bytes | memoryview, at: int) -> int:
    if isinstance(data, bytes):
        return read_i32_be(data, at)
    return read_i32_be(bytes(data[at : at + 4]), 0)


def _copy(data: bytes | memoryview, start: int, end: int) -> bytes:
    if isinstance(data, bytes):
        return data[start:end]
    return bytes(data[start:end])
