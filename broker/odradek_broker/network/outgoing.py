"""One client connection, sending: responses in the order of the requests → bytes and file ranges.

The base class of the one in `connection.py`, which receives. Ranges of logs are sent with sendfile.
"""

import os
import socket
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from odradek_broker.log.types import FileRange
from odradek_broker.network.exchange import Exchange
from odradek_broker.runtime import clock
from odradek_broker.runtime.byte_stream import ByteStream
from odradek_broker.runtime.poller import Pollable

if TYPE_CHECKING:
    from odradek_broker.network.server import Server

WRITE_FAILED: Final = "write failed"
# A flush stops after this many bytes, so that other connections get their turn.
SEND_BUDGET_BYTES: Final = 4 * 1024 * 1024
# Buffers per sendmsg; the kernel's limit is 1024.
GATHER_MAX: Final = 64
# Sent parts are removed from the queue this many at a time, or when all are sent: a response with
# records of 10,000 partitions has 20,000 parts, and removing the first of them moves all others.
SENT_MAX: Final = 256


class Outgoing(Pollable):
    __slots__ = (
        "_next",
        "_out",
        "_pending",
        "_progress",
        "_reading",
        "_writing",
        "closed",
        "closing",
        "flush_queued",
        "last_active_ms",
        "server",
        "sock",
    )

    def __init__(self, server: "Server", sock: ByteStream) -> None:
        self.server = server
        self.sock = sock
        self.closed = False
        self.closing = ""  # the reason to close it when all responses are sent
        self.flush_queued = False
        self.last_active_ms = server.pass_ms()
        # Lists, because compiled code handles them faster than deques. Requests that are not
        # answered, or wait for an earlier one that is not; at most MAX_IN_FLIGHT:
        self._pending: list[Exchange] = []
        # To be sent, from _out[_next] on; an Exchange in it marks the end of its response. Empty
        # when everything is sent.
        self._out: list[bytes | FileRange | Exchange] = []
        self._next = 0
        self._progress = 0  # bytes of _out[_next] that are sent
        self._reading = True
        self._writing = False

    @property
    def awaits_answer(self) -> bool:
        """One of its requests is being handled or waits in the purgatory."""
        return bool(self._pending)

    @property
    def quiet(self) -> bool:
        """All requests are answered, and the responses sent."""
        return not self._pending and not self._out

    @abstractmethod
    def _watch(self) -> None:
        """Registers with the poller the events that this connection waits for from now on."""

    @abstractmethod
    def _resume(self) -> None:
        """Reads again, if no reason to pause is left."""

    @abstractmethod
    def close(self, reason: str) -> None:
        """`reason` is a kind, one of few (log and metric label), optionally with ": details"."""

    def answered(self, exchange: Exchange) -> None:
        self.server.memory.give_back(exchange.request_bytes)
        if self.closed:
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

        `started_ns` is the time now; returns the time when it last read the clock.
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
            self.close(f"{WRITE_FAILED}: {error.strerror}")
            return now_ns
        if self._out:
            self._await_writable(started_ns)
            return now_ns
        if self._writing:
            self._writing = False
            self._watch()
        if self.closing and not self._pending:
            self.close(self.closing)
            return now_ns
        if not self._reading:
            self._resume()
        return now_ns

    def _step(self) -> None:
        """The next part is sent."""
        self._progress = 0
        self._next += 1
        if self._next == len(self._out):
            self._out.clear()
            self._next = 0
        elif self._next == SENT_MAX:
            del self._out[:SENT_MAX]
            self._next = 0

    def _send_bytes(self, head: bytes, started_ns: int) -> int:
        """As `flush`, for the bytes before the next range of a file."""
        unsent = len(self._out) - self._next
        if unsent == 2 and not self._progress:  # one response, and the mark of its end
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
        return self._range_sent(part, sent)

    def _range_sent(self, part: FileRange, sent: int) -> int:
        if sent == 0:
            raise OSError(0, "the log was truncated while a range of it was being sent")
        self._progress += sent
        if self._progress == part.length:
            self._step()
        return sent

    def _sent(self, exchange: Exchange, started_ns: int, sent_ns: int) -> None:
        exchange.observe_sent(exchange.sending_ns or started_ns, sent_ns)

    def _await_writable(self, started_ns: int) -> None:
        for index in range(self._next, len(self._out)):
            item = self._out[index]
            if isinstance(item, Exchange):
                item.sending_ns = item.sending_ns or started_ns
                break
        if not self._writing:
            self._writing = True
            self._watch()
