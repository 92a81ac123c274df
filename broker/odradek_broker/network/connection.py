"""One client connection, receiving: bytes → frames → exchanges. `outgoing.py` sends.

A raw non-blocking socket, driven by the poller (runtime/poller.py): no transport copies the bytes,
and ranges of logs are sent with sendfile.

The bytes of a read are cut into frames, which are copied out of it. Clients that send much are read
through a large buffer that all connections share. A frame that does not fit into one read gets a
buffer of its own (`large_frame.py`) that grows with the bytes that arrive: a client that announces
100 MB and sends nothing holds 68 KB, and is disconnected if nothing follows (`receiving.py`).

Reading pauses (and TCP slows the client down) while one of these is true:
- MAX_IN_FLIGHT requests of this connection are not answered, or their responses not sent,
- the broker's request memory is used up (`memory.py`),
- a request that later ones must not overtake (all but Produce and Fetch) is being awaited,
- UNSENT_BYTES_MAX of responses wait to be sent: the client does not read them,
- the client has exceeded a quota.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from librt.strings import read_i32_be

from odradek_broker.model.principal import ANONYMOUS, Principal
from odradek_broker.network.large_frame import HEAD_BYTES, LargeFrame, first_capacity
from odradek_broker.network.memory import BEGUN, NEW, OF_BROKER, SMALL_BYTES, Waiter
from odradek_broker.network.outgoing import Outgoing
from odradek_broker.network.peek import client_id_of, is_broker
from odradek_broker.runtime import clock
from odradek_broker.runtime.byte_stream import ByteStream
from odradek_broker.runtime.poller import READABLE, WRITABLE
from odradek_broker.security.authentication import Authentication
from odradek_broker.security.authorizer import Decisions
from odradek_protocol.acl_codes import AclOperation

if TYPE_CHECKING:
    from odradek_broker.network.server import Server

logger = logging.getLogger(__name__)

CLOSED_BY_CLIENT: Final = "closed by the client"  # the most frequent reason
READ_FAILED: Final = "read failed"
CUT_OFF: Final = "closed by the client in the middle of a request"
# Clients keep 5 produce requests in flight by default; librdkafka up to 1,000,000. More than
# this adds no throughput, it only moves the queue from the client into our memory.
MAX_IN_FLIGHT: Final = 64
UNSENT_BYTES_MAX: Final = 256 * 1024  # of responses in memory, without records in files
MIN_FRAME_BYTES: Final = 8  # api key, version, correlation id
# The first two bytes of a TLS connection, where the size of a request should be.
TLS_RECORD: Final = 0x1603
# The size of a read, until one returns BULK_FROM_BYTES: then the next uses the shared buffer.
SMALL_READ_BYTES: Final = 16 * 1024
BULK_FROM_BYTES: Final = 4 * 1024


class Connection(Outgoing):
    __slots__ = (
        "_backlog",
        "_bulk",
        "_frame",
        "_held_bytes",
        "_muted",
        "_resuming",
        "_throttled",
        "_when_closed",
        "authentication",
        "client_host",
        "client_software",
        "frame_bytes_max",
        "handlers",
        "listener",
        "on_probation",
        "principal",
        "topic_decisions",
        "waiter",
    )

    def __init__(self, server: "Server", sock: ByteStream, listener: str, client_host: str) -> None:
        super().__init__(server, sock)
        self.listener = listener
        self.handlers = server.dispatcher.served[listener]
        self.client_host = client_host
        self.client_software: tuple[str | None, str | None] = (None, None)
        self.principal = ANONYMOUS  # until the client has authenticated
        self.authentication: Authentication | None = None  # on listeners with SASL
        self.topic_decisions: dict[AclOperation, Decisions] = {}  # see exchange.py
        self.frame_bytes_max = server.frame_bytes_max
        # A frame too large for one read, while it is being received.
        self._frame: LargeFrame | None = None
        self._bulk = False  # the last read returned BULK_FROM_BYTES or more
        self._backlog = b""  # read, but not yet cut into frames
        self._muted = False
        self._throttled: asyncio.TimerHandle | None = None  # until it fires
        self._held_bytes = 0  # request memory taken for a frame that has no handler yet
        self.waiter: Waiter | None = None  # while it waits for request memory
        self.on_probation = False  # see server.py
        self._resuming = False
        # Weak: a client makes as many sessions and instances as it likes, one after the other.
        self._when_closed: WeakKeyDictionary[Any, Callable[[Any], None]] | None = None
        self._watch()

    @property
    def held_bytes(self) -> int:
        """Request memory of all unanswered requests of this connection."""
        held = self._held_bytes
        for exchange in self._pending:
            if exchange.chunks is None:
                held += exchange.request_bytes
        return held

    @property
    def client_id(self) -> str | None:
        """The client id of the request being received, or of the oldest unanswered one."""
        if self._frame is not None:
            return client_id_of(self._frame.head())
        return self._pending[0].client_id if self._pending else None

    def on_ready(self, events: int) -> None:
        # Neither bit set: EPOLLERR or EPOLLHUP. The next recv or send reports it.
        if self._reading and events & ~WRITABLE:
            self._read()
        if self._writing and events & ~READABLE and not self.closed:
            self.flush(clock.now_ns())

    def _watch(self) -> None:
        """Registers with the poller the events that this connection waits for from now on."""
        events = (READABLE if self._reading else 0) | (WRITABLE if self._writing else 0)
        self.server.poller.watch(self.sock.fileno(), self, events)

    # --- receiving -----------------------------------------------------------------------

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
            self.close(f"{READ_FAILED}: {error.strerror}")

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
            received = self.sock.recv_into(scratch[kept:], self.server.memory.read_ahead_bytes)
        else:
            received = self.sock.recv_into(scratch, self.server.memory.read_ahead_bytes)
        if received == 0:
            self.close(CLOSED_BY_CLIENT)
            return
        self._backlog = b""
        self._bulk = received >= BULK_FROM_BYTES
        self.last_active_ms = self.server.pass_ms()
        self._take_frames(scratch, kept + received)

    def _read_frame(self, frame: LargeFrame) -> None:
        if frame.full:
            more = frame.growth()
            if not self.server.memory.take_part(frame, frame.size, more) and (
                not self._take_reserved(frame.size, more, frame.head())
            ):
                return
            self._grow(frame, more)
        if frame.receive(self.sock) == 0:
            self.close(CUT_OFF)
            return
        self.last_active_ms = self.server.pass_ms()
        if frame.complete:
            self._end_frame(frame)
            self._start(frame.finish())
            if not self.closed and self._must_wait():
                self._pause()

    def _take_frames(self, data: bytes | memoryview, end: int) -> None:
        """Starts every whole frame in `data[:end]`; the rest is kept for the next read."""
        at = 0
        limit = self.frame_bytes_max
        while end - at >= 4:
            size = _size_at(data, at)
            if not MIN_FRAME_BYTES <= size <= limit:
                self.close(self._bad_size(size, limit))
                return
            body = at + 4
            if self._must_wait():
                self._backlog = _copy(data, at, end)
                self._pause()
                return
            if body + size > end:
                capacity = first_capacity(size, end - body)
                if self.server.memory.take_part(None, size, capacity) or self._take_reserved(
                    size, capacity, _copy(data, body, min(body + HEAD_BYTES, end))
                ):
                    self._begin_frame(size, data[body:end], capacity)
                else:
                    self._backlog = _copy(data, at, end)
                return
            if not self.server.memory.take(size) and not self._take_reserved(
                size, size, _copy(data, body, min(body + HEAD_BYTES, end))
            ):
                self._backlog = _copy(data, at, end)
                return
            at = body + size
            self._start(_copy(data, body, at))
            if self.closed:
                return
        if at < end:
            self._backlog = _copy(data, at, end)

    def _bad_size(self, size: int, limit: int) -> str:
        if size >> 16 == TLS_RECORD:
            return (
                f"TLS: a client with TLS on listener {self.listener}, which has none; set "
                "security.protocol of the client"
            )
        setting = "socket.request.max.bytes"
        if limit < self.server.frame_bytes_max:
            setting = "sasl.server.max.receive.size, until the client is authenticated"
        return f"bad size: a request of {size} bytes, outside {MIN_FRAME_BYTES}–{limit} ({setting})"

    def _begin_frame(self, size: int, head: bytes | memoryview, capacity: int) -> None:
        """The rest of this frame is received into a buffer of its own."""
        self._held_bytes = capacity
        self._frame = LargeFrame(size, head, capacity, self.server.pass_ms())
        self.server.memory.begin(self._frame)
        self.server.receiving.add(self._frame, self)

    def _end_frame(self, frame: LargeFrame) -> None:
        self._frame = None
        self.server.memory.end(frame)
        self.server.receiving.discard(frame)

    def _start(self, frame: bytes) -> None:
        """Starts the handler of one whole request; its memory is released with the response."""
        self._held_bytes = 0
        exchange = self.server.dispatcher.open(self, frame)
        if exchange is None or (
            self.on_probation and not self.server.passes_probation(self, exchange.client_id)
        ):
            self.server.memory.give_back(len(frame))
            return
        self._pending.append(exchange)
        self.server.dispatcher.start(exchange, frame)

    # --- request memory ------------------------------------------------------------------

    def _grow(self, frame: LargeFrame, more: int) -> None:
        frame.grow(more)
        self._held_bytes += more
        self.server.memory.grown(frame, more)

    def _take_reserved(self, size: int, charge: int, head: bytes) -> bool:
        """Takes memory that is reserved for small requests and for brokers.

        If there is none, reading pauses until memory is granted.
        """
        memory = self.server.memory
        if size + self.held_bytes - self._held_bytes <= SMALL_BYTES:
            memory.take_anyway(charge)
            return True
        broker = self.listener in self.server.broker_listeners or is_broker(client_id_of(head))
        if broker:
            whole = self._frame is None and charge == size
            if (
                memory.take_for_broker(size)
                if whole
                else memory.take_part_for_broker(self._frame, size, charge)
            ):
                return True
        rank = OF_BROKER if broker else NEW if self._frame is None else BEGUN
        self._pause()
        self.waiter = Waiter(
            rank, self._frame, size, charge, self.server.pass_ms(), self._memory_granted
        )
        memory.wait(self.waiter)
        return False

    def _memory_granted(self) -> None:
        """Continues with the frame that waited; its memory is charged already."""
        waiter = self.waiter
        assert waiter is not None
        self.waiter = None
        self._reading = True
        self._watch()
        if self._frame is not None:
            self._grow(self._frame, waiter.charge)
            return
        backlog, self._backlog = self._backlog, b""
        size = read_i32_be(backlog, 0)
        end = 4 + size
        if end > len(backlog):
            self._begin_frame(size, memoryview(backlog)[4:], waiter.charge)
            return
        self._resuming = True
        self._start(backlog[4:end])
        if not self.closed and end < len(backlog):
            self._take_frames(backlog[end:], len(backlog) - end)
        self._resuming = False

    # --- pausing -------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        unsent = len(self._out) - self._next
        if (
            self._muted
            or self._throttled is not None
            or len(self._pending) + unsent >= MAX_IN_FLIGHT
        ):
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
        """The request that is being started is awaited; later ones must not overtake it."""
        self._muted = True

    def is_of_broker(self) -> None:
        """Another broker sent an urgent request: this connection is read before clients'."""
        if not self.closed:
            self.server.poller.urgent.add(self.sock.fileno())

    def unmute(self) -> None:
        self._muted = False
        if not self._reading:
            self._resume()

    def throttle(self, throttle_ms: int) -> None:
        """Handles no further request for this time; an earlier throttling may last longer."""
        if self.closed:
            return
        loop = self.server.loop
        until = loop.time() + throttle_ms / 1000.0
        if self._throttled is not None:
            if self._throttled.when() >= until:
                return
            self._throttled.cancel()
        self._throttled = loop.call_at(until, self._unthrottle)

    def _unthrottle(self) -> None:
        self._throttled = None
        self.last_active_ms = self.server.pass_ms()
        if not self._reading:
            self._resume()

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._watch()

    def _resume(self) -> None:
        # A request from the backlog may be answered at once, which calls this method again.
        if self.closed or self.closing or self._reading or self._resuming or self._must_wait():
            return
        if self.waiter is not None:
            return
        self._resuming = True
        self._reading = True
        self._watch()
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self._take_frames(backlog, len(backlog))
        self._resuming = False

    # --- closing -------------------------------------------------------------------------

    def authenticated(self, principal: Principal) -> None:
        self.principal = principal
        self.frame_bytes_max = self.server.frame_bytes_max

    def when_closed(self, held: Any, close: Callable[[Any], None]) -> None:
        """See RequestContext."""
        if self._when_closed is None:
            self._when_closed = WeakKeyDictionary()
        self._when_closed[held] = close

    def close_when_sent(self, reason: str) -> None:
        """Reads no more; closed with `reason` when the pending responses are sent."""
        self.closing = reason
        self._pause()

    def close(self, reason: str) -> None:
        """`reason` is a kind, one of few (log and metric label), optionally with ": details"."""
        if self.closed:
            return
        self.closed = True
        self._reading = self._writing = False
        self._watch()
        self.sock.close()
        waiting = [e for e in self._pending if e.chunks is None]
        self._pending.clear()
        self._out.clear()
        if self.waiter is not None:
            self.server.memory.forget(self.waiter)
            self.waiter = None
        if self._throttled is not None:
            self._throttled.cancel()
            self._throttled = None
        if self._frame is not None:
            self._end_frame(self._frame)
        if self._held_bytes:
            self.server.memory.give_back(self._held_bytes)
            self._held_bytes = 0
        for exchange in waiting:
            # A request without a hook is answered later; then the response is dropped and the
            # request's memory released.
            if exchange.on_disconnect is not None:
                exchange.on_disconnect()
                self.server.memory.give_back(exchange.request_bytes)
        for held, close in tuple((self._when_closed or {}).items()):
            close(held)
        self._when_closed = None
        self.server.connection_closed(self, reason)


# Compiled code reads `bytes` without a call, but not a memoryview.


def _size_at(data: bytes | memoryview, at: int) -> int:
    if isinstance(data, bytes):
        return read_i32_be(data, at)
    return read_i32_be(bytes(data[at : at + 4]), 0)


def _copy(data: bytes | memoryview, start: int, end: int) -> bytes:
    if isinstance(data, bytes):
        return data[start:end]
    return bytes(data[start:end])
