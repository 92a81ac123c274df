"""Listening sockets, the set of connections, and the limits that hold over all of them."""

import asyncio
import errno
import logging
import socket
from collections import Counter

from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.handler import Handler
from odradek_broker.network.connection import (
    CLOSED_BY_CLIENT,
    CUT_OFF,
    READ_FAILED,
    WRITE_FAILED,
    Connection,
)
from odradek_broker.network.dispatcher import Dispatcher
from odradek_broker.network.memory import RequestMemory
from odradek_broker.network.receiving import SWEEP_SECONDS, Receiving
from odradek_broker.runtime import clock
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.poller import Poller
from odradek_broker.runtime.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)

# One read of a client that sends much takes at most this; larger frames are read into buffers of
# their own. Batches of 64 KB, several in flight, come with one read: adr/0008.
SCRATCH_BYTES = 256 * 1024
# New connections per wake-up, so that a storm of them does not starve the established ones.
ACCEPT_MAX = 64
# How long accepting rests when the process has no file descriptors left.
ACCEPT_REST_SECONDS = 0.5
IDLE_SWEEP_SECONDS = 10.0

IDLE = "idle (connections.max.idle.ms)"
STOPPING = "the broker stops"
TOO_MANY = "too many connections"
# Why connections end all day; not worth a line in the log.
ORDINARY = frozenset((CLOSED_BY_CLIENT, CUT_OFF, READ_FAILED, WRITE_FAILED, IDLE, STOPPING))


class Server:
    def __init__(
        self,
        broker: BrokerContext,
        handlers: dict[int, Handler],
        loop: asyncio.AbstractEventLoop,
        poller: Poller,
    ) -> None:
        settings = broker.settings
        self.loop = loop
        self.poller = poller
        self.clock = broker.clock
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.frame_bytes_max = settings.int("socket.request.max.bytes")
        self.memory = RequestMemory(
            settings.int("queued.max.request.bytes"), self.frame_bytes_max, poller.call_soon
        )
        self.receiving = Receiving(
            self.memory,
            broker.metrics,
            settings.int("odradek.request.receive.timeout.ms"),
            lambda: self.connections,
        )
        listeners = settings.listeners
        # Only other brokers use it, if clients have one of their own.
        self.broker_listener = listeners.inter_broker_name if len(listeners.brokers) > 1 else ""
        self.dispatcher = Dispatcher(broker, handlers)
        self.connections: set[Connection] = set()
        self._metrics = broker.metrics
        self._per_ip: Counter[str] = Counter()
        self._connections_max = settings.int("max.connections")
        self._per_ip_max = settings.int("max.connections.per.ip")
        self._idle_ms = settings.int("connections.max.idle.ms")
        self._backlog = settings.int("socket.listen.backlog.size")
        self._buffers = {
            socket.SO_SNDBUF: settings.int("socket.send.buffer.bytes"),
            socket.SO_RCVBUF: settings.int("socket.receive.buffer.bytes"),
        }
        self._limited = RateLimitedLog(logger)
        self._listening: list[tuple[socket.socket, str]] = []
        self._to_flush: list[Connection] = []
        self._pass = -1
        self._pass_ms = 0.0
        self._sweep = loop.call_later(IDLE_SWEEP_SECONDS, self._close_idle)
        self._receiving_sweep = loop.call_later(SWEEP_SECONDS, self._sweep_receiving)

    # --- accepting -----------------------------------------------------------------------

    def bind(self, listener: Listener) -> tuple[str, int]:
        """Binds without accepting yet: the port is known (and refused if taken) at once."""
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((listener.host, listener.port))
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        self._listening.append((sock, listener.name))
        return sock.getsockname()[0], sock.getsockname()[1]

    def start_accepting(self) -> None:
        for sock, name in self._listening:
            sock.listen(self._backlog)
            self.loop.add_reader(sock.fileno(), self._accept, sock, name)

    def stop_accepting(self) -> None:
        for sock, _ in self._listening:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._listening.clear()

    def _accept(self, listening: socket.socket, listener: str) -> None:
        for _ in range(ACCEPT_MAX):
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._rest(listening, listener, error)
                    return
                continue  # the client went away before it was accepted
            self._admit(sock, listener, address[0])

    def _rest(self, listening: socket.socket, listener: str, error: OSError) -> None:
        logger.error("not accepting connections for a moment: %s", error.strerror)
        self.loop.remove_reader(listening.fileno())

        def again() -> None:
            if (listening, listener) in self._listening:
                self.loop.add_reader(listening.fileno(), self._accept, listening, listener)

        self.loop.call_later(ACCEPT_REST_SECONDS, again)

    def _admit(self, sock: socket.socket, listener: str, host: str) -> None:
        self._metrics.connections_accepted += 1
        if len(self.connections) >= self._connections_max or self._per_ip[host] >= self._per_ip_max:
            self._limited.warning(
                TOO_MANY, self.pass_ms(), "refused a connection from %s: too many connections", host
            )
            self._metrics.connection_closed(TOO_MANY)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._buffers.items():
            if size > 0:  # -1 leaves it to the kernel, which adapts it
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        self.connections.add(Connection(self, sock, listener, host))
        self._per_ip[host] += 1
        self._metrics.connections += 1

    # --- called by connections -----------------------------------------------------------

    def pass_ms(self) -> float:
        """Monotonic time, looked up once per pass: near enough to know who is idle."""
        if self._pass != self.poller.passes:
            self._pass = self.poller.passes
            self._pass_ms = self.clock.monotonic_ms()
        return self._pass_ms

    def flush_soon(self, connection: Connection) -> None:
        """Answers of one pass leave together: one sendmsg per connection."""
        if connection.flush_queued:
            return
        connection.flush_queued = True
        if not self._to_flush:
            self.poller.call_soon(self._flush_all)
        self._to_flush.append(connection)

    def _flush_all(self) -> None:
        to_flush, self._to_flush = self._to_flush, []
        now_ns = clock.now_ns()
        for connection in to_flush:
            connection.flush_queued = False
            if not connection.closed:
                now_ns = connection.flush(now_ns)

    def connection_closed(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        host = connection.client_host
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]
        self._metrics.connections -= 1
        kind = reason.split(":")[0]
        self._metrics.connection_closed(kind)
        if kind in ORDINARY:
            logger.debug("connection from %s closed: %s", host, reason)
        else:
            now_ms = self.pass_ms()
            self._limited.info(kind, now_ms, "connection from %s closed: %s", host, reason)

    # --- housekeeping --------------------------------------------------------------------

    def _close_idle(self) -> None:
        self._sweep = self.loop.call_later(IDLE_SWEEP_SECONDS, self._close_idle)
        oldest_ms = self.clock.monotonic_ms() - self._idle_ms
        idle = [
            connection
            for connection in self.connections
            if connection.last_active_ms < oldest_ms and not connection.awaits_answer
        ]
        for connection in idle:
            connection.close(IDLE)

    def _sweep_receiving(self) -> None:
        self._receiving_sweep = self.loop.call_later(SWEEP_SECONDS, self._sweep_receiving)
        self.receiving.sweep(self.clock.monotonic_ms())

    async def drain(self, timeout: float) -> None:
        """Waits until what was asked is answered, at most `timeout` seconds; then closes all."""
        deadline = self.loop.time() + timeout
        while self.loop.time() < deadline and not all(c.quiet for c in self.connections):
            await asyncio.sleep(0.01)
        for connection in tuple(self.connections):
            connection.close(STOPPING)
        self._sweep.cancel()
        self._receiving_sweep.cancel()
